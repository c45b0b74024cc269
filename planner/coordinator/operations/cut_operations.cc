#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "common/tables/shard_lanes.h"
#include "planner/coordinator/operations/operations.h"
#include "planner/coordinator/state/event_log.h"
#include "planner/coordinator/state/keys.h"
#include "proto/convert.h"

namespace hotbed {
namespace {

std::string CutText(const ClusterState& state, const v1::ShardCut& cut) {
  if (cut.with() == 0) return absl::StrCat(state.ShardName(cut.shard()), " at ", cut.at());
  return absl::StrCat(state.ShardName(cut.shard()), " with ", state.ShardName(cut.with()));
}

class CutShard {
 public:
  CutShard(v1::CutShardRequest request, const OperationContext& context)
      : request_(std::move(request)), context_(context) {}

  Next operator()(const ClusterState& state) {
    if (written_) {
      HOTBED_RETURN_IF_ERROR(Named(state, context_.cuts->Ask(context_.now_ns, reply_.cut())));
      return reply_;
    }
    if (request_.reason().size() > kReasonBytesMax) {
      return absl::InvalidArgumentError(absl::StrCat("the reason of a cut has ",
                                                     request_.reason().size(),
                                                     " bytes, allowed: ", kReasonBytesMax));
    }
    const std::string reason = request_.reason().empty() ? "asked for" : request_.reason();
    reply_.Clear();
    v1::ShardCut* const cut = reply_.mutable_cut();
    cut->set_number(context_.cuts->NextNumber(context_.unix_ms));
    cut->set_reason(reason);
    HOTBED_RETURN_IF_ERROR(request_.merge_with() == 0 ? PlanSplit(state) : PlanTheMerge(state));
    *reply_.mutable_record() = ToProto(*state.FindVisibleShard(cut->shard()));
    if (request_.dry_run()) return reply_;
    HOTBED_RETURN_IF_ERROR(Named(state, context_.cuts->MayAsk(cut->shard())));
    if (cut->with() != 0) HOTBED_RETURN_IF_ERROR(Named(state, context_.cuts->MayAsk(cut->with())));
    written_ = true;
    Transaction txn(&state);
    txn.Put(keys::Cut(ShardId::FromPacked(cut->shard())), cut->SerializeAsString());
    EventWriter(&state, context_.unix_ms)
        .Add(cut->with() == 0 ? "cut_asked" : "merge_asked",
             absl::StrCat(CutText(state, *cut), ", ", reason), cut->shard(), 0, &txn);
    return txn;
  }

 private:
  absl::Status PlanSplit(const ClusterState& state) {
    HOTBED_ASSIGN_OR_RETURN(const CutPlan plan, PlanCut(state, request_.shard(), request_.at()));
    reply_.mutable_cut()->set_shard(request_.shard());
    reply_.mutable_cut()->set_at(plan.at);
    reply_.set_new_shard(plan.new_shard.packed());
    return absl::OkStatus();
  }
  absl::Status PlanTheMerge(const ClusterState& state) {
    if (request_.at() != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("a merge names no row, and `at` is ", request_.at()));
    }
    HOTBED_ASSIGN_OR_RETURN(const MergePlan plan,
                            PlanMerge(state, request_.shard(), request_.merge_with()));
    reply_.mutable_cut()->set_shard(plan.lower->shard.packed());
    reply_.mutable_cut()->set_with(plan.upper->shard.packed());
    reply_.mutable_cut()->set_at(plan.upper->range.first);
    return absl::OkStatus();
  }
  absl::Status Named(const ClusterState& state, const absl::Status& status) const {
    if (status.ok()) return status;
    return absl::Status(status.code(), absl::StrCat("shard ", state.ShardName(request_.shard()),
                                                    ": ", status.message()));
  }

  const v1::CutShardRequest request_;
  const OperationContext context_;
  bool written_ = false;
  v1::CutShardReply reply_;
};

// It is made, or not wanted any more.
void ForgetCut(const ClusterState& state, uint64_t packed, Transaction* txn) {
  if (state.cuts().contains(packed)) txn->Delete(keys::Cut(ShardId::FromPacked(packed)));
}

Transaction CutEvent(const ClusterState& state, int64_t unix_ms, const std::string& kind,
                     const v1::ShardCut& cut, absl::string_view why) {
  Transaction txn(&state);
  EventWriter(&state, unix_ms)
      .Add(kind, absl::StrCat(CutText(state, cut), ", ", cut.reason(), ": ", why), cut.shard(), 0,
           &txn);
  return txn;
}

// The shard as it was cut, if that has happened: a repeated request gets the same answer.
const ShardRecord* PartAt(const ClusterState& state, TableId table, uint64_t at) {
  for (const ShardRecord* record : state.ShardsOfTable(table)) {
    if (record->range.first == at) return record;
  }
  return nullptr;
}

// Both parts begin the epoch after the whole's, with its members: these hold everything that was
// acknowledged of either. Where there is one, there is nobody to bring to the end of its log, and
// the parts are active from the start: pushes to them do not wait for another commit. Learners
// begin anew, because nobody knows how far they are.
std::pair<ShardRecord, ShardRecord> PartsOf(const ShardRecord& whole, const CutPlan& plan) {
  ShardRecord lower = whole;
  ++lower.epoch;
  lower.active = whole.members.size() == 1;
  lower.base = whole.members;
  lower.learners.clear();
  lower.readers.clear();
  lower.merge = {};
  lower.range.limit = plan.at;
  ShardRecord upper = lower;
  upper.shard = plan.new_shard;
  upper.range = whole.range;
  upper.range.first = plan.at;
  std::tie(lower.lanes, upper.lanes) = DivideLanes(whole, plan.at, plan.new_shard.index);
  return {lower, upper};
}

class CommitCut {
 public:
  CommitCut(v1::CommitCutRequest request, const OperationContext& context)
      : request_(std::move(request)), context_(context) {}

  Next operator()(const ClusterState& state) {
    if (!refused_.ok()) return refused_;
    const uint64_t packed = request_.cut().shard();
    const uint64_t at = request_.cut().at();
    const ShardRecord* const whole = state.FindVisibleShard(packed);
    if (request_.cut().with() != 0) return Merge(state, whole);
    // Now, or at an earlier request. (Who asks in the epoch of the cut, or later, has heard of it.)
    if (whole != nullptr && whole->range.limit == at && whole->epoch > request_.epoch()) {
      const ShardRecord* const upper = PartAt(state, whole->shard.table, at);
      v1::CommitCutReply reply;
      ToProto(*whole, reply.add_records());
      if (upper != nullptr) ToProto(*upper, reply.add_records());
      context_.cuts->End(request_.cut());
      return reply;
    }
    if (whole != nullptr && context_.cuts->IsAsked(request_.cut())) {
      const absl::Status may = MayNow(state, *whole, request_.epoch());
      if (!may.ok()) {
        context_.cuts->AskAgain(request_.cut(), context_.unix_ms);
        return may;
      }
    }
    const absl::StatusOr<CutPlan> plan = Plan(state);
    if (!plan.ok()) return Refuse(state, plan.status());
    const auto [lower, upper] = PartsOf(*whole, *plan);
    Transaction txn(&state);
    txn.Put(keys::Shard(lower.shard), StoredRecord(lower));
    txn.Put(keys::Shard(upper.shard), StoredRecord(upper));
    ForgetCut(state, packed, &txn);
    EventWriter(&state, context_.unix_ms)
        .Add("shard_cut",
             absl::StrCat(state.ShardName(packed), " [", whole->range.first, ", ",
                          whole->range.limit, ") into it and ",
                          state.ShardName(upper.shard.packed()), " at ", plan->at, ", ",
                          request_.cut().reason()),
             packed, 0, &txn);
    return txn;
  }

 private:
  // `lower` keeps its number; the other record is deleted with the same transaction.
  Next Merge(const ClusterState& state, const ShardRecord* lower) {
    const ShardId with = ShardId::FromPacked(request_.cut().with());
    if (lower != nullptr && lower->merge.base.lsn != 0 && lower->merge.with == with &&
        lower->epoch > request_.epoch()) {  // now, or at an earlier request
      v1::CommitCutReply reply;
      ToProto(*lower, reply.add_records());
      context_.cuts->End(request_.cut());
      return reply;
    }
    const ShardRecord* const upper = state.FindVisibleShard(with.packed());
    if (lower != nullptr && upper != nullptr && context_.cuts->IsAsked(request_.cut())) {
      absl::Status may = MayNow(state, *lower, request_.epoch());
      if (may.ok()) may = MayNow(state, *upper, request_.epoch_with());
      if (!may.ok()) {
        context_.cuts->AskAgain(request_.cut(), context_.unix_ms);
        return may;
      }
    }
    const absl::StatusOr<MergePlan> plan = PlanMerge(state, request_.cut().shard(), with.packed());
    if (!plan.ok()) return Refuse(state, plan.status());
    if (!context_.cuts->IsAsked(request_.cut())) return Refuse(state, NotAsked(state));
    if (plan->lower->shard.packed() != request_.cut().shard()) {
      return Refuse(state, absl::InvalidArgumentError("the upper neighbour asks for the merge"));
    }
    const ShardRecord merged = MergedRecord(*plan->lower, *plan->upper, FromProto(request_.end()),
                                            FromProto(request_.end_with()));
    Transaction txn(&state);
    EventWriter(&state, context_.unix_ms)
        .Add("shards_merged",
             absl::StrCat(CutText(state, request_.cut()), " into [", merged.range.first, ", ",
                          merged.range.limit, "), ", request_.cut().reason()),
             request_.cut().shard(), 0, &txn);
    txn.Put(keys::Shard(merged.shard), StoredRecord(merged));
    txn.Delete(keys::Shard(with));
    ForgetCut(state, request_.cut().shard(), &txn);
    return txn;
  }

  Next Refuse(const ClusterState& state, const absl::Status& why) {
    refused_ = why;
    const uint64_t packed = request_.cut().shard();
    // Else the record may be of a later request for this shard, which is being written now.
    const bool asked = context_.cuts->IsAsked(request_.cut());
    context_.cuts->End(request_.cut());
    if (state.FindVisibleShard(packed) == nullptr) return why;
    Transaction txn =
        CutEvent(state, context_.unix_ms, "cut_refused", request_.cut(), why.message());
    if (asked) ForgetCut(state, packed, &txn);
    return txn;
  }

  // The shard may have another primary since the cut was prepared, which prepares it in its turn.
  absl::Status MayNow(const ClusterState& state, const ShardRecord& record, Epoch asked) const {
    const std::string name = state.ShardName(record.shard.packed());
    const Member caller{request_.server(), request_.incarnation()};
    if (record.epoch == asked && record.primary == caller && record.active) {
      return absl::OkStatus();
    }
    return absl::FailedPreconditionError(absl::StrCat(
        "shard ", name, ": server ", caller.server, " asks for its cut or merge in epoch ", asked,
        ", and it is in epoch ", record.epoch, " with its primary on server ",
        record.primary.server, record.active ? "" : ", not active", "; it is asked for again"));
  }

  absl::StatusOr<CutPlan> Plan(const ClusterState& state) const {
    HOTBED_ASSIGN_OR_RETURN(const CutPlan plan,
                            PlanCut(state, request_.cut().shard(), request_.cut().at()));
    if (context_.cuts->IsAsked(request_.cut())) return plan;
    return NotAsked(state);
  }
  absl::Status NotAsked(const ClusterState& state) const {
    const v1::ShardCut& cut = request_.cut();
    const std::string what = cut.with() == 0
                                 ? absl::StrCat("cut at ", cut.at())
                                 : absl::StrCat("merge with ", state.ShardName(cut.with()));
    return absl::FailedPreconditionError(
        absl::StrCat("shard ", state.ShardName(cut.shard()), ": its ", what,
                     " is not asked for any more; ask for it again"));
  }

  const v1::CommitCutRequest request_;
  const OperationContext context_;
  absl::Status refused_;  // and the event is written
};

}  // namespace

Operation MakeOperation(v1::CutShardRequest request, const OperationContext& context) {
  return CutShard(std::move(request), context);
}

Operation MakeOperation(v1::CommitCutRequest request, const OperationContext& context) {
  return CommitCut(std::move(request), context);
}

Operation MakeCutGivenUp(v1::ShardCut cut, const OperationContext& context) {
  return [cut = std::move(cut), unix_ms = context.unix_ms, cuts = context.cuts,
          written = false](const ClusterState& state) mutable -> Next {
    if (state.FindVisibleShard(cut.shard()) == nullptr || std::exchange(written, true)) {
      return Reply();
    }
    Transaction txn = CutEvent(state, unix_ms, "cut_given_up", cut,
                               absl::StrCat("not made within ", AskedCuts::kKeptNs / 1'000'000'000,
                                            " s; its server's log says why. Ask for it again"));
    if (!cuts->AsksOf(cut.shard())) ForgetCut(state, cut.shard(), &txn);
    return txn;
  };
}

}  // namespace hotbed
