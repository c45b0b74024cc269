#include "planner/coordinator/membership/membership.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "planner/coordinator/membership/membership_batch.h"
#include "planner/coordinator/state/keys.h"

namespace hotbed {
namespace {

// Enough for a drain of thousands of shards, and little for a thread that others wait for.
constexpr size_t kLooksPerBatch = 4096;
constexpr size_t kLooksPerTick = 512;
constexpr size_t kGatedPerTick = 64;
constexpr size_t kGatedPerCopyDone = 4;
// A read copy has no end that anyone reports: it is taken for begun so long, and then for under way
// while its source says so.
constexpr int64_t kReaderBeginsNs = 1'000'000'000;

constexpr size_t kSaidBytesMax = 300;  // by a server of a copy, in an event

bool IsReader(const v1::ShardRecord& record, const v1::Member& learner) {
  const auto& readers = record.readers();
  return std::count(readers.begin(), readers.end(), learner.server()) > 0;
}

}  // namespace

void Membership::OnLoaded(const ClusterState& state) {
  urgent_.clear();
  look_.clear();
  outs_.clear();
  waiting_.clear();
  gated_.clear();
  gate_why_.clear();
  with_learners_.clear();
  for (const auto& [packed, record] : state.shards()) {
    if (!record.learners().empty()) with_learners_.insert(packed);
    Mark(state, record);
  }
}

void Membership::Mark(const ClusterState& state, const v1::ShardRecord& record) {
  const bool gone =
      std::any_of(record.members().begin(), record.members().end(), [&](const v1::Member& member) {
        return leases_->LiveIncarnation(member.server()) != member.incarnation();
      });
  (gone ? urgent_ : look_).insert(record.shard());
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
      for (const v1::ShardRecord* record : state.ShardsOfTable(table)) Mark(state, *record);
    } else if (absl::ConsumePrefix(&rest, keys::kServers)) {
      ServerId server = 0;
      if (absl::SimpleAtoi(rest, &server)) OnServerChanged(state, server);
    } else if (op.key == keys::kMovesKey) {
      ++limits_version_;
      MarkGated(gated_.size());
    }
  }
  CountSenders(now_ns, state);
}

void Membership::Forget(uint64_t packed) {
  with_learners_.erase(packed);
  learner_since_ns_.erase(packed);
  joins_.erase(packed);
  outs_.erase(packed);
  lost_.erase(packed);
  backoff_.Forget(packed);
  failing_since_ns_.erase(packed);
  look_.insert(packed);  // it drops the shard from what waits
}

void Membership::NoteRecord(int64_t now_ns, const v1::ShardRecord& record) {
  const uint64_t packed = record.shard();
  if (record.learners().empty()) {
    if (with_learners_.erase(packed) > 0) MarkGated(kGatedPerCopyDone);
    learner_since_ns_.erase(packed);
  } else {
    with_learners_.insert(packed);
    learner_since_ns_.insert_or_assign(packed, now_ns);
  }
  if (auto joins = joins_.find(packed); joins != joins_.end()) {
    if (joins->second.epoch < record.epoch()) joins_.erase(joins);
  }
  if (auto outs = outs_.find(packed); outs != outs_.end()) {
    if (outs->second.epoch < record.epoch()) outs_.erase(outs);
  }
  if (!record.active()) return;
  if (auto failing = failing_since_ns_.find(packed); failing != failing_since_ns_.end()) {
    fail_over_ns_.push_back(now_ns - failing->second);
    failing_since_ns_.erase(failing);
  }
}

void Membership::OnServerChanged(const ClusterState& state, ServerId server) {
  for (const uint64_t packed : state.ShardsOfServer(server)) {
    Mark(state, state.shards().at(packed));
  }
  // It may be a place for a copy.
  MarkWaiting();
  for (const auto& [id, table] : state.tables()) {
    if (!table.data_parallel()) continue;
    for (const v1::ShardRecord* record : state.ShardsOfTable(id)) look_.insert(record->shard());
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
  for (const v1::JoinReady& ready : request.join_ready()) {
    if (!state.shards().contains(ready.shard())) continue;
    Joins& joins = joins_[ready.shard()];
    if (joins.epoch > ready.epoch()) continue;
    if (joins.epoch < ready.epoch()) joins = Joins();
    joins.epoch = ready.epoch();
    joins.primary.set_server(request.server());
    joins.primary.set_incarnation(request.incarnation());
    const bool known = std::any_of(joins.learners.begin(), joins.learners.end(),
                                   [&](const v1::Member& m) { return Same(m, ready.member()); });
    if (!known) joins.learners.push_back(ready.member());
    look_.insert(ready.shard());
  }
  v1::Member self;
  self.set_server(request.server());
  self.set_incarnation(request.incarnation());
  const auto find = [&](uint64_t packed, Epoch epoch) -> const v1::ShardRecord* {
    auto record = state.shards().find(packed);
    const bool counts = record != state.shards().end() && record->second.epoch() == epoch;
    return counts ? &record->second : nullptr;
  };
  for (const v1::LostCopy& lost : request.copies_lost()) {
    const v1::ShardRecord* const record = find(lost.shard(), lost.epoch());
    if (record == nullptr) continue;
    NoteOut(*record, {self, MemberOut::kReplicaLost, lost.why().substr(0, kSaidBytesMax)});
  }
  for (const v1::SilentMember& silent : request.silent()) {
    const v1::ShardRecord* const record = find(silent.shard(), silent.epoch());
    if (record == nullptr || !Same(record->primary(), self)) continue;
    NoteOut(*record, {silent.member(), MemberOut::kSilent, ""});
  }
}

bool Membership::Joined(const v1::ShardRecord& record, const v1::Member& learner) const {
  auto joins = joins_.find(record.shard());
  // Only the primary of this epoch can tell what its acknowledging set is.
  return joins != joins_.end() && joins->second.epoch == record.epoch() &&
         Same(joins->second.primary, record.primary()) &&
         std::any_of(joins->second.learners.begin(), joins->second.learners.end(),
                     [&](const v1::Member& m) { return Same(m, learner); });
}

void Membership::Tick(int64_t now_ns, const ClusterState& state) {
  CountSenders(now_ns, state);
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
  for (const uint64_t packed : with_learners_) {
    const v1::ShardRecord& record = state.shards().at(packed);
    for (const v1::Member& learner : record.learners()) {
      if (!Copying(now_ns, record, learner)) continue;
      ++batch.copies_from[record.primary().server()];
      ++batch.copies_to[learner.server()];
      batch.bytes_to[learner.server()] += BytesLeft(record, learner);
    }
  }
  absl::btree_set<uint64_t>& from = urgent ? urgent_ : look_;
  for (size_t n = 0; n < kLooksPerBatch && !from.empty() && batch.HasRoom(); ++n) {
    const uint64_t packed = *from.begin();
    from.erase(from.begin());
    LookAt(packed, &batch);
  }
  return batch.Finish();
}

uint64_t Membership::BytesLeft(const v1::ShardRecord& record, const v1::Member& learner) const {
  if (Joined(record, learner)) return 0;
  const Leases::Lease* const source = leases_->Find(record.primary().server());
  if (source == nullptr) return 0;
  for (const v1::CopyProgress& copy : source->copies) {
    if (copy.shard() != record.shard() || !Same(copy.to(), learner)) continue;
    return copy.bytes_total() - std::min(copy.bytes_total(), copy.bytes_copied());
  }
  for (const v1::ShardLoad& load : source->load.shards()) {
    if (load.shard() == record.shard()) return load.bytes();
  }
  return 0;
}

bool Membership::Copying(int64_t now_ns, const v1::ShardRecord& record,
                         const v1::Member& learner) const {
  if (!IsReader(record, learner)) return true;
  auto since = learner_since_ns_.find(record.shard());
  if (since != learner_since_ns_.end() && now_ns - since->second < kReaderBeginsNs) return true;
  const Leases::Lease* const source = leases_->Find(record.primary().server());
  return source != nullptr && std::any_of(source->copies.begin(), source->copies.end(),
                                          [&](const v1::CopyProgress& copy) {
                                            return copy.shard() == record.shard() &&
                                                   Same(copy.to(), learner);
                                          });
}

void Membership::CountSenders(int64_t now_ns, const ClusterState& state) {
  absl::btree_set<ServerId> senders;
  for (const uint64_t packed : with_learners_) {
    const v1::ShardRecord& record = state.shards().at(packed);
    if (senders.contains(record.primary().server())) continue;
    for (const v1::Member& learner : record.learners()) {
      if (Copying(now_ns, record, learner)) senders.insert(record.primary().server());
    }
  }
  if (senders == senders_) return;
  senders_ = std::move(senders);
  ++limits_version_;
}

v1::CopyLimits Membership::LimitsOf(const ClusterState& state) const {
  v1::CopyLimits limits = state.move_control().limits();
  if (limits.bytes_per_s() == 0) return limits;
  const uint64_t senders = std::max<uint64_t>(1, senders_.size());
  limits.set_bytes_per_s(std::max<uint64_t>(1, limits.bytes_per_s() / senders));
  return limits;
}

std::string Membership::WaitsFor(uint64_t packed) const {
  if (auto why = gate_why_.find(packed); why != gate_why_.end()) return why->second;
  auto waiting = waiting_.find(packed);
  return waiting == waiting_.end() ? "" : waiting->second;
}

}  // namespace hotbed
