#include "client/push/push_ledger.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace hotbed {
namespace {

constexpr size_t kUnclaimedMax = 4096;

}  // namespace

void PushLedger::Resolve(Resolutions resolutions) {
  for (auto& [promise, result] : resolutions) promise.Set(std::move(result));
}

absl::Status PushLedger::CheckSteps(const PushCall& call) const {
  const TableHandle* checked = nullptr;
  for (const PushPart& part : call.parts) {
    if (std::exchange(checked, part.table) == part.table) continue;
    const auto it = last_step_.find(part.table);
    if (it != last_step_.end() && call.step <= it->second) {
      return absl::InvalidArgumentError(absl::StrCat(
          "table ", part.table->name(), ": step ", call.step, " after step ", it->second,
          "; steps of a table must grow, one push a table and step (put all its features in one "
          "call)"));
    }
  }
  return absl::OkStatus();
}

Future<PushResult> PushLedger::Add(std::unique_ptr<PushCall> call,
                                   std::shared_ptr<WaitDriver> driver, int64_t now_ns) {
  call->ticket = next_ticket_++;
  call->parts_left = call->parts.size();
  call->entry = window_.Enter(call->bytes, now_ns);
  const TableHandle* noted = nullptr;
  for (const PushPart& part : call->parts) {
    if (std::exchange(noted, part.table) != part.table) last_step_[part.table] = call->step;
  }
  Future<PushResult> future = call->promise.emplace(std::move(driver)).future();
  calls_[call->ticket] = std::move(call);
  return future;
}

bool PushLedger::Finish(PushPart* part, const absl::Status& status, const Clock& clock,
                        Resolutions* resolutions) {
  PushCall* const call = part->call;
  HOTBED_DCHECK(call->parts_left > 0);
  if (!status.ok()) call->refused.push_back({part->table->name(), part->shard, part->seq, status});
  if (--call->parts_left > 0) return false;
  PushResult result = call->Result();
  if (call->promise.has_value()) {
    resolutions->emplace_back(*std::move(call->promise), std::move(result));
  } else {
    unclaimed_.push_back(std::move(result));
    if (unclaimed_.size() > kUnclaimedMax) unclaimed_.pop_front();
  }
  window_.Leave(call->entry, clock.NowNs());
  calls_.erase(call->ticket);
  return true;
}

void PushLedger::Expire(int64_t now_ns, Resolutions* resolutions) {
  for (auto& [ticket, call] : calls_) {
    if (call->deadline_ns > now_ns || !call->promise.has_value()) continue;
    resolutions->emplace_back(*std::move(call->promise), call->Result());
    call->promise.reset();
  }
}

Future<PushResult> PushLedger::Retry(const PushResult& result, int64_t deadline_ns,
                                     std::shared_ptr<WaitDriver> driver) {
  const auto open = calls_.find(result.ticket);
  if (open != calls_.end()) {
    PushCall& call = *open->second;
    call.deadline_ns = deadline_ns;
    if (!call.promise.has_value()) call.promise.emplace(std::move(driver));
    return call.promise->future();
  }
  for (auto it = unclaimed_.begin(); it != unclaimed_.end(); ++it) {
    if (it->ticket != result.ticket) continue;
    PushResult found = std::move(*it);
    unclaimed_.erase(it);
    return Future<PushResult>::Ready(std::move(found));
  }
  PushResult unknown = result;
  unknown.status = absl::NotFoundError(
      absl::StrCat("no push with ticket ", result.ticket, " is known to this client any more"));
  return Future<PushResult>::Ready(std::move(unknown));
}

bool PushLedger::AllAnswered(uint64_t step) const {
  return std::none_of(calls_.begin(), calls_.end(),
                      [step](const auto& call) { return call.second->step <= step; });
}

std::vector<PushResult> PushLedger::Unanswered(int64_t begun_by_ns) const {
  std::vector<PushResult> unanswered;
  for (const auto& [ticket, call] : calls_) {
    if (call->entry.begun_ns <= begun_by_ns) unanswered.push_back(call->Result());
  }
  std::sort(unanswered.begin(), unanswered.end(),
            [](const PushResult& a, const PushResult& b) { return a.ticket < b.ticket; });
  return unanswered;
}

}  // namespace hotbed
