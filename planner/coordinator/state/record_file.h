// Records of a metadata store in a file, and many records into a store.
//
// Format, little-endian: 8 bytes of magic, u32 version, u64 count, count x (u32 length and bytes of
// key, the same of value), u32 CRC-32C of all before.
#ifndef HOTBED_PLANNER_COORDINATOR_STATE_RECORD_FILE_H_
#define HOTBED_PLANNER_COORDINATOR_STATE_RECORD_FILE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "planner/coordinator/store/meta_store.h"

namespace hotbed {

std::string SerializeRecords(absl::string_view magic, const std::vector<KeyValue>& records);
// The records, without their revisions. `what` names the file in errors. DataLoss: damaged, or
// something else. FailedPrecondition: another version, or metadata of another format, both named.
absl::StatusOr<std::vector<KeyValue>> ParseRecords(absl::string_view magic, absl::string_view what,
                                                   absl::string_view bytes);

// Carries out any number of operations in transactions, each under the compares. False: one of them
// did not hold, and the rest was not written.
absl::StatusOr<bool> WriteInBatches(const std::vector<Compare>& compares,
                                    const std::vector<Op>& ops, MetaStore* store);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_STATE_RECORD_FILE_H_
