// Sends all rows of shards, whose primaries are here, to other servers: moves, refills and read
// copies (docs/protocol.md, snapshots).
//
// A copy: the shard's meta is taken; rows are read as they are then or later, a block of about 1
// MiB at a time, each sent when the one before is written there; at last that meta. What was logged
// since is the core's to send, from memory. Where that has not the room for it, another pass
// follows: the meta is taken again, and the rows are sent that have changed since. So a row goes
// once a pass, however often it is pushed to. Rows are swept first where a device has them, where
// memory has more than a million, and for the second of two copies of one shard at a time.
//
// That ends: a pass that is not half as long as the one before shows pushes to be faster than the
// rate, and from there on the copy goes as fast as it can. After kCopyPassesMax the records that
// the copy will need are held whatever comes, and pushes to the shard wait for room
// (Shard::HoldFor).
//
// kCopiesSentMax at a time, the others wait in the order of their asking; all share one rate
// (transfer_rate.h). Whatever goes wrong ends the copy, and the core asks for it again. Thread-safe.
#ifndef HOTBED_SERVER_HOST_SNAPSHOT_SENDER_H_
#define HOTBED_SERVER_HOST_SNAPSHOT_SENDER_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "server/host/transfer_rate.h"
#include "server/shard/replica_message.h"
#include "server/shard/shard.h"

namespace hotbed {

constexpr int kCopiesSentMax = 2;
constexpr size_t kCopiesWaitingMax = 65536;
constexpr int kCopyPassesMax = 8;
constexpr uint64_t kCopyBlockBytes = 1ull << 20;
constexpr uint64_t kCopyQueuedBytesMax = 4ull << 20;  // of a peer's queue, beyond which copies wait

class SnapshotSender {
 public:
  struct Wiring {
    std::function<std::shared_ptr<Shard>(ShardId)> find;
    std::function<void(ReplicaMessage)> send;
    std::function<uint64_t(const Member&)> queued_bytes;
    TransferRate* rate = nullptr;
    const Clock* clock = nullptr;
  };
  explicit SnapshotSender(Wiring wiring);
  ~SnapshotSender() { Stop(); }

  void Start(ShardId shard, const Member& to) ABSL_LOCKS_EXCLUDED(mu_);
  void OnReply(const Member& from, const ReplicaMessage& reply) ABSL_LOCKS_EXCLUDED(mu_);
  void OnPeerLost(const Member& peer) ABSL_LOCKS_EXCLUDED(mu_);
  // Under way, then waiting.
  std::vector<ShardHost::TransferProgress> Progress() const ABSL_LOCKS_EXCLUDED(mu_);
  uint64_t failed_total() const { return failed_.load(std::memory_order_relaxed); }
  uint64_t sent_total() const { return sent_.load(std::memory_order_relaxed); }
  // Ends what is under way.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Copy {
    ShardId shard;
    Member to;
    uint64_t transfer = 0;
    uint64_t chunks = 0;  // sent; of its thread, as are the next six
    bool paced = true;
    uint64_t pass_bytes = 0;
    uint64_t pass_before_bytes = 0;
    uint64_t rows_pushed = 0;  // until this pass
    int64_t swept_ns = 0;      // the begin of the last two passes
    int64_t swept_before_ns = 0;
    uint64_t answered = 0;  // chunks
    bool accepted = false;
    absl::Status error;  // the other side's, or the peer is lost
    uint32_t passes = 0;
    bool beyond_rate = false;
    uint64_t changed_bytes_per_s = 0;
    uint64_t bytes_copied = 0;
    uint64_t bytes_total = 0;
    int64_t begun_ns = 0;
    int64_t rate_since_ns = 0;  // of the last whole second
    uint64_t rate_bytes = 0;
    uint64_t bytes_per_s = 0;
  };
  struct Failed {
    ShardId shard;
    Member to;
    int64_t until_ns;
  };

  void Work() ABSL_LOCKS_EXCLUDED(mu_);
  std::shared_ptr<Copy> Next() ABSL_LOCKS_EXCLUDED(mu_);  // null: stopped
  std::shared_ptr<Copy> TakeDue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Run(Copy* copy) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Send(Shard* shard, Copy* copy, SnapshotBase* base) ABSL_LOCKS_EXCLUDED(mu_);
  // Sends the rows stamped above `base`, which becomes that of this pass.
  absl::Status SendPass(Shard* shard, Copy* copy, bool holds, SnapshotBase* base)
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status SendRows(const Shard& shard, Epoch epoch, ShardRowReader* reader, Copy* copy)
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status SendEnd(Shard* shard, const SnapshotBase& base, Copy* copy) ABSL_LOCKS_EXCLUDED(mu_);
  void BeginPass(Copy* copy, uint64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  void NoteChanges(const Shard& shard, Copy* copy) ABSL_LOCKS_EXCLUDED(mu_);
  void LeaveRateIfOutrun(Copy* copy) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status CheckWanted(const Shard& shard, const Copy& copy, Epoch epoch) const;
  // Until so many chunks are written there; the meta is the last one.
  absl::Status Await(const Shard& shard, Copy* copy, Epoch epoch, uint64_t chunk)
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status AwaitPace(const Shard& shard, Copy* copy, Epoch epoch, uint64_t bytes)
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Sleep(int64_t ns) ABSL_LOCKS_EXCLUDED(mu_);
  void Count(Copy* copy, uint64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);

  const Wiring wiring_;
  std::atomic<uint64_t> failed_{0};
  std::atomic<uint64_t> sent_{0};
  mutable absl::Mutex mu_;
  bool stops_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t transfers_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<std::shared_ptr<Copy>> waiting_ ABSL_GUARDED_BY(mu_);
  std::vector<std::shared_ptr<Copy>> running_ ABSL_GUARDED_BY(mu_);
  std::vector<Failed> failed_lately_ ABSL_GUARDED_BY(mu_);
  std::vector<std::thread> threads_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_HOST_SNAPSHOT_SENDER_H_
