// Bugs on purpose, to prove that the kill checker can fail (tests/fault/planted_bugs_test).
// Compiled only with -DHOTBED_PLANTED_BUGS=ON and chosen at run time by the environment variable
// HOTBED_PLANTED_BUG; in every other build PlantedBug is constexpr false and its branches vanish.
//
//   ack_before_append          completions run before the record is handed to the operating system
//   (planted in the log) forget_sessions_on_restart recovery rebuilds the rows, but not the
//   sessions' last sequences (planted in the shard) row_lsn_guard_off          replay applies a
//   record also to rows whose stored LSN has it already (planted in the shard) spill_ahead_of_log
//   rows are applied, written back and flushed to an SST before their record is appended
//                              (planted in the shard)
#ifndef HOTBED_SERVER_SHARD_LOG_PLANTED_BUGS_H_
#define HOTBED_SERVER_SHARD_LOG_PLANTED_BUGS_H_

#include <memory>

#include "common/file_system.h"

namespace hotbed {

#ifdef HOTBED_PLANTED_BUGS
// Whether this process was asked for the bug `name`. Thread-safe, cheap enough for once a push.
bool PlantedBug(const char* name);
// A file that keeps what is appended in memory and writes it later: what kill -9 then takes was
// acknowledged.
std::unique_ptr<WritableFile> MakeLateFile(std::unique_ptr<WritableFile> file);
#else
constexpr bool PlantedBug(const char*) { return false; }
inline std::unique_ptr<WritableFile> MakeLateFile(std::unique_ptr<WritableFile> file) {
  return file;
}
#endif

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_LOG_PLANTED_BUGS_H_
