#include "planner/coordinator/membership/membership_batch.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "planner/coordinator/state/keys.h"

namespace hotbed {
namespace {

// A record, a goal, and at most two new events.
constexpr size_t kOpsPerShard = 2 + 2 * kOpsPerEvent;
constexpr size_t kNamesBytesMax =
    300;  // of shard names in one event; further shards are only counted

}  // namespace

bool MembershipBatch::HasRoom() const {
  return txn_.ops().size() + groups_.size() * kOpsPerEvent + kOpsPerShard <= kRecordsPerTxn;
}

void MembershipBatch::PutRecord(const ShardRecord& record) {
  txn_.Put(keys::Shard(record.shard), StoredRecord(record));
}

void MembershipBatch::PutGoal(const v1::ShardGoal& goal) {
  txn_.Put(keys::Goal(ShardId::FromPacked(goal.shard())), goal.SerializeAsString());
  const ShardRecord& record = state_->shards().at(goal.shard());
  Promised();
  for (const ServerId server : TargetsOf(goal, record)) ++(*promised_)[server];
}

void MembershipBatch::DeleteGoal(uint64_t packed) {
  txn_.Delete(keys::Goal(ShardId::FromPacked(packed)));
}

void MembershipBatch::Note(const std::string& kind, const std::string& reason, uint64_t packed) {
  Group& group = groups_[{kind, reason}];
  if (group.shards++ == 0) group.first = packed;
  if (group.names.size() > kNamesBytesMax) return;
  absl::StrAppend(&group.names, group.names.empty() ? "" : " ", state_->ShardName(packed));
}

std::optional<Transaction> MembershipBatch::Finish() {
  if (txn_.empty() && groups_.empty()) return std::nullopt;
  HOTBED_CHECK(txn_.ops().size() + groups_.size() * kOpsPerEvent <= kRecordsPerTxn);
  for (const auto& [key, group] : groups_) {
    std::string text = group.names;
    if (group.names.size() > kNamesBytesMax) text += " ...";
    if (group.shards > 1) absl::StrAppend(&text, " (", group.shards, " shards)");
    events_.Add(key.first, absl::StrCat(text, ": ", key.second),
                group.shards == 1 ? group.first : 0, 0, &txn_);
  }
  return std::move(txn_);
}

const absl::flat_hash_map<ServerId, uint64_t>& MembershipBatch::Promised() {
  if (promised_.has_value()) return *promised_;
  promised_.emplace();
  for (const auto& [packed, goal] : state_->goals()) {
    auto record = state_->shards().find(packed);
    if (record == state_->shards().end()) continue;
    for (const ServerId server : TargetsOf(goal, record->second)) ++(*promised_)[server];
  }
  return *promised_;
}

absl::flat_hash_set<ServerId> MembershipBatch::BusyTargets(size_t transfers_max) const {
  absl::flat_hash_set<ServerId> busy;
  for (const auto& [server, transfers] : transfers_to) {
    if (transfers >= transfers_max) busy.insert(server);
  }
  return busy;
}

std::vector<ServerId> MemberServers(const ShardRecord& record) {
  std::vector<ServerId> servers = {record.primary.server};
  for (const Member& m : record.members) {
    if (m.server != record.primary.server) servers.push_back(m.server);
  }
  return servers;
}

v1::ShardGoal MakeGoal(ShardId shard, const std::vector<ServerId>& servers,
                       const std::string& reason, uint64_t number, int64_t unix_ms) {
  v1::ShardGoal goal;
  goal.set_shard(shard.packed());
  goal.mutable_servers()->Assign(servers.begin(), servers.end());
  goal.set_reason(reason);
  goal.set_number(number);
  goal.set_since_unix_ms(unix_ms);
  return goal;
}

std::vector<ServerId> TargetsOf(const v1::ShardGoal& goal, const ShardRecord& record) {
  std::vector<ServerId> targets;
  for (const ServerId server : goal.servers()) {
    if (!ContainsServer(record.members, server)) targets.push_back(server);
  }
  return targets;
}

std::vector<ServerId> SourcesOf(const v1::ShardGoal& goal, const ShardRecord& record) {
  const std::vector<ServerId> wanted(goal.servers().begin(), goal.servers().end());
  std::vector<ServerId> sources;
  for (const Member& member : record.members) {
    if (!Contains(wanted, member.server)) sources.push_back(member.server);
  }
  return sources;
}

}  // namespace hotbed
