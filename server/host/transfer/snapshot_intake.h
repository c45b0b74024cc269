// The snapshot transfers of shards that come from other servers, message by message: which of them
// may begin, and which are taken back. Their rows go to the site, which writes them into this
// server's spill tier. When all rows are durable, the shard opens as it does after a crash
// (docs/protocol.md, snapshots).
//
// At most kTransfersReceivedMax transfers run at a time; further senders wait for their answer.
// Check takes back a transfer whose sender is silent, or which the shard's record does not want any
// more. Thread-compatible, but for the numbers: SnapshotReceiver calls it from a thread of its own,
// and the simulation (tests/sim) as its messages arrive.
#ifndef HOTBED_SERVER_HOST_TRANSFER_SNAPSHOT_INTAKE_H_
#define HOTBED_SERVER_HOST_TRANSFER_SNAPSHOT_INTAKE_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/clock.h"
#include "common/status_numbers.h"
#include "server/shard/replica/replica_message.h"

namespace hotbed {

constexpr size_t kTransfersReceivedMax = 2;
constexpr int64_t kTransferSilentNsMax = 60 * kSecondNs;  // between two messages of a sender

class SnapshotIntake {
 public:
  // The shard host's part in a transfer.
  class Site {
   public:
    virtual ~Site() = default;
    // Whether the shard's record still wants a snapshot from this primary in this epoch.
    virtual bool Wants(ShardId shard, const Member& from, Epoch epoch) const = 0;
    // Takes the shard out of service, marks it durably as incomplete, and deletes its rows here.
    virtual absl::Status Begin(ShardId shard, const Member& from, Epoch epoch, Lsn lsn) = 0;
    virtual absl::Status Write(ShardId shard, absl::string_view block) = 0;
    // With its meta the snapshot is complete: makes it durable and opens the shard.
    virtual absl::Status Finish(ShardId shard, absl::string_view meta) = 0;
    // Deletes the rows that have come so far.
    virtual void Abandon(ShardId shard) = 0;
    virtual void Reply(ReplicaMessage message) = 0;
  };
  SnapshotIntake(Site* site, const Clock* clock, int64_t silent_ns_max = kTransferSilentNsMax)
      : site_(site), clock_(clock), silent_ns_max_(silent_ns_max) {}

  // A kSnapshotBegin, kSnapshotRows or kSnapshotEnd; or a kAppend for a shard that is not open. A
  // primary sends no append during a transfer, so that one means that the transfer has ended.
  void OnMessage(const Member& from, const ReplicaMessage& message);
  void OnPeerLost(const Member& peer);
  // To be called about once per second: takes back transfers that are not wanted any more.
  void Check() { OnPeerLost(Member()); }

  // Thread-safe.
  void AddNumbers(StatusNumbers* numbers) const {
    numbers->Add("snapshots_received", "hotbed_server_snapshots_received_total",
                 "Snapshot transfers of shards completed from other servers.",
                 installed_.load(std::memory_order_relaxed));
    numbers->Add("snapshot_bytes_received", "hotbed_server_snapshot_received_bytes_total",
                 "Bytes of snapshot transfers from other servers.",
                 bytes_.load(std::memory_order_relaxed));
  }
  size_t in_flight() const { return in_flight_.load(std::memory_order_relaxed); }

 private:
  struct Install {
    ShardId shard;
    Member from;
    Epoch epoch = 0;
    uint64_t transfer = 0;
    Lsn lsn = 0;
    uint64_t chunks = 0;
    int64_t heard_ns = 0;
  };

  struct Waiting {
    Member from;
    ReplicaMessage begin;
  };

  void Take(const Member& from, const ReplicaMessage& message);
  void Begin(const Member& from, const ReplicaMessage& message);
  void Rows(Install* install, const ReplicaMessage& message);
  void End(Install* install, const ReplicaMessage& message);
  void Answer(const Install& install, const absl::Status& status, Lsn lsn);
  void TakeBack(size_t index, const char* why);
  void TakeBackWhere(const std::function<const char*(const Install&)>& why);
  void BeginWaiting();
  void RefuseWaiting(const Member& from);
  Install InstallOf(const Member& from, const ReplicaMessage& message) const;

  Site* const site_;
  const Clock* const clock_;
  const int64_t silent_ns_max_;
  std::vector<Install> installs_;
  std::deque<Waiting> waiting_;
  std::atomic<uint64_t> bytes_{0};
  std::atomic<uint64_t> installed_{0};
  std::atomic<size_t> in_flight_{0};
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_HOST_TRANSFER_SNAPSHOT_INTAKE_H_
