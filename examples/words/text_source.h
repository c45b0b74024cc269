// Reads the text to train on.
#ifndef HOTBED_EXAMPLES_WORDS_TEXT_SOURCE_H_
#define HOTBED_EXAMPLES_WORDS_TEXT_SOURCE_H_

#include <string>

#include "absl/status/statusor.h"

namespace hotbed {

// The program of Debian's package bible-kjv. The text is in the package bible-kjv-text, compressed
// in the program's format.
constexpr char kBibleProgram[] = "/usr/bin/bible";

// Returns the file at `path`. If `path` is empty, returns the output of `program` for the whole
// Bible (King James Version), with one verse per line; uses `scratch_dir` for temporary files.
// NotFound says which package to install where the program is missing.
absl::StatusOr<std::string> ReadText(const std::string& path, const std::string& program,
                                     const std::string& scratch_dir);

}  // namespace hotbed

#endif  // HOTBED_EXAMPLES_WORDS_TEXT_SOURCE_H_
