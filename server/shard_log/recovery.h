// Reads the chain of segments that an earlier process left: cuts its torn end, finds damage, and
// rebuilds the table of contents.
//
// Torn or damaged: if the machine kept running (kill -9), the operating system has every byte that
// was written, so only a record that the end of the newest file cuts short is torn. After a reboot,
// bytes that were not known to be synced when the last whole record was written may be lost or
// garbled, so the chain ends at the first record among them that is not whole. Any other record
// that is not whole is damage: it is reported and never repaired, since a guess could lose updates.
//
// A reused file (segment_format.h) has bytes of an older segment behind its records. The header of
// the next segment says where they end, and what follows is not looked at. In the newest segment
// nothing was acknowledged behind the mark, so the log ends at the first bytes there that are not a
// whole record of this segment; if such a record follows, that is damage.
//
// The files that must be there are known too: the first segment and the end of the log from the
// marks, and the end of every other segment from the header of the next. A missing segment, and
// whole records that are missing at the end of one, are damage as well.
#ifndef HOTBED_SERVER_SHARD_LOG_RECOVERY_H_
#define HOTBED_SERVER_SHARD_LOG_RECOVERY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/files/file_system.h"
#include "server/shard_log/segment_chain.h"
#include "server/shard_log/shard_log.h"

namespace hotbed {

// The record at `at` replaced all earlier records of its shard from `lsn` on.
struct LogCut {
  LogPosition at;
  Lsn lsn = 0;
};
using LogCuts = absl::flat_hash_map<ShardId, std::vector<LogCut>>;

struct RecoveredLog {
  SegmentChain chain;
  std::vector<ShardLog::Damage> damage;
  LogCuts cuts;
  uint64_t torn_bytes = 0;
  std::string torn_message;
  uint64_t last_sequence = 0;  // highest of the segments found, cut ones included; 0: none
  // Where the newest segment of the chain ends, or must end if its end is missing; 0: unknown.
  uint64_t end_bytes = 0;
  uint32_t end_crc = 0;
};

// Scans and cuts. After it returns OK, everything it found is synced. FailedPrecondition: a segment
// of another version.
absl::StatusOr<RecoveredLog> RecoverLog(const ShardLogOptions& options, FileSystem* files);

// Visits the whole records of `chain` in file order and skips damage.
absl::Status ReplayChain(const SegmentChain& chain, FileSystem* files,
                         const ShardLog::Visitor& visitor);

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_LOG_RECOVERY_H_
