// A backup of the metadata store: every record, in one file.
//
// Servers hold newer data than any backup, and know where shards lie. So a restore takes from the
// backup only the facts that servers do not know (names of sessions, groups of trainers, settings
// of moves, names of dropped tables, events), and leaves tables, servers and shards to a rebuild
// from the servers (operations/rebuild_operations.cc). An old backup is therefore as safe as a new
// one.
//
// Its form is that of state/record_file.h, with the magic "HOTBDMET".
#ifndef HOTBED_PLANNER_COORDINATOR_STATE_METADATA_BACKUP_H_
#define HOTBED_PLANNER_COORDINATOR_STATE_METADATA_BACKUP_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "planner/coordinator/store/meta_store.h"

namespace hotbed {

std::string SerializeBackup(const std::vector<KeyValue>& records);
// The records, without their revisions. DataLoss: damaged. FailedPrecondition: another version, or
// metadata of another format, both named.
absl::StatusOr<std::vector<KeyValue>> ParseBackup(absl::string_view bytes);

// Writes the part of a backup that servers do not know into a store that holds no metadata; false:
// it holds some, and nothing was written. A call that was cut short may be repeated.
absl::StatusOr<bool> RestoreBackup(const std::vector<KeyValue>& records, MetaStore* store);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_STATE_METADATA_BACKUP_H_
