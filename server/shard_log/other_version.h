// The error for a file of another format version.
#ifndef HOTBED_SERVER_SHARD_LOG_OTHER_VERSION_H_
#define HOTBED_SERVER_SHARD_LOG_OTHER_VERSION_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace hotbed {

// FailedPrecondition, naming both versions. `intact`: the checksum matches at the place where this
// version keeps it; otherwise the version number itself may be damaged.
inline absl::Status OtherVersion(absl::string_view file, int64_t version, int64_t ours,
                                 bool intact) {
  return absl::FailedPreconditionError(
      absl::StrCat(file, " has format version ", version, ", this program reads version ", ours,
                   " only: start the version of Hotbed that wrote it",
                   intact ? "" : "; where there is none, it is damaged"));
}

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_LOG_OTHER_VERSION_H_
