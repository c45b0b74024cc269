#include "server/shard/serving_state.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/log.h"

namespace hotbed {

void ServingState::SetReason(std::string reason) {
  absl::MutexLock lock(&mu_);
  reason_ = std::move(reason);
}

std::string ServingState::reason() const {
  absl::MutexLock lock(&mu_);
  return reason_;
}

void ServingState::Refuse(const absl::Status& error) {
  error_ = error;
  ShutGates();
  stalled_ = false;
  refused_promise_.store(core_->promised(), std::memory_order_relaxed);
  SetReason(absl::StrCat(options_->Name(), " is not served: ", error.message()));
  refused_.store(true, std::memory_order_release);  // other threads read the reason after it
  core_->Abandon(SegmentCode::kUnavailable);
  waiting_->RunPulls();
  waiting_->RunPushes();
}

void ServingState::GiveUpReplica(const absl::Status& error) {
  Refuse(error);
  HOTBED_LOG(Error) << reason();
  options_->outlet->Watch(options_->id);
  options_->outlet->HasNews();
}

void ServingState::Stall(const std::string& reason) {
  stalled_ = true;
  push_gate_->Shut();
  SetReason(absl::StrCat(options_->Name(), ": ", reason));
}

void ServingState::EndStall() {
  if (!std::exchange(stalled_, false)) return;
  SetReason("");
}

bool ServingState::OthersHoldRows() const {
  const std::vector<Member>& members = core_->record().members;
  return std::any_of(members.begin(), members.end(),
                     [this](const Member& member) { return !(member == core_->self()); });
}

// Senders should retry where other replicas hold the rows: one of them will serve in a moment. They
// should also retry until the coordinator has named this process as a member, because it may be
// about to be refused, as a copy of the data directory is at the address of its original.
Refusal ServingState::RefusalNow() const {
  if (closed_) return {SegmentCode::kUnavailable, absl::StrCat(options_->Name(), " is closing")};
  if (error_.ok()) return {};
  const bool only_member = core_->record().Holds(core_->self()) && !OthersHoldRows();
  return {only_member ? CodeOf(error_) : SegmentCode::kUnavailable, reason()};
}

bool ServingState::ReplicaLost(const ShardRecord& record, const Member& self) const {
  if (!refused()) return false;
  const bool counted = record.epoch <= refused_promise_.load(std::memory_order_relaxed);
  return Contains(record.members, self) || (counted && Contains(record.learners, self));
}

bool ServingState::MayBeReplaced(Epoch epoch) const {
  if (error_.ok() || epoch != core_->epoch()) return false;
  return Contains(core_->record().learners, core_->self()) &&
         !ReplicaLost(core_->record(), core_->self());
}

}  // namespace hotbed
