// Sizes and durations as people write them, and suggestions for mistyped words. Shared with the
// CLI. Pure functions.
#ifndef HOTBED_CONFIG_UNITS_H_
#define HOTBED_CONFIG_UNITS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace hotbed {

// "64MiB", "1.5 GiB", "4096" (bytes). Units B, KiB, MiB, GiB, TiB. InvalidArgument names the text
// and the units.
absl::StatusOr<uint64_t> ParseBytes(const std::string& text);
// "250ms", "5 s", "250" (milliseconds). Units ns, us, ms, s, min, h. A value that is not a whole
// number of milliseconds is refused.
absl::StatusOr<int64_t> ParseMillis(const std::string& text);

// For people: "64 MiB", "1.5 GiB", four digits at most.
std::string FormatBytes(uint64_t bytes);
// Exact, for files: "64MiB", "1536MiB", "4097". ParseBytes and ParseMillis give the same number
// back.
std::string ExactBytes(uint64_t bytes);
std::string ExactMillis(int64_t millis);

// The candidate nearest to `word` by edit distance, or empty when none is near.
std::string NearestWord(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace hotbed

#endif  // HOTBED_CONFIG_UNITS_H_
