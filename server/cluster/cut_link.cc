#include "server/cluster/cut_link.h"

#include <utility>

#include "absl/time/time.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/threads/await_for.h"
#include "proto/convert.h"

namespace hotbed {
namespace {

constexpr absl::Duration kCommitAgain = absl::Milliseconds(20);
constexpr absl::Duration kApplyAgain = absl::Milliseconds(100);
constexpr int64_t kPrepareAgainNs = kSecondNs;

// Whether the coordinator has looked at the request and refused it, so that no earlier one of the
// same content can be carried out any more.
bool IsRefusal(const absl::Status& status) {
  return absl::IsFailedPrecondition(status) || absl::IsNotFound(status) ||
         absl::IsInvalidArgument(status);
}

}  // namespace

CutLink::CutLink(ShardHost* host, AssignmentApplier* applier, Commit commit)
    : host_(host), applier_(applier), commit_(std::move(commit)), thread_([this] { Run(); }) {}

void CutLink::Learn(const google::protobuf::RepeatedPtrField<v1::ShardCut>& cuts) {
  std::map<uint64_t, Asked> asked;
  absl::MutexLock lock(&mu_);
  for (const v1::ShardCut& cut : cuts) {
    const auto known = asked_.find(cut.shard());
    const bool same = known != asked_.end() && known->second.cut.number() == cut.number();
    asked[cut.shard()] = same ? known->second : Asked{.cut = cut};
  }
  asked_ = std::move(asked);
  ++learnt_;
}

void CutLink::Stop() {
  {
    absl::MutexLock lock(&mu_);
    if (std::exchange(stop_, true)) return;
  }
  thread_.join();
}

void CutLink::Run() {
  v1::ShardCut next;
  while (AwaitNext(&next)) CarryOut(next);
}

bool CutLink::AwaitNext(v1::ShardCut* next) {
  absl::MutexLock lock(&mu_);
  for (;;) {
    Asked* soonest = nullptr;
    for (auto& [packed, asked] : asked_) {
      if (asked.ended) continue;
      if (soonest == nullptr || asked.again_ns < soonest->again_ns) soonest = &asked;
    }
    const int64_t now_ns = Clock::Real()->NowNs();
    if (stop_) return false;
    if (soonest != nullptr && soonest->again_ns <= now_ns) {
      soonest->again_ns = now_ns + kPrepareAgainNs;
      *next = soonest->cut;
      return true;
    }
    const auto changed = [this, before = learnt_]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return stop_ || learnt_ != before;
    };
    AwaitFor(&mu_, absl::Condition(&changed),
             soonest == nullptr ? absl::Hours(1) : absl::Nanoseconds(soonest->again_ns - now_ns));
  }
}

absl::Status CutLink::Prepare(const v1::ShardCut& cut, v1::CommitCutRequest* request) {
  *request->mutable_cut() = cut;
  const ShardId shard = ShardId::FromPacked(cut.shard());
  if (cut.with() == 0) {
    const absl::StatusOr<Epoch> epoch = host_->PrepareCut(shard);
    if (epoch.ok()) request->set_epoch(*epoch);
    return epoch.status();
  }
  const absl::StatusOr<ShardHost::MergeReady> ready =
      host_->PrepareMerge(shard, ShardId::FromPacked(cut.with()));
  if (!ready.ok()) return ready.status();
  request->set_epoch(ready->epoch);
  request->set_epoch_with(ready->epoch_with);
  LogEndToProto(ready->end, request->mutable_end());
  LogEndToProto(ready->end_with, request->mutable_end_with());
  return absl::OkStatus();
}

void CutLink::GiveUp(const v1::ShardCut& cut) {
  host_->GiveUpCut(ShardId::FromPacked(cut.shard()));
  if (cut.with() != 0) host_->GiveUpCut(ShardId::FromPacked(cut.with()));
}

void CutLink::CarryOut(const v1::ShardCut& cut) {
  const ShardId shard = ShardId::FromPacked(cut.shard());
  v1::CommitCutRequest request;
  if (const absl::Status prepared = Prepare(cut, &request); !prepared.ok()) {
    HOTBED_LOG_EVERY_S(Warning, 5) << "the cut of " << shard.ToString() << " waits: " << prepared;
    return;
  }
  if (request.epoch() == 0) return;  // it may become the primary
  const int64_t prepared_ns = Clock::Real()->NowNs();
  for (;;) {
    v1::CommitCutReply reply;
    const absl::Status committed = commit_(&request, &reply);
    if (committed.ok()) return OnCommitted(cut, reply, prepared_ns);
    if (IsRefusal(committed)) {
      HOTBED_LOG(Warning) << shard.ToString() << " is not cut or merged: " << committed;
      GiveUp(cut);
      return End(cut);
    }
    HOTBED_LOG_EVERY_S(Warning, 5) << "the cut of " << shard.ToString() << " waits: " << committed;
    absl::MutexLock lock(&mu_);
    if (AwaitFor(&mu_, absl::Condition(&stop_), kCommitAgain)) return;
  }
}

void CutLink::OnCommitted(const v1::ShardCut& cut, const v1::CommitCutReply& reply,
                          int64_t prepared_ns) {
  const ShardId shard = ShardId::FromPacked(cut.shard());
  const int64_t committed_ns = Clock::Real()->NowNs();
  // What is here takes no pushes before, and no later request may change that: no other replica
  // will hold them.
  for (;;) {
    const absl::Status applied = applier_->ApplyRecords(reply.records());
    if (applied.ok()) break;
    HOTBED_LOG_EVERY_S(Warning, 5)
        << shard.ToString() << " was cut or merged, and is not yet here: " << applied;
    absl::MutexLock lock(&mu_);
    if (AwaitFor(&mu_, absl::Condition(&stop_), kApplyAgain)) return;
  }
  GiveUp(cut);  // the shard takes pushes, also if it was cut here before this request
  HOTBED_LOG(Info) << shard.ToString() << (cut.with() == 0 ? " is cut at " : " is merged at ")
                   << cut.at() << ": " << (committed_ns - prepared_ns) / kMillisecondNs
                   << " ms for the commit, "
                   << (Clock::Real()->NowNs() - committed_ns) / kMillisecondNs
                   << " ms for what is held here";
  End(cut);
}

void CutLink::End(const v1::ShardCut& cut) {
  absl::MutexLock lock(&mu_);
  const auto asked = asked_.find(cut.shard());
  if (asked != asked_.end() && asked->second.cut.number() == cut.number()) {
    asked->second.ended = true;
  }
}

}  // namespace hotbed
