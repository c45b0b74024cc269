#include "planner/coordinator/membership/asked_cuts.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "common/tables/session_of_lane.h"
#include "common/tables/shard_lanes.h"
#include "common/tables/touch_filter_shape.h"
#include "planner/coordinator/membership/replica_placement.h"
#include "proto/convert.h"

namespace hotbed {
namespace {

constexpr uint32_t kShardsOfTableMax = 1u << 16;  // of a table that was cut

}  // namespace

absl::Status AskedCuts::MayAsk(uint64_t packed) const {
  const bool merges = std::any_of(asked_.begin(), asked_.end(), [packed](const auto& asked) {
    return asked.second.cut.with() == packed;
  });
  if (merges || asked_.contains(packed)) {
    return absl::AlreadyExistsError("its cut or merge is asked for already; wait for it");
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
  if (cut.with() != 0) {
    if (absl::Status may = MayAsk(cut.with()); !may.ok()) return may;
  }
  ++version_;
  number_ = std::max(number_, cut.number());
  asked_[packed] = {std::move(cut), now_ns};
  return absl::OkStatus();
}

bool AskedCuts::IsAsked(const v1::ShardCut& cut) const {
  const auto it = asked_.find(cut.shard());
  return it != asked_.end() && it->second.cut.number() == cut.number();
}

void AskedCuts::OnLoaded(int64_t now_ns, int64_t unix_ms, const ClusterState& state) {
  for (const auto& [packed, cut] : state.cuts()) {
    number_ = std::max(number_, cut.number());
    if (asked_.contains(packed)) continue;
    v1::ShardCut again = cut;
    number_ = NextNumber(unix_ms);
    again.set_number(number_);
    asked_[packed] = {std::move(again), now_ns};
    ++version_;
  }
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
  if (table.vocabulary() != 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        name,
        ": its table is a vocabulary, which gives its numbers in one order and is one shard"));
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
    plan.new_shard.index = std::max(plan.new_shard.index, NumbersBelow(*other));
  }
  if (plan.new_shard.index >= kShardNumbersMax) {
    return absl::FailedPreconditionError(absl::StrCat(
        name, ": its table has used ", plan.new_shard.index, " numbers of shards, the limit"));
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

namespace {

std::string NamesOf(const ClusterState& state, const std::vector<Member>& members) {
  return absl::StrJoin(members, ", ", [&](std::string* out, const Member& member) {
    absl::StrAppend(out, state.ServerName(member.server));
  });
}

// Why the table's shards cannot be merged; empty: they can.
absl::string_view WhyNoMerges(const v1::TableSpec& table) {
  if (table.column_slices() > 1) return "is cut into column slices";
  if (table.consistency() != v1::CONSISTENCY_ASYNC) return "is trained in synchronous steps";
  if (table.data_parallel()) return "has a read replica on every server";
  return "";
}

// Whether the shard may be merged, apart from the other one.
absl::Status MayBeMerged(const ClusterState& state, const ShardRecord& record) {
  const std::string name = absl::StrCat("shard ", state.ShardName(record.shard.packed()));
  if (!record.active) {
    return absl::FailedPreconditionError(absl::StrCat(
        name, " is not served now (epoch ", record.epoch, " is not active); try again later"));
  }
  if (!record.passed_over.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        name, ": a server may hold more of it than its members; 'hotbed shard choose' decides"));
  }
  if (state.FindGoal(record.shard.packed()) != nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(name, " is on the move; 'hotbed shard moves' shows it. Try again later"));
  }
  return absl::OkStatus();
}

bool SameMembers(const ShardRecord& a, const ShardRecord& b) {
  return a.members.size() == b.members.size() &&
         std::all_of(a.members.begin(), a.members.end(),
                     [&](const Member& member) { return Contains(b.members, member); });
}

// Both have to be on the same servers; the words name a move that helps.
absl::Status SamePlaces(const ClusterState& state, const ShardRecord& lower,
                        const ShardRecord& upper) {
  const std::string names[] = {state.ShardName(lower.shard.packed()),
                               state.ShardName(upper.shard.packed())};
  if (!SameMembers(lower, upper)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "shard ", names[0], " is on ", NamesOf(state, lower.members), ", and ", names[1], " on ",
        NamesOf(state, upper.members), ". Move one first: 'hotbed shard move ", names[1], " --to ",
        state.ServerName(lower.primary.server), "', and likewise its backups"));
  }
  if (!(lower.primary == upper.primary)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the primary of shard ", names[0], " is ", state.ServerName(lower.primary.server),
        ", and that of ", names[1], " is ", state.ServerName(upper.primary.server),
        ". Change one first: 'hotbed shard move ", names[1], " --to ",
        state.ServerName(lower.primary.server), "'"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<MergePlan> PlanMerge(const ClusterState& state, uint64_t packed, uint64_t with) {
  MergePlan plan;
  plan.lower = state.FindVisibleShard(packed);
  plan.upper = state.FindVisibleShard(with);
  if (plan.lower == nullptr || plan.upper == nullptr) {
    return absl::NotFoundError(
        absl::StrCat(ShardId::FromPacked(plan.lower == nullptr ? packed : with).ToString(),
                     " does not exist: 'hotbed shard list' names them"));
  }
  if (plan.upper->range.first < plan.lower->range.first) std::swap(plan.lower, plan.upper);
  const ShardRecord& lower = *plan.lower;
  const ShardRecord& upper = *plan.upper;
  const std::string names = absl::StrCat("shards ", state.ShardName(lower.shard.packed()), " and ",
                                         state.ShardName(upper.shard.packed()));
  if (lower.shard.table != upper.shard.table || lower.range.limit != upper.range.first) {
    return absl::FailedPreconditionError(
        absl::StrCat(names, " are no neighbours in one table and cannot be merged"));
  }
  if (const absl::string_view why = WhyNoMerges(state.tables().at(lower.shard.table));
      !why.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(names, ": their table ", why, ", and such shards cannot be merged"));
  }
  HOTBED_RETURN_IF_ERROR(MayBeMerged(state, lower));
  HOTBED_RETURN_IF_ERROR(MayBeMerged(state, upper));
  HOTBED_RETURN_IF_ERROR(SamePlaces(state, lower, upper));
  HOTBED_ASSIGN_OR_RETURN(const TableSpec spec, FromProto(state.tables().at(lower.shard.table)));
  const uint64_t filter_bytes =
      TouchFilterShapeOf(spec).Bytes(upper.range.limit - lower.range.first);
  if (filter_bytes > kFilterShardBytesMax) {
    return absl::FailedPreconditionError(
        absl::StrCat(names, " would have a filter of touches of ", filter_bytes,
                     " bytes together, the limit is ", kFilterShardBytesMax));
  }
  const size_t lanes = lower.Lanes().size() + upper.Lanes().size();
  if (lanes > kLanesMax) {
    return absl::FailedPreconditionError(
        absl::StrCat(names, " would be merged from ", lanes, " parts, the limit is ", kLanesMax));
  }
  if (std::max(NumbersBelow(lower), NumbersBelow(upper)) + lanes > kShardNumbersMax) {
    return absl::FailedPreconditionError(absl::StrCat(
        names, ": their table has used its ", kShardNumbersMax, " numbers of shards and lanes"));
  }
  if (state.counters().sessions > kSessionMax) {
    return absl::FailedPreconditionError(
        absl::StrCat(names, ": the sessions of this cluster are numbered up to ",
                     state.counters().sessions, ", as an earlier version did after a rebuild of ",
                     "the metadata; merged shards need them to be at most ", kSessionMax));
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
