#include "server/host/mark_sweeper.h"

#include <algorithm>

#include "absl/time/time.h"
#include "common/log.h"
#include "common/threads/await_for.h"

namespace hotbed {
namespace {

// Between two looks: a part of the time for which marks stay, within these.
constexpr int64_t kMarksLookPart = 16;
constexpr int64_t kMarksLookNsMin = 50 * kMillisecondNs;
constexpr int64_t kMarksLookNsMax = 10 * kSecondNs;
// Space is given back for so many bytes of marks, if they are this part of what the shard takes.
constexpr uint64_t kMarkBytes = 27;  // with its key, before compression
constexpr uint64_t kMarksCompactBytesMin = 16ull << 20;
constexpr uint64_t kMarksCompactPart = 4;

}  // namespace

void MarkSweeper::Start() {
  thread_ = std::thread([this] { Loop(); });
}

void MarkSweeper::Stop() {
  {
    absl::MutexLock lock(&mu_);
    stops_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

bool MarkSweeper::Stops() {
  absl::MutexLock lock(&mu_);
  return stops_;
}

void MarkSweeper::Loop() {
  const int64_t look_ns = std::clamp(keep_ns_ / kMarksLookPart, kMarksLookNsMin, kMarksLookNsMax);
  for (;;) {
    {
      absl::MutexLock lock(&mu_);
      AwaitFor(&mu_, absl::Condition(&stops_), absl::Nanoseconds(look_ns));
      if (stops_) return;
    }
    const auto shards = directory_->Shards();
    for (const std::shared_ptr<Shard>& shard : *shards) {
      if (!shard->table().hashed) continue;  // no other table's rows are deleted
      Sweep(shard.get());
      if (Stops()) return;
    }
  }
}

void MarkSweeper::Sweep(Shard* shard) {
  int64_t worked_from_ns = clock_->NowNs();
  const auto go_on = [&]() -> absl::Status {
    if (Stops()) return absl::AbortedError("this server is stopping");
    const int64_t now_ns = clock_->NowNs();
    clock_->SleepNs(now_ns - worked_from_ns);
    worked_from_ns = clock_->NowNs();
    return absl::OkStatus();
  };
  const absl::StatusOr<uint64_t> gone = shard->DropMarks(keep_ns_, go_on);
  absl::Status status = gone.status();
  if (gone.ok()) {
    const uint64_t bytes = *gone * kMarkBytes;
    if (bytes < kMarksCompactBytesMin ||
        bytes < tiers_->SpilledBytes(shard->spilled()) / kMarksCompactPart) {
      return;
    }
    status = tiers_->CompactShard(shard->spilled());
  }
  if (status.ok() || absl::IsAborted(status) || absl::IsFailedPrecondition(status)) return;
  HOTBED_LOG_EVERY_S(Warning, 10) << "cannot take away marks of deleted rows: " << status;
}

}  // namespace hotbed
