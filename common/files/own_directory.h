// The data directory of a daemon: one that is new, empty or its own, never one with foreign files.
#ifndef HOTBED_COMMON_FILES_OWN_DIRECTORY_H_
#define HOTBED_COMMON_FILES_OWN_DIRECTORY_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/files/file_system.h"

namespace hotbed {

// Creates `path` if it does not exist. FailedPrecondition: it is the root directory, or it lacks
// `marker`, the file that makes a directory the daemon's own, and holds a name that is not in
// `own`. Nothing was changed then.
absl::Status ClaimDirectory(const std::string& path, absl::string_view marker,
                            absl::Span<const absl::string_view> own, FileSystem* files);

}  // namespace hotbed

#endif  // HOTBED_COMMON_FILES_OWN_DIRECTORY_H_
