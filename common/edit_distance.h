// The distance between two words, for suggesting the word that was meant. A pure function.
#ifndef HOTBED_COMMON_EDIT_DISTANCE_H_
#define HOTBED_COMMON_EDIT_DISTANCE_H_

#include <cstddef>

#include "absl/strings/string_view.h"

namespace hotbed {

// The least number of insertions, deletions and replacements of one byte that turns `a` into
// `b`. Takes a.size() x b.size() steps.
size_t EditDistance(absl::string_view a, absl::string_view b);

}  // namespace hotbed

#endif  // HOTBED_COMMON_EDIT_DISTANCE_H_
