#include "planner/coordinator/membership/asked_cuts.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/coordinator/membership/replica_placement.h"

namespace hotbed {
namespace {

constexpr uint32_t kShardsOfTableMax = 1u << 16;  // of a table that was cut

}  // namespace

absl::Status AskedCuts::MayAsk(uint64_t packed) const {
  if (asked_.contains(packed)) {
    return absl::AlreadyExistsError("its cut is asked for already; wait for it");
  }
  if (asked_.size() >= kAskedMax) {
    return absl::ResourceExhaustedError(absl::StrCat(
        asked_.size(), " cuts are asked for, the limit is ", kAskedMax, "; wait for them"));
  }
  return absl::OkStatus();
}

absl::Status AskedCuts::Ask(int64_t now_ns, v1::ShardCut cut) {
  const uint64_t packed = cut.shard();
  if (absl::Status may = MayAsk(packed); !may.ok()) return may;
  ++version_;
  number_ = std::max(number_, cut.number());
  asked_[packed] = {std::move(cut), now_ns};
  return absl::OkStatus();
}

bool AskedCuts::IsAsked(const v1::ShardCut& cut) const {
  const auto it = asked_.find(cut.shard());
  return it != asked_.end() && it->second.cut.number() == cut.number();
}

void AskedCuts::AskAgain(const v1::ShardCut& cut, int64_t unix_ms) {
  if (!IsAsked(cut)) return;
  number_ = NextNumber(unix_ms);
  asked_[cut.shard()].cut.set_number(number_);
  ++version_;
}

void AskedCuts::End(const v1::ShardCut& cut) {
  if (!IsAsked(cut)) return;
  asked_.erase(cut.shard());
  ++version_;
}

std::vector<v1::ShardCut> AskedCuts::Tick(int64_t now_ns, const ClusterState& state) {
  std::vector<v1::ShardCut> given_up;
  const size_t ended = std::erase_if(asked_, [&](const auto& entry) {
    if (state.FindVisibleShard(entry.first) == nullptr) return true;
    if (now_ns - entry.second.since_ns <= kKeptNs) return false;
    given_up.push_back(entry.second.cut);
    return true;
  });
  if (ended > 0) ++version_;
  return given_up;
}

void AskedCuts::AddFor(const ClusterState& state, ServerId server,
                       v1::HeartbeatReply* reply) const {
  for (const auto& [packed, asked] : asked_) {
    const ShardRecord* const record = state.FindVisibleShard(packed);
    if (record != nullptr && ContainsServer(record->members, server))
      *reply->add_cuts() = asked.cut;
  }
}

absl::StatusOr<CutPlan> PlanCut(const ClusterState& state, uint64_t packed, uint64_t at) {
  const ShardRecord* const record = state.FindVisibleShard(packed);
  if (record == nullptr) {
    return absl::NotFoundError(absl::StrCat(ShardId::FromPacked(packed).ToString(),
                                            " does not exist: 'hotbed shard list' names them"));
  }
  const v1::TableSpec& table = state.tables().at(record->shard.table);
  const std::string name = absl::StrCat("shard ", state.ShardName(packed));
  const char* const unit = table.hashed() ? "bucket" : "row";
  const ShardRange& range = record->range;
  if (range.limit - range.first < 2) {
    return absl::FailedPreconditionError(
        absl::StrCat(name, " is a single ", unit, " and cannot be cut"));
  }
  if (table.column_slices() > 1) {
    return absl::FailedPreconditionError(
        absl::StrCat(name, ": its table is cut into ", table.column_slices(),
                     " column slices, and the shards of such a table cannot be cut"));
  }
  CutPlan plan;
  plan.at = at == 0 ? range.first + (range.limit - range.first) / 2 : at;
  if (plan.at <= range.first || plan.at >= range.limit) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " cannot be cut at ", unit, " ", plan.at, "; allowed: ", range.first + 1,
                     " to ", range.limit - 1, ", the first ", unit, " of the new shard"));
  }
  const std::vector<const ShardRecord*> shards = state.ShardsOfTable(record->shard.table);
  if (shards.size() >= kShardsOfTableMax) {
    return absl::FailedPreconditionError(absl::StrCat(name, ": its table has ", shards.size(),
                                                      " shards, the limit is ", kShardsOfTableMax));
  }
  plan.new_shard.table = record->shard.table;
  for (const ShardRecord* other : shards) {
    plan.new_shard.index = std::max(plan.new_shard.index, other->shard.index + 1);
  }
  if (!record->active) {
    return absl::FailedPreconditionError(absl::StrCat(
        name, " is not served now (epoch ", record->epoch, " is not active); try again later"));
  }
  if (!record->passed_over.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        name, ": a server may hold more of it than its members; 'hotbed shard choose' decides"));
  }
  return plan;
}

std::vector<v1::CutShardRequest> LargeShards(const ClusterState& state, const Leases& leases,
                                             uint64_t bytes_max) {
  ShardBytes bytes(&leases);
  std::vector<std::pair<uint64_t, uint64_t>> large;  // bytes and packed shard
  for (const auto& [packed, record] : state.shards()) {
    const auto table = state.tables().find(record.shard.table);
    if (table == state.tables().end() || !table->second.hashed()) continue;
    const uint64_t taken = bytes.Of(record);
    if (taken > bytes_max && state.FindGoal(packed) == nullptr && PlanCut(state, packed, 0).ok()) {
      large.emplace_back(taken, packed);
    }
  }
  std::sort(large.rbegin(), large.rend());
  std::vector<v1::CutShardRequest> cuts;
  for (const auto& [taken, packed] : large) {
    v1::CutShardRequest& cut = cuts.emplace_back();
    cut.set_shard(packed);
    cut.set_reason(absl::StrCat(taken >> 20, " MiB, above ", bytes_max >> 20, " MiB"));
  }
  return cuts;
}

}  // namespace hotbed
