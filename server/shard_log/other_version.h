// The error for a file of another format version.
#ifndef HOTBED_SERVER_SHARD_LOG_OTHER_VERSION_H_
#define HOTBED_SERVER_SHARD_LOG_OTHER_VERSION_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace hotbed {

// FailedPrecondition, naming the versions. `oldest`: the oldest that is read, where it is not ours.
// `intact`: the checksum matches at the place where this version keeps it; otherwise the version
// number itself may be damaged.
inline absl::Status OtherVersion(absl::string_view file, int64_t version, int64_t ours, bool intact,
                                 int64_t oldest = 0) {
  const std::string reads = oldest == 0 ? absl::StrCat("version ", ours)
                                        : absl::StrCat("versions ", oldest, " to ", ours);
  return absl::FailedPreconditionError(
      absl::StrCat(file, " has format version ", version, ", this program reads ", reads,
                   " only: start the version of Hotbed that wrote it",
                   intact ? "" : "; where there is none, it is damaged"));
}

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_LOG_OTHER_VERSION_H_
