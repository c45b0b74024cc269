// Where the text comes from.
#ifndef HOTBED_EXAMPLES_WORDS_TEXT_SOURCE_H_
#define HOTBED_EXAMPLES_WORDS_TEXT_SOURCE_H_

#include <string>

#include "absl/status/statusor.h"

namespace hotbed {

// Of Debian's package bible-kjv; the text itself is in bible-kjv-text, compressed for it.
constexpr char kBibleProgram[] = "/usr/bin/bible";

// The file at `path`; or, where that is empty, what `program` prints for the whole Bible (King
// James Version), one verse a line. `scratch_dir` is written to meanwhile. NotFound where the
// program is missing, saying which package to install.
absl::StatusOr<std::string> ReadText(const std::string& path, const std::string& program,
                                     const std::string& scratch_dir);

}  // namespace hotbed

#endif  // HOTBED_EXAMPLES_WORDS_TEXT_SOURCE_H_
