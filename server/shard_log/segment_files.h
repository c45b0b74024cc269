// The segment files of a log's directory, and where the records of each may end at most.
#ifndef HOTBED_SERVER_SHARD_LOG_SEGMENT_FILES_H_
#define HOTBED_SERVER_SHARD_LOG_SEGMENT_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/files/file_system.h"

namespace hotbed {

struct SegmentFile {
  uint64_t sequence = 0;
  std::string path;
  // Where the file ends, or its records, if the header of the next segment says so: a reused file
  // is longer than its records.
  uint64_t bytes = 0;
  // The file was an older segment, and nothing says where the records of this one end: bytes of the
  // older one may follow them, or be all there is.
  bool may_have_old_bytes = false;
};

// Oldest first. A header that cannot be read is no error here.
absl::StatusOr<std::vector<SegmentFile>> ListSegmentFiles(const std::string& dir,
                                                          FileSystem* files);

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_LOG_SEGMENT_FILES_H_
