#include "planner/coordinator/state/metadata_backup.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "planner/coordinator/state/cluster_state.h"
#include "planner/coordinator/state/keys.h"
#include "planner/coordinator/state/record_file.h"

namespace hotbed {
namespace {

constexpr absl::string_view kMagic = "HOTBDMET";

bool IsRestored(const std::string& key) {
  for (const char* known :
       {keys::kClusterKey, keys::kGenerationKey, keys::kTableCounter, keys::kServerCounter,
        keys::kSessionCounter, keys::kMoveCounter, keys::kMovesKey, keys::kCheckpointScheduleKey}) {
    if (key == known) return true;
  }
  return absl::StartsWith(key, keys::kSessions) || absl::StartsWith(key, keys::kGroups) ||
         absl::StartsWith(key, keys::kDropped) || absl::StartsWith(key, keys::kEvents);
}

}  // namespace

std::string SerializeBackup(const std::vector<KeyValue>& records) {
  return SerializeRecords(kMagic, records);
}

absl::StatusOr<std::vector<KeyValue>> ParseBackup(absl::string_view bytes) {
  return ParseRecords(kMagic, "backup of metadata", bytes);
}

absl::StatusOr<bool> RestoreBackup(const std::vector<KeyValue>& records, MetaStore* store) {
  HOTBED_ASSIGN_OR_RETURN(const MetaStore::RangeResult there, store->Range(keys::kFormatKey, ""));
  if (!there.kvs.empty()) return false;
  ClusterState state;
  HOTBED_RETURN_IF_ERROR(state.Reset(records));
  // The numbers that the backup says were given out; a rebuild adds those that servers know.
  v1::GivenOut given = state.given_before();
  given.set_session(std::max<uint64_t>(1, state.counters().sessions));
  std::vector<Op> ops;
  for (const KeyValue& record : records) {
    if (IsRestored(record.key)) ops.push_back({Op::Kind::kPut, record.key, record.value});
  }
  ops.push_back({Op::Kind::kPut, keys::kGivenKey, given.SerializeAsString()});
  ops.push_back({Op::Kind::kPut, keys::kFormatKey, keys::kFormat});  // last: now it holds metadata
  // Another coordinator may have begun meanwhile: its metadata stay as they are.
  HOTBED_ASSIGN_OR_RETURN(const bool written, WriteInBatches({{keys::kFormatKey, 0}}, ops, store));
  if (!written) {
    return absl::AbortedError("the metadata store was written by another coordinator meanwhile");
  }
  return true;
}

}  // namespace hotbed
