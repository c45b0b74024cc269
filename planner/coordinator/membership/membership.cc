#include "planner/coordinator/membership/membership.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "common/check.h"
#include "planner/coordinator/state/keys.h"

namespace hotbed {
namespace {

// Enough for a drain of thousands of shards, and little work for a thread that others wait for.
constexpr size_t kLooksPerBatch = 4096;
constexpr size_t kLooksPerTick = 512;
constexpr size_t kGatedPerTick = 64;
constexpr size_t kGatedPerTransferDone = 4;

}  // namespace

void Membership::OnLoaded(const ClusterState& state) {
  urgent_.clear();
  look_.clear();
  reports_.ForgetLeaving();
  waiting_.clear();
  gated_.clear();
  gate_why_.clear();
  transfers_.OnLoaded(state);
  for (const auto& [packed, record] : state.shards()) Mark(state, record);
}

void Membership::Mark(const ClusterState& state, const ShardRecord& record) {
  const bool gone =
      std::any_of(record.members.begin(), record.members.end(), [&](const Member& member) {
        return leases_->LiveIncarnation(member.server) != member.incarnation;
      });
  (gone ? urgent_ : look_).insert(record.shard.packed());
}

void Membership::OnCommitted(int64_t now_ns, const ClusterState& state,
                             const std::vector<Op>& ops) {
  for (const Op& op : ops) {
    absl::string_view rest = op.key;
    ShardId shard;
    if (absl::ConsumePrefix(&rest, keys::kShards)) {
      if (!keys::ParseShard(rest, &shard)) continue;
      auto record = state.shards().find(shard.packed());
      if (record == state.shards().end()) {
        Forget(shard.packed());
        continue;
      }
      NoteRecord(now_ns, record->second);
      Mark(state, record->second);
    } else if (absl::ConsumePrefix(&rest, keys::kGoals)) {
      if (keys::ParseShard(rest, &shard)) look_.insert(shard.packed());
    } else if (absl::ConsumePrefix(&rest, keys::kTables)) {
      TableId table = 0;
      if (!absl::SimpleAtoi(rest, &table)) continue;
      for (const ShardRecord* record : state.ShardsOfTable(table)) Mark(state, *record);
    } else if (absl::ConsumePrefix(&rest, keys::kServers)) {
      ServerId server = 0;
      if (absl::SimpleAtoi(rest, &server)) OnServerChanged(state, server);
    } else if (op.key == keys::kMovesKey) {
      transfers_.OnLimits();
      MarkGated(gated_.size());
    }
  }
  transfers_.CountSenders(now_ns, state);
}

void Membership::Forget(uint64_t packed) {
  transfers_.Forget(packed);
  reports_.Forget(packed);
  last_holder_.erase(packed);
  backoff_.Forget(packed);
  failing_since_ns_.erase(packed);
  look_.insert(packed);  // LookAt drops the shard from those that wait
}

void Membership::NoteRecord(int64_t now_ns, const ShardRecord& record) {
  if (transfers_.OnRecord(now_ns, record)) MarkGated(kGatedPerTransferDone);
  reports_.OnRecord(record);
  if (!record.active) return;
  auto failing = failing_since_ns_.find(record.shard.packed());
  if (failing == failing_since_ns_.end()) return;
  fail_over_ns_.push_back(now_ns - failing->second);
  failing_since_ns_.erase(failing);
}

void Membership::OnServerChanged(const ClusterState& state, ServerId server) {
  for (const uint64_t packed : state.ShardsOfServer(server)) {
    Mark(state, state.shards().at(packed));
  }
  // The server may be a place for a replica.
  MarkWaiting();
  for (const auto& [id, table] : state.tables()) {
    if (!table.data_parallel()) continue;
    for (const ShardRecord* record : state.ShardsOfTable(id)) look_.insert(record->shard.packed());
  }
}

void Membership::MarkWaiting() {
  for (const auto& [packed, why] : waiting_) look_.insert(packed);
  MarkGated(gated_.size());
}

void Membership::MarkGated(size_t count) {
  for (const auto& [rank, packed] : gated_) {
    if (count-- == 0) return;
    look_.insert(packed);
  }
}

void Membership::OnHeartbeat(const ClusterState& state, const v1::HeartbeatRequest& request) {
  const MemberReports::Changed changed = reports_.OnHeartbeat(state, request);
  look_.insert(changed.joins.begin(), changed.joins.end());
  urgent_.insert(changed.leaving.begin(), changed.leaving.end());
}

void Membership::Tick(int64_t now_ns, const ClusterState& state) {
  transfers_.CountSenders(now_ns, state);
  auto it = waiting_.lower_bound(next_waiting_);
  for (size_t n = 0; n < std::min(kLooksPerTick, waiting_.size()); ++n, ++it) {
    if (it == waiting_.end()) it = waiting_.begin();
    look_.insert(it->first);
  }
  next_waiting_ = it == waiting_.end() ? 0 : it->first;
  MarkGated(kGatedPerTick);
}

std::optional<Transaction> Membership::NextBatch(const ClusterState& state, int64_t now_ns,
                                                 int64_t unix_ms, bool urgent) {
  MembershipBatch batch(&state, now_ns, unix_ms);
  transfers_.AddTo(&batch);
  absl::btree_set<uint64_t>& from = urgent ? urgent_ : look_;
  for (size_t n = 0; n < kLooksPerBatch && !from.empty() && batch.HasRoom(); ++n) {
    const uint64_t packed = *from.begin();
    from.erase(from.begin());
    LookAt(packed, &batch);
    HOTBED_DCHECK(gated_.size() == gate_why_.size()) << packed;
  }
  return batch.Finish();
}

std::string Membership::WaitsFor(uint64_t packed) const {
  if (auto why = gate_why_.find(packed); why != gate_why_.end()) return why->second;
  auto waiting = waiting_.find(packed);
  return waiting == waiting_.end() ? "" : waiting->second;
}

}  // namespace hotbed
