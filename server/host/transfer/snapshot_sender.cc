#include "server/host/transfer/snapshot_sender.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "common/threads/await_for.h"

namespace hotbed {
namespace {

constexpr int64_t kTransferRetryNs = kSecondNs / 2;  // after a transfer that failed
constexpr int64_t kAnswerNsMax = 30 * kSecondNs;     // without an answer to a chunk
constexpr int64_t kBusyStepNs = 2 * kMillisecondNs;  // while the peer's queue is long
constexpr int64_t kPausedStepNs = 50 * kMillisecondNs;
constexpr absl::Duration kLook = absl::Milliseconds(100);  // whether it is still wanted

}  // namespace

SnapshotSender::SnapshotSender(Wiring wiring) : wiring_(std::move(wiring)) {
  for (int i = 0; i < kTransfersSentMax; ++i) threads_.emplace_back([this] { Work(); });
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
  if (stops_ || waiting_.size() >= kTransfersWaitingMax) return;
  auto transfer = std::make_shared<Transfer>();
  transfer->shard = shard;
  transfer->to = to;
  transfer->number = ++transfers_;
  waiting_.push_back(std::move(transfer));
}

void SnapshotSender::OnReply(const Member& from, const ReplicaMessage& reply) {
  absl::MutexLock lock(&mu_);
  for (const auto& transfer : running_) {
    if (!(transfer->shard == reply.shard) || !(transfer->to == from) ||
        transfer->number != reply.transfer) {
      continue;
    }
    if (!reply.ok) {
      transfer->error = absl::UnavailableError("the other server takes no snapshot of it now");
    }
    transfer->answers.Take(reply);
  }
}

void SnapshotSender::OnPeerLost(const Member& peer) {
  absl::MutexLock lock(&mu_);
  for (const auto& transfer : running_) {
    if (transfer->to == peer) transfer->error = absl::UnavailableError("the connection is lost");
  }
}

std::vector<TransferProgress> SnapshotSender::Progress() const {
  absl::MutexLock lock(&mu_);
  std::vector<TransferProgress> progress;
  for (const auto& transfer : running_) progress.push_back(*transfer);
  for (const auto& transfer : waiting_) progress.push_back(*transfer);
  return progress;
}

std::shared_ptr<SnapshotSender::Transfer> SnapshotSender::TakeDue() {
  const int64_t now_ns = wiring_.clock->NowNs();
  std::erase_if(failed_lately_, [now_ns](const Failed& f) { return f.until_ns <= now_ns; });
  for (auto it = waiting_.begin(); it != waiting_.end(); ++it) {
    const bool waits =
        std::any_of(failed_lately_.begin(), failed_lately_.end(),
                    [&](const Failed& f) { return f.shard == (*it)->shard && f.to == (*it)->to; });
    if (waits) continue;
    std::shared_ptr<Transfer> due = std::move(*it);
    waiting_.erase(it);
    return due;
  }
  return nullptr;
}

std::shared_ptr<SnapshotSender::Transfer> SnapshotSender::Next() {
  absl::MutexLock lock(&mu_);
  for (;;) {
    if (stops_) return nullptr;
    if (std::shared_ptr<Transfer> due = TakeDue(); due != nullptr) {
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
  while (const std::shared_ptr<Transfer> transfer = Next()) {
    Run(transfer.get());
    absl::MutexLock lock(&mu_);
    running_.erase(std::find(running_.begin(), running_.end(), transfer));
  }
}

void SnapshotSender::Run(Transfer* transfer) {
  const std::shared_ptr<Shard> shard = wiring_.find(transfer->shard);
  if (shard == nullptr) return;
  Lsn lsn = 0;
  absl::Status sent;
  {
    SnapshotCourse course(shard, transfer->to, transfer->number, SnapshotCourse::Options());
    sent = Send(*shard, &course, transfer);
    lsn = course.lsn();
  }
  const std::string what =
      absl::StrCat(transfer->shard.ToString(), " to server ", transfer->to.server, ", incarnation ",
                   transfer->to.incarnation);
  if (sent.ok()) {
    sent_.fetch_add(1, std::memory_order_relaxed);
    HOTBED_LOG(Info) << "copied " << what << ": " << transfer->bytes_copied << " bytes in "
                     << transfer->passes << (transfer->passes == 1 ? " pass" : " passes")
                     << " as of LSN " << lsn;
  } else {
    failed_.fetch_add(1, std::memory_order_relaxed);
    HOTBED_LOG_EVERY_S(Warning, 1) << "the snapshot of " << what << " broke off after "
                                   << transfer->bytes_copied << " bytes: " << sent.message();
    absl::MutexLock lock(&mu_);
    failed_lately_.push_back(
        {transfer->shard, transfer->to, wiring_.clock->NowNs() + kTransferRetryNs});
  }
  shard->EndSnapshot(transfer->to, lsn, sent.ok());
}

absl::Status SnapshotSender::Send(const Shard& shard, SnapshotCourse* course, Transfer* transfer) {
  using Kind = ReplicaMessage::Kind;
  for (;;) {
    HOTBED_ASSIGN_OR_RETURN(ReplicaMessage message, course->Next());
    if (course->passes() != transfer->passes) {
      NotePass(shard, *course, message.bytes_total, transfer);
    }
    if (message.kind == Kind::kNone) {
      HOTBED_RETURN_IF_ERROR(Await(*course, *transfer, course->sent()));
      continue;
    }
    const uint64_t bytes = message.body.bytes.size();
    if (message.kind != Kind::kSnapshotBegin) {
      HOTBED_RETURN_IF_ERROR(Await(*course, *transfer, message.chunk));
    }
    if (message.kind == Kind::kSnapshotRows) {
      HOTBED_RETURN_IF_ERROR(AwaitRate(*course, *transfer, bytes));
    } else {
      // From its end on pushes may wait for the transfer: no rate and no pause delays it.
      wiring_.rate->WaitNs(bytes, wiring_.clock->NowNs());
    }
    Count(transfer, bytes);
    if (message.kind == Kind::kSnapshotRows) LeaveRateIfOutrun(transfer);
    HOTBED_RETURN_IF_ERROR(course->CheckWanted());
    wiring_.send(std::move(message));
    if (course->ended()) return Await(*course, *transfer, course->sent());
  }
}

void SnapshotSender::NotePass(const Shard& shard, const SnapshotCourse& course, uint64_t bytes,
                              Transfer* transfer) {
  transfer->pass_before_begun_ns = std::exchange(transfer->pass_begun_ns, wiring_.clock->NowNs());
  transfer->pass_before_bytes = std::exchange(transfer->pass_bytes, 0);
  if (course.holds()) transfer->limited = false;
  absl::MutexLock lock(&mu_);
  NoteChanges(shard, transfer);
  transfer->passes = course.passes();
  // How many bytes have changed is not known; at most as many as the previous pass sent.
  transfer->bytes_total =
      transfer->bytes_copied + (transfer->passes == 1 ? bytes : transfer->pass_before_bytes);
}

// Bytes of rows that pushes changed between the begins of the last two passes. A row that changed
// twice counts twice.
void SnapshotSender::NoteChanges(const Shard& shard, Transfer* transfer) {
  const uint64_t before = std::exchange(transfer->rows_pushed, shard.rows_pushed());
  if (transfer->passes == 0) return;
  const double bytes =
      static_cast<double>(transfer->rows_pushed - before) * shard.spilled().record_bytes();
  const int64_t ns =
      std::max(transfer->pass_begun_ns - transfer->pass_before_begun_ns, kMillisecondNs);
  transfer->changed_bytes_per_s =
      static_cast<uint64_t>(bytes / static_cast<double>(ns) * kSecondNs);
}

// Passes that do not halve in length might never end.
void SnapshotSender::LeaveRateIfOutrun(Transfer* transfer) {
  absl::MutexLock lock(&mu_);
  const uint64_t rate = wiring_.rate->rate();
  if (transfer->passes < 2 || rate == 0 || transfer->beyond_rate) return;
  if (transfer->pass_bytes <= transfer->pass_before_bytes / 2) return;
  transfer->beyond_rate = true;
  transfer->limited = false;
  HOTBED_LOG_EVERY_S(Warning, 1)
      << transfer->shard.ToString() << ": pushes change " << transfer->changed_bytes_per_s
      << " bytes of its rows a second, too much for the " << rate
      << " that all transfers may send: its transfer continues beyond that";
}

absl::Status SnapshotSender::Await(const SnapshotCourse& course, const Transfer& transfer,
                                   uint64_t chunks) {
  const int64_t end_ns = wiring_.clock->NowNs() + kAnswerNsMax;
  absl::MutexLock lock(&mu_);
  const auto answered = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return stops_ || !transfer.error.ok() || transfer.answers.Cover(chunks);
  };
  while (!AwaitFor(&mu_, absl::Condition(&answered), kLook)) {
    HOTBED_RETURN_IF_ERROR(course.CheckWanted());
    if (wiring_.clock->NowNs() >= end_ns) {
      return absl::DeadlineExceededError(
          absl::StrCat("no answer for ", kAnswerNsMax / kSecondNs, " s"));
    }
  }
  if (stops_) return absl::CancelledError("this server is stopping");
  return transfer.error;
}

absl::Status SnapshotSender::AwaitRate(const SnapshotCourse& course, const Transfer& transfer,
                                       uint64_t bytes) {
  while (wiring_.rate->paused()) {
    HOTBED_RETURN_IF_ERROR(Sleep(kPausedStepNs));
    HOTBED_RETURN_IF_ERROR(course.CheckWanted());
  }
  // Without a limit its bytes still count: the other transfers make up for them.
  int64_t wait_ns = wiring_.rate->WaitNs(bytes, wiring_.clock->NowNs());
  if (!transfer.limited) wait_ns = 0;
  for (; wait_ns > 0; wait_ns -= kPausedStepNs) {
    HOTBED_RETURN_IF_ERROR(Sleep(std::min(wait_ns, kPausedStepNs)));
    HOTBED_RETURN_IF_ERROR(course.CheckWanted());
  }
  while (wiring_.queued_bytes(transfer.to) > kTransferQueuedBytesMax) {
    HOTBED_RETURN_IF_ERROR(Sleep(kBusyStepNs));
    HOTBED_RETURN_IF_ERROR(course.CheckWanted());
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

void SnapshotSender::Count(Transfer* transfer, uint64_t bytes) {
  const int64_t now_ns = wiring_.clock->NowNs();
  absl::MutexLock lock(&mu_);
  transfer->bytes_copied += bytes;
  transfer->bytes_total = std::max(transfer->bytes_total, transfer->bytes_copied);
  transfer->rate_bytes += bytes;
  transfer->pass_bytes += bytes;
  const int64_t passed_ns = now_ns - transfer->rate_since_ns;
  if (passed_ns < kSecondNs && transfer->bytes_per_s != 0) return;
  transfer->bytes_per_s =
      static_cast<uint64_t>(static_cast<double>(transfer->rate_bytes) * kSecondNs /
                            std::max<int64_t>(passed_ns, kMillisecondNs));
  if (passed_ns < kSecondNs) return;
  transfer->rate_since_ns = now_ns;
  transfer->rate_bytes = 0;
}

}  // namespace hotbed
