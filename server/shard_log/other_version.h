// The refusal of a file that is not of this program's format.
#ifndef HOTBED_SERVER_SHARD_LOG_OTHER_VERSION_H_
#define HOTBED_SERVER_SHARD_LOG_OTHER_VERSION_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace hotbed {

// FailedPrecondition, naming both versions. `intact`: the checksum holds where this version keeps
// its own; where it does not, the number may be damaged as well.
inline absl::Status OtherVersion(absl::string_view file, int64_t version, int64_t ours,
                                 bool intact) {
  return absl::FailedPreconditionError(
      absl::StrCat(file, " has format version ", version, ", this program reads version ", ours,
                   " only: start the version of Hotbed that wrote it",
                   intact ? "" : "; where there is none, it is damaged"));
}

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_LOG_OTHER_VERSION_H_
