#include "server/host/snapshot_sender.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/await_for.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "server/tiers/spill/spill_tier.h"

namespace hotbed {
namespace {

constexpr int64_t kRetryNs = kSecondNs / 2;          // after a copy that failed
constexpr int64_t kAnswerNsMax = 30 * kSecondNs;     // without an answer to a chunk
constexpr int64_t kBusyStepNs = 2 * kMillisecondNs;  // while the peer's queue is long
constexpr int64_t kPausedStepNs = 50 * kMillisecondNs;
constexpr absl::Duration kLook = absl::Milliseconds(100);  // whether the copy is still wanted

SharedBytes Share(std::string bytes) {
  auto owner = std::make_shared<const std::string>(std::move(bytes));
  const auto* const data = reinterpret_cast<const uint8_t*>(owner->data());
  const size_t size = owner->size();
  return {std::move(owner), {data, size}};
}

}  // namespace

SnapshotSender::SnapshotSender(Wiring wiring) : wiring_(std::move(wiring)) {
  for (int i = 0; i < kCopiesSentMax; ++i) threads_.emplace_back([this] { Work(); });
}

void SnapshotSender::Stop() {
  {
    absl::MutexLock lock(&mu_);
    stops_ = true;
  }
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void SnapshotSender::Start(ShardId shard, const Member& to) {
  absl::MutexLock lock(&mu_);
  if (stops_ || waiting_.size() >= kCopiesWaitingMax) return;
  auto copy = std::make_shared<Copy>();
  copy->shard = shard;
  copy->to = to;
  copy->transfer = ++transfers_;
  waiting_.push_back(std::move(copy));
}

void SnapshotSender::OnReply(const Member& from, const ReplicaMessage& reply) {
  absl::MutexLock lock(&mu_);
  for (const auto& copy : running_) {
    if (!(copy->shard == reply.shard) || !(copy->to == from) || copy->transfer != reply.transfer) {
      continue;
    }
    if (!reply.ok) {
      copy->error = absl::UnavailableError("the other server takes no copy of it now");
    }
    copy->accepted = true;
    copy->answered = std::max(copy->answered, reply.chunk);
  }
}

void SnapshotSender::OnPeerLost(const Member& peer) {
  absl::MutexLock lock(&mu_);
  for (const auto& copy : running_) {
    if (copy->to == peer) copy->error = absl::UnavailableError("the connection is lost");
  }
}

std::vector<ShardHost::TransferProgress> SnapshotSender::Progress() const {
  absl::MutexLock lock(&mu_);
  std::vector<ShardHost::TransferProgress> progress;
  for (const auto& copy : running_) {
    progress.push_back({.shard = copy->shard,
                        .to = copy->to,
                        .bytes_copied = copy->bytes_copied,
                        .bytes_total = copy->bytes_total,
                        .bytes_per_s = copy->bytes_per_s,
                        .passes = copy->passes,
                        .changed_bytes_per_s = copy->changed_bytes_per_s,
                        .beyond_rate = copy->beyond_rate});
  }
  for (const auto& copy : waiting_) progress.push_back({.shard = copy->shard, .to = copy->to});
  return progress;
}

std::shared_ptr<SnapshotSender::Copy> SnapshotSender::TakeDue() {
  const int64_t now_ns = wiring_.clock->NowNs();
  std::erase_if(failed_lately_, [now_ns](const Failed& f) { return f.until_ns <= now_ns; });
  for (auto it = waiting_.begin(); it != waiting_.end(); ++it) {
    const bool waits =
        std::any_of(failed_lately_.begin(), failed_lately_.end(),
                    [&](const Failed& f) { return f.shard == (*it)->shard && f.to == (*it)->to; });
    if (waits) continue;
    std::shared_ptr<Copy> due = std::move(*it);
    waiting_.erase(it);
    return due;
  }
  return nullptr;
}

std::shared_ptr<SnapshotSender::Copy> SnapshotSender::Next() {
  absl::MutexLock lock(&mu_);
  for (;;) {
    if (stops_) return nullptr;
    if (std::shared_ptr<Copy> due = TakeDue(); due != nullptr) {
      due->begun_ns = due->rate_since_ns = wiring_.clock->NowNs();
      running_.push_back(due);
      return due;
    }
    const auto wakes = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return stops_ || (!waiting_.empty() && failed_lately_.empty());
    };
    AwaitFor(&mu_, absl::Condition(&wakes), kLook);
  }
}

void SnapshotSender::Work() {
  while (const std::shared_ptr<Copy> copy = Next()) {
    Run(copy.get());
    absl::MutexLock lock(&mu_);
    running_.erase(std::find(running_.begin(), running_.end(), copy));
  }
}

void SnapshotSender::Run(Copy* copy) {
  const std::shared_ptr<Shard> shard = wiring_.find(copy->shard);
  if (shard == nullptr) return;
  SnapshotBase base;
  const absl::Status sent = Send(shard.get(), copy, &base);
  const std::string what = absl::StrCat(copy->shard.ToString(), " to server ", copy->to.server,
                                        ", incarnation ", copy->to.incarnation);
  if (sent.ok()) {
    sent_.fetch_add(1, std::memory_order_relaxed);
    HOTBED_LOG(Info) << "copied " << what << ": " << copy->bytes_copied << " bytes in "
                     << copy->passes << (copy->passes == 1 ? " pass" : " passes") << " as of LSN "
                     << base.lsn;
  } else {
    failed_.fetch_add(1, std::memory_order_relaxed);
    HOTBED_LOG_EVERY_S(Warning, 1) << "the copy of " << what << " is off after "
                                   << copy->bytes_copied << " bytes: " << sent.message();
    absl::MutexLock lock(&mu_);
    failed_lately_.push_back({copy->shard, copy->to, wiring_.clock->NowNs() + kRetryNs});
  }
  shard->EndSnapshot(copy->to, base.lsn, sent.ok());
}

absl::Status SnapshotSender::Send(Shard* shard, Copy* copy, SnapshotBase* base) {
  HOTBED_RETURN_IF_ERROR(CheckWanted(*shard, *copy, shard->epoch()));
  for (int pass = 1;; ++pass) {
    const bool holds = pass == kCopyPassesMax;
    HOTBED_RETURN_IF_ERROR(SendPass(shard, copy, holds, base));
    if (holds || shard->HoldFor(copy->to, base->lsn)) return SendEnd(shard, *base, copy);
  }
}

absl::Status SnapshotSender::SendPass(Shard* shard, Copy* copy, bool holds, SnapshotBase* base) {
  const Lsn above = base->lsn;
  const Epoch epoch = base->epoch;  // 0: the first pass
  copy->swept_before_ns = std::exchange(copy->swept_ns, wiring_.clock->NowNs());
  HOTBED_ASSIGN_OR_RETURN(Snapshot snapshot, shard->BeginSnapshot(copy->to, holds, above));
  *base = std::move(snapshot.base);
  ShardRowReader* const reader = snapshot.rows.get();
  if (epoch != 0 && base->epoch != epoch) {
    return absl::AbortedError("the shard's record has become another one");
  }
  if (holds) copy->paced = false;
  NoteChanges(*shard, copy);
  BeginPass(copy, epoch == 0 ? reader->bytes_total() + base->meta.size() : 0);
  if (epoch == 0) {
    ReplicaMessage begin;
    begin.kind = ReplicaMessage::Kind::kSnapshotBegin;
    begin.shard = copy->shard;
    begin.epoch = base->epoch;
    begin.to = copy->to;
    begin.transfer = copy->transfer;
    begin.lsn = base->lsn;
    begin.bytes_total = reader->bytes_total() + base->meta.size();
    wiring_.send(std::move(begin));
  }
  return SendRows(*shard, base->epoch, reader, copy);
}

void SnapshotSender::BeginPass(Copy* copy, uint64_t bytes) {
  copy->pass_before_bytes = std::exchange(copy->pass_bytes, 0);
  absl::MutexLock lock(&mu_);
  ++copy->passes;
  // Of what has changed nobody knows how much it is; not more than the pass before had.
  copy->bytes_total = copy->bytes_copied + (copy->passes == 1 ? bytes : copy->pass_before_bytes);
}

absl::Status SnapshotSender::SendRows(const Shard& shard, Epoch epoch, ShardRowReader* reader,
                                      Copy* copy) {
  for (;;) {
    HOTBED_ASSIGN_OR_RETURN(std::string block, reader->Next(kCopyBlockBytes));
    HOTBED_RETURN_IF_ERROR(Await(shard, copy, epoch, copy->chunks));
    if (block.empty()) return absl::OkStatus();
    HOTBED_RETURN_IF_ERROR(AwaitPace(shard, copy, epoch, block.size()));
    Count(copy, block.size());
    LeaveRateIfOutrun(copy);
    ReplicaMessage rows;
    rows.kind = ReplicaMessage::Kind::kSnapshotRows;
    rows.shard = copy->shard;
    rows.epoch = epoch;
    rows.to = copy->to;
    rows.transfer = copy->transfer;
    rows.chunk = copy->chunks++;
    rows.body = Share(std::move(block));
    wiring_.send(std::move(rows));
  }
}

// A shard that has left this server meanwhile may have lost rows while they were read.
absl::Status SnapshotSender::SendEnd(Shard* shard, const SnapshotBase& base, Copy* copy) {
  HOTBED_RETURN_IF_ERROR(CheckWanted(*shard, *copy, base.epoch));
  HOTBED_RETURN_IF_ERROR(shard->KeepSnapshot());
  // From here on pushes may wait for it: no rate and no pause holds it up.
  wiring_.rate->WaitNs(base.meta.size(), wiring_.clock->NowNs());
  Count(copy, base.meta.size());
  ReplicaMessage end;
  end.kind = ReplicaMessage::Kind::kSnapshotEnd;
  end.shard = copy->shard;
  end.epoch = base.epoch;
  end.to = copy->to;
  end.transfer = copy->transfer;
  end.chunk = copy->chunks;
  end.lsn = base.lsn;
  end.body = Share(base.meta);
  wiring_.send(std::move(end));
  return Await(*shard, copy, base.epoch, copy->chunks + 1);
}

// How much of the rows pushes have changed between the begins of the last two passes, those changed
// twice counted twice.
void SnapshotSender::NoteChanges(const Shard& shard, Copy* copy) {
  const uint64_t before = std::exchange(copy->rows_pushed, shard.rows_pushed());
  absl::MutexLock lock(&mu_);
  if (copy->passes == 0) return;
  const double bytes = static_cast<double>(copy->rows_pushed - before) *
                       SpillShard(shard.table(), shard.range(), shard.id()).record_bytes();
  const int64_t ns = std::max(copy->swept_ns - copy->swept_before_ns, kMillisecondNs);
  copy->changed_bytes_per_s = static_cast<uint64_t>(bytes / static_cast<double>(ns) * kSecondNs);
}

// Passes that are not half as long each as the one before need not end.
void SnapshotSender::LeaveRateIfOutrun(Copy* copy) {
  absl::MutexLock lock(&mu_);
  const uint64_t rate = wiring_.rate->rate();
  if (copy->passes < 2 || rate == 0 || copy->beyond_rate) return;
  if (copy->pass_bytes <= copy->pass_before_bytes / 2) return;
  copy->beyond_rate = true;
  copy->paced = false;
  HOTBED_LOG_EVERY_S(Warning, 1) << copy->shard.ToString() << ": pushes change "
                                 << copy->changed_bytes_per_s
                                 << " bytes of its rows a second, too much for the " << rate
                                 << " that all copies may send: its copy goes on beyond that";
}

absl::Status SnapshotSender::CheckWanted(const Shard& shard, const Copy& copy, Epoch epoch) const {
  if (!shard.primary() || shard.epoch() != epoch || !shard.WantsCopy(copy.to)) {
    return absl::AbortedError("the shard's record does not want it any more");
  }
  return absl::OkStatus();
}

absl::Status SnapshotSender::Await(const Shard& shard, Copy* copy, Epoch epoch, uint64_t chunk) {
  const int64_t end_ns = wiring_.clock->NowNs() + kAnswerNsMax;
  absl::MutexLock lock(&mu_);
  const auto answered = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return stops_ || !copy->error.ok() || (copy->accepted && copy->answered >= chunk);
  };
  while (!AwaitFor(&mu_, absl::Condition(&answered), kLook)) {
    HOTBED_RETURN_IF_ERROR(CheckWanted(shard, *copy, epoch));
    if (wiring_.clock->NowNs() >= end_ns) {
      return absl::DeadlineExceededError(
          absl::StrCat("no answer for ", kAnswerNsMax / kSecondNs, " s"));
    }
  }
  if (stops_) return absl::CancelledError("this server is stopping");
  return copy->error;
}

absl::Status SnapshotSender::AwaitPace(const Shard& shard, Copy* copy, Epoch epoch,
                                       uint64_t bytes) {
  while (wiring_.rate->paused()) {
    HOTBED_RETURN_IF_ERROR(Sleep(kPausedStepNs));
    HOTBED_RETURN_IF_ERROR(CheckWanted(shard, *copy, epoch));
  }
  // Beyond the rate it still counts: other copies make up for it.
  int64_t wait_ns = wiring_.rate->WaitNs(bytes, wiring_.clock->NowNs());
  if (!copy->paced) wait_ns = 0;
  for (; wait_ns > 0; wait_ns -= kPausedStepNs) {
    HOTBED_RETURN_IF_ERROR(Sleep(std::min(wait_ns, kPausedStepNs)));
    HOTBED_RETURN_IF_ERROR(CheckWanted(shard, *copy, epoch));
  }
  while (wiring_.queued_bytes(copy->to) > kCopyQueuedBytesMax) {
    HOTBED_RETURN_IF_ERROR(Sleep(kBusyStepNs));
    HOTBED_RETURN_IF_ERROR(CheckWanted(shard, *copy, epoch));
  }
  return absl::OkStatus();
}

absl::Status SnapshotSender::Sleep(int64_t ns) {
  absl::MutexLock lock(&mu_);
  if (AwaitFor(&mu_, absl::Condition(&stops_), absl::Nanoseconds(ns))) {
    return absl::CancelledError("this server is stopping");
  }
  return absl::OkStatus();
}

void SnapshotSender::Count(Copy* copy, uint64_t bytes) {
  const int64_t now_ns = wiring_.clock->NowNs();
  absl::MutexLock lock(&mu_);
  copy->bytes_copied += bytes;
  copy->bytes_total = std::max(copy->bytes_total, copy->bytes_copied);
  copy->rate_bytes += bytes;
  copy->pass_bytes += bytes;
  const int64_t passed_ns = now_ns - copy->rate_since_ns;
  if (passed_ns < kSecondNs && copy->bytes_per_s != 0) return;
  copy->bytes_per_s = static_cast<uint64_t>(static_cast<double>(copy->rate_bytes) * kSecondNs /
                                            std::max<int64_t>(passed_ns, kMillisecondNs));
  if (passed_ns < kSecondNs) return;
  copy->rate_since_ns = now_ns;
  copy->rate_bytes = 0;
}

}  // namespace hotbed
