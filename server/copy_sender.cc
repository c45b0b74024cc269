#include "server/copy_sender.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/await_for.h"
#include "common/log.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

constexpr int64_t kMillisecond = 1'000'000;
constexpr int64_t kSecond = 1'000 * kMillisecond;
constexpr int64_t kRetryNs = kSecond / 2;          // after a copy that failed
constexpr int64_t kAnswerNsMax = 30 * kSecond;     // without an answer to a chunk
constexpr int64_t kBusyStepNs = 2 * kMillisecond;  // while the peer's queue is long
constexpr int64_t kPausedStepNs = 50 * kMillisecond;
constexpr absl::Duration kLook = absl::Milliseconds(100);  // whether the copy is still wanted

SharedBytes Share(std::string bytes) {
  auto owner = std::make_shared<const std::string>(std::move(bytes));
  const auto* const data = reinterpret_cast<const uint8_t*>(owner->data());
  const size_t size = owner->size();
  return {std::move(owner), {data, size}};
}

}  // namespace

CopySender::CopySender(Wiring wiring) : wiring_(std::move(wiring)) {
  for (int i = 0; i < kCopiesSentMax; ++i) threads_.emplace_back([this] { Work(); });
}

void CopySender::Stop() {
  {
    absl::MutexLock lock(&mu_);
    stops_ = true;
  }
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void CopySender::Start(ShardId shard, const Member& to) {
  absl::MutexLock lock(&mu_);
  if (stops_ || waiting_.size() >= kCopiesWaitingMax) return;
  auto copy = std::make_shared<Copy>();
  copy->shard = shard;
  copy->to = to;
  copy->transfer = ++transfers_;
  waiting_.push_back(std::move(copy));
}

void CopySender::OnReply(const Member& from, const ReplicaMessage& reply) {
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

void CopySender::OnPeerLost(const Member& peer) {
  absl::MutexLock lock(&mu_);
  for (const auto& copy : running_) {
    if (copy->to == peer) copy->error = absl::UnavailableError("the connection is lost");
  }
}

std::vector<ShardHost::CopyProgress> CopySender::Progress() const {
  absl::MutexLock lock(&mu_);
  std::vector<ShardHost::CopyProgress> progress;
  for (const auto& copy : running_) {
    progress.push_back(
        {copy->shard, copy->to, copy->bytes_copied, copy->bytes_total, copy->bytes_per_s});
  }
  for (const auto& copy : waiting_) progress.push_back({copy->shard, copy->to, 0, 0, 0});
  return progress;
}

std::shared_ptr<CopySender::Copy> CopySender::TakeDue() {
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

std::shared_ptr<CopySender::Copy> CopySender::Next() {
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

void CopySender::Work() {
  while (const std::shared_ptr<Copy> copy = Next()) {
    Run(copy.get());
    absl::MutexLock lock(&mu_);
    running_.erase(std::find(running_.begin(), running_.end(), copy));
  }
}

void CopySender::Run(Copy* copy) {
  const std::shared_ptr<Shard> shard = wiring_.find(copy->shard);
  if (shard == nullptr) return;
  Shard::SnapshotBase base;
  const absl::Status sent = Send(shard.get(), copy, &base);
  const std::string what = absl::StrCat(copy->shard.ToString(), " to server ", copy->to.server,
                                        ", incarnation ", copy->to.incarnation);
  if (sent.ok()) {
    sent_.fetch_add(1, std::memory_order_relaxed);
    HOTBED_LOG(Info) << "copied " << what << ": " << copy->bytes_copied << " bytes as of LSN "
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

absl::Status CopySender::Send(Shard* shard, Copy* copy, Shard::SnapshotBase* base) {
  HOTBED_RETURN_IF_ERROR(CheckWanted(*shard, *copy, shard->epoch()));
  HOTBED_ASSIGN_OR_RETURN(*base, shard->BeginSnapshot(copy->to));
  HOTBED_ASSIGN_OR_RETURN(const std::unique_ptr<ShardRowReader> reader,
                          wiring_.tiers->ReadShard(shard->table(), shard->range(), shard->id()));
  {
    absl::MutexLock lock(&mu_);
    copy->bytes_total = reader->bytes_total() + base->meta.size();
  }
  ReplicaMessage begin;
  begin.kind = ReplicaMessage::Kind::kSnapshotBegin;
  begin.shard = copy->shard;
  begin.epoch = base->epoch;
  begin.to = copy->to;
  begin.transfer = copy->transfer;
  begin.lsn = base->lsn;
  begin.bytes_total = copy->bytes_total;
  wiring_.send(std::move(begin));
  return SendRows(shard, *base, reader.get(), copy);
}

absl::Status CopySender::SendRows(Shard* shard, const Shard::SnapshotBase& base,
                                  ShardRowReader* reader, Copy* copy) {
  ReplicaMessage message;
  message.shard = copy->shard;
  message.epoch = base.epoch;
  message.to = copy->to;
  message.transfer = copy->transfer;
  uint64_t chunk = 0;
  for (;; ++chunk) {
    HOTBED_ASSIGN_OR_RETURN(std::string block, reader->Next(kCopyBlockBytes));
    const uint64_t bytes = block.empty() ? base.meta.size() : block.size();
    HOTBED_RETURN_IF_ERROR(Await(*shard, copy, base.epoch, chunk));
    HOTBED_RETURN_IF_ERROR(AwaitPace(*shard, copy, base.epoch, bytes));
    Count(copy, bytes);
    if (block.empty()) break;
    ReplicaMessage rows = message;
    rows.kind = ReplicaMessage::Kind::kSnapshotRows;
    rows.chunk = chunk;
    rows.body = Share(std::move(block));
    wiring_.send(std::move(rows));
  }
  message.kind = ReplicaMessage::Kind::kSnapshotEnd;
  message.chunk = chunk;
  message.lsn = base.lsn;
  message.body = Share(base.meta);
  wiring_.send(std::move(message));
  return Await(*shard, copy, base.epoch, chunk + 1);
}

absl::Status CopySender::CheckWanted(const Shard& shard, const Copy& copy, Epoch epoch) const {
  if (!shard.primary() || shard.epoch() != epoch || !shard.WantsCopy(copy.to)) {
    return absl::AbortedError("the shard's record does not want it any more");
  }
  return absl::OkStatus();
}

absl::Status CopySender::Await(const Shard& shard, Copy* copy, Epoch epoch, uint64_t chunk) {
  const int64_t end_ns = wiring_.clock->NowNs() + kAnswerNsMax;
  absl::MutexLock lock(&mu_);
  const auto answered = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return stops_ || !copy->error.ok() || (copy->accepted && copy->answered >= chunk);
  };
  while (!AwaitFor(&mu_, absl::Condition(&answered), kLook)) {
    HOTBED_RETURN_IF_ERROR(CheckWanted(shard, *copy, epoch));
    if (wiring_.clock->NowNs() >= end_ns) {
      return absl::DeadlineExceededError(
          absl::StrCat("no answer for ", kAnswerNsMax / kSecond, " s"));
    }
  }
  if (stops_) return absl::CancelledError("this server is stopping");
  return copy->error;
}

absl::Status CopySender::AwaitPace(const Shard& shard, Copy* copy, Epoch epoch, uint64_t bytes) {
  while (wiring_.pace->paused()) {
    HOTBED_RETURN_IF_ERROR(Sleep(kPausedStepNs));
    HOTBED_RETURN_IF_ERROR(CheckWanted(shard, *copy, epoch));
  }
  int64_t wait_ns = wiring_.pace->WaitNs(bytes, wiring_.clock->NowNs());
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

absl::Status CopySender::Sleep(int64_t ns) {
  absl::MutexLock lock(&mu_);
  if (AwaitFor(&mu_, absl::Condition(&stops_), absl::Nanoseconds(ns))) {
    return absl::CancelledError("this server is stopping");
  }
  return absl::OkStatus();
}

void CopySender::Count(Copy* copy, uint64_t bytes) {
  const int64_t now_ns = wiring_.clock->NowNs();
  absl::MutexLock lock(&mu_);
  copy->bytes_copied += bytes;
  copy->bytes_total = std::max(copy->bytes_total, copy->bytes_copied);
  copy->rate_bytes += bytes;
  const int64_t passed_ns = now_ns - copy->rate_since_ns;
  if (passed_ns < kSecond && copy->bytes_per_s != 0) return;
  copy->bytes_per_s = static_cast<uint64_t>(static_cast<double>(copy->rate_bytes) * kSecond /
                                            std::max<int64_t>(passed_ns, kMillisecond));
  if (passed_ns < kSecond) return;
  copy->rate_since_ns = now_ns;
  copy->rate_bytes = 0;
}

}  // namespace hotbed
