// Sends snapshots of shards, whose primaries are here, to other servers: for moves, refills and
// read replicas (docs/protocol.md, snapshots).
//
// One transfer:
//   1. Take the shard's meta.
//   2. Stream the rows as of that meta or later, in blocks of about 1 MiB. The next block leaves
//      when the receiver has written the previous one.
//   3. If memory cannot hold the log records since then, take the meta again and stream the rows
//      that have changed. A row goes at most once per pass, however often it is pushed to.
//   4. Send the meta. The shard's core then sends the log records since, from memory.
// Rows are written back before a pass if a device holds them, if memory holds more than a million
// of them, and if another transfer of the shard reads them live already.
//
// The passes end: if one is more than half as long as the previous one, pushes are faster than the
// rate, and the transfer continues without a limit. After kTransferPassesMax passes the records are
// held in memory, and pushes to the shard wait for room (Shard::HoldFor).
//
// kTransfersSentMax run at a time, the others wait in order; all share one rate (transfer_rate.h).
// Any error ends a transfer, and the core asks for it again. Thread-safe.
#ifndef HOTBED_SERVER_HOST_TRANSFER_SNAPSHOT_SENDER_H_
#define HOTBED_SERVER_HOST_TRANSFER_SNAPSHOT_SENDER_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "common/status_numbers.h"
#include "server/host/transfer/snapshot_course.h"
#include "server/host/transfer/transfer_progress.h"
#include "server/host/transfer/transfer_rate.h"
#include "server/shard/replica/replica_message.h"
#include "server/shard/shard.h"

namespace hotbed {

constexpr int kTransfersSentMax = 2;
constexpr size_t kTransfersWaitingMax = 65536;
constexpr uint64_t kTransferQueuedBytesMax = 4ull
                                             << 20;  // in a peer's queue; above it senders wait

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
  // Those in flight, then those that wait.
  std::vector<TransferProgress> Progress() const ABSL_LOCKS_EXCLUDED(mu_);
  void AddNumbers(StatusNumbers* numbers) const {
    numbers->Add("snapshots_sent", "hotbed_server_snapshots_sent_total",
                 "Snapshot transfers of shards completed to other servers.",
                 sent_.load(std::memory_order_relaxed));
    numbers->Add("snapshots_failed", "hotbed_server_snapshots_failed_total",
                 "Snapshot transfers of shards that were broken off.",
                 failed_.load(std::memory_order_relaxed));
  }
  // Ends the transfers in flight.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // The progress is under mu_, but for shard and receiver.
  struct Transfer : TransferProgress {
    uint64_t number = 0;  // names the transfer on the wire
    // The sending thread's.
    bool limited = true;  // by the rate
    uint64_t pass_bytes = 0;
    uint64_t pass_before_bytes = 0;
    uint64_t rows_pushed = 0;  // to the shard, as of this pass
    int64_t pass_begun_ns = 0;
    int64_t pass_before_begun_ns = 0;
    // Under mu_.
    SnapshotAnswers answers;
    absl::Status error;  // the receiver's, or the peer is lost
    int64_t begun_ns = 0;
    int64_t rate_since_ns = 0;  // begin of the second that rate_bytes counts
    uint64_t rate_bytes = 0;
  };
  struct Failed {
    ShardId shard;
    Member to;
    int64_t until_ns;
  };

  void Work() ABSL_LOCKS_EXCLUDED(mu_);
  std::shared_ptr<Transfer> Next() ABSL_LOCKS_EXCLUDED(mu_);  // null: stopped
  std::shared_ptr<Transfer> TakeDue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Run(Transfer* transfer) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Send(const Shard& shard, SnapshotCourse* course, Transfer* transfer)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Notes a pass that has begun, of some `bytes` if it is the first one.
  void NotePass(const Shard& shard, const SnapshotCourse& course, uint64_t bytes,
                Transfer* transfer) ABSL_LOCKS_EXCLUDED(mu_);
  void NoteChanges(const Shard& shard, Transfer* transfer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void LeaveRateIfOutrun(Transfer* transfer) ABSL_LOCKS_EXCLUDED(mu_);
  // Waits until the receiver has written that many chunks; the meta is the last one.
  absl::Status Await(const SnapshotCourse& course, const Transfer& transfer, uint64_t chunks)
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status AwaitRate(const SnapshotCourse& course, const Transfer& transfer, uint64_t bytes)
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Sleep(int64_t ns) ABSL_LOCKS_EXCLUDED(mu_);
  void Count(Transfer* transfer, uint64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);

  const Wiring wiring_;
  std::atomic<uint64_t> failed_{0};
  std::atomic<uint64_t> sent_{0};
  mutable absl::Mutex mu_;
  bool stops_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t transfers_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<std::shared_ptr<Transfer>> waiting_ ABSL_GUARDED_BY(mu_);
  std::vector<std::shared_ptr<Transfer>> running_ ABSL_GUARDED_BY(mu_);
  std::vector<Failed> failed_lately_ ABSL_GUARDED_BY(mu_);
  std::vector<std::thread> threads_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_HOST_TRANSFER_SNAPSHOT_SENDER_H_
