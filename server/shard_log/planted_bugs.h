// Deliberate bugs, which prove that the kill checker can fail. They are compiled only into the
// server of tests/fault (planted_bugs.cc there), and chosen at run time by the environment variable
// HOTBED_PLANTED_BUG. In every other program PlantedBug is constexpr false and its branches vanish.
//
// clang-format off
//   name                        what goes wrong                                              where
//   ack_before_append           completions run before the system has the record             log
//   forget_sessions_on_restart  recovery rebuilds the rows, not the sessions' sequences      shard
//   last_part_of_group_skipped  recovery leaves out the last part of each record group       log
//   row_lsn_guard_off           replay applies a record to rows that hold it already         shard
//   promise_not_persisted       promises are kept in memory only                             log
//   missing_passes_for_new      a start compares no file with MARKS                          host
//   spill_ahead_of_log          spilled rows claim records that the log does not hold yet    shard
// clang-format on
#ifndef HOTBED_SERVER_SHARD_LOG_PLANTED_BUGS_H_
#define HOTBED_SERVER_SHARD_LOG_PLANTED_BUGS_H_

#include <memory>

#include "common/files/file_system.h"

namespace hotbed {

#ifdef HOTBED_PLANTED_BUGS
// Whether this process has the bug `name`. Thread-safe; cheap enough for one call per push.
bool PlantedBug(const char* name);
// A file that keeps appended bytes in memory and writes them later, so that kill -9 takes
// acknowledged records.
std::unique_ptr<WritableFile> MakeLateFile(std::unique_ptr<WritableFile> file);
#else
constexpr bool PlantedBug(const char*) { return false; }
inline std::unique_ptr<WritableFile> MakeLateFile(std::unique_ptr<WritableFile> file) {
  return file;
}
#endif

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_LOG_PLANTED_BUGS_H_
