// Takes copies of shards from other servers: their rows are written into this server's own spill
// tier, and when all are durable the shard opens as it does after a crash (docs/protocol.md,
// snapshots).
//
// kCopiesReceivedMax at a time; who asks beyond that waits for its answer. Messages are carried out
// in order by a thread of its own. A copy whose sender falls silent, or that the shard's record
// does not want any more, is taken back by Check. Thread-safe.
#ifndef HOTBED_SERVER_HOST_SNAPSHOT_RECEIVER_H_
#define HOTBED_SERVER_HOST_SNAPSHOT_RECEIVER_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "server/shard/replica_message.h"

namespace hotbed {

constexpr size_t kCopiesReceivedMax = 2;
constexpr size_t kCopyMessagesMax = 256;                    // not carried out yet
constexpr int64_t kCopySilentNsMax = 60ll * 1'000'000'000;  // between two messages of a sender

class SnapshotReceiver {
 public:
  // What the shard host does for a copy. Called from the receiver's thread, and from Stop.
  class Site {
   public:
    virtual ~Site() = default;
    // Whether the shard's record still wants a copy from this primary in this epoch.
    virtual bool Wants(ShardId shard, const Member& from, Epoch epoch) const = 0;
    // Takes the shard out of service and deletes what is here of it, durably marked.
    virtual absl::Status Begin(ShardId shard, const Member& from, Epoch epoch, Lsn lsn) = 0;
    virtual absl::Status Write(ShardId shard, absl::string_view block) = 0;
    // With its meta the copy is whole: makes it durable and opens the shard.
    virtual absl::Status Finish(ShardId shard, absl::string_view meta) = 0;
    // Deletes what has come so far.
    virtual void Abandon(ShardId shard) = 0;
    virtual void Reply(ReplicaMessage message) = 0;
  };
  SnapshotReceiver(Site* site, const Clock* clock);
  ~SnapshotReceiver() { Stop(); }

  // A kSnapshotBegin, kSnapshotRows or kSnapshotEnd; or a kAppend, for a shard that is not open:
  // while a primary sends all rows it sends nothing else, so its copy is off.
  void OnMessage(const Member& from, ReplicaMessage message) ABSL_LOCKS_EXCLUDED(mu_);
  void OnPeerLost(const Member& peer) ABSL_LOCKS_EXCLUDED(mu_);
  // Once a second or so: takes back what is not wanted any more.
  void Check() ABSL_LOCKS_EXCLUDED(mu_);
  // What is under way is left as it is: the next start deletes it.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

  uint64_t bytes_total() const { return bytes_.load(std::memory_order_relaxed); }
  uint64_t installed_total() const { return installed_.load(std::memory_order_relaxed); }
  uint64_t refused_total() const { return refused_.load(std::memory_order_relaxed); }
  size_t in_flight() const { return in_flight_.load(std::memory_order_relaxed); }

 private:
  struct Message {
    Member from;
    ReplicaMessage message;  // kNone: the peer is lost, or (no peer) a look at all
  };
  struct Install {
    ShardId shard;
    Member from;
    Epoch epoch = 0;
    uint64_t transfer = 0;
    Lsn lsn = 0;
    uint64_t chunks = 0;
    int64_t heard_ns = 0;
  };

  void Work() ABSL_LOCKS_EXCLUDED(mu_);
  void CarryOut(Message message);
  void Begin(Message message);
  void Rows(Install* install, const ReplicaMessage& message);
  void End(Install* install, const ReplicaMessage& message);
  void Answer(const Install& install, const absl::Status& status, Lsn lsn);
  void TakeBack(size_t index, const char* why);
  void TakeBackWhere(const std::function<const char*(const Install&)>& why);
  void BeginWaiting();
  void RefuseWaiting(const Member& from);
  Install InstallOf(const Message& message) const;

  Site* const site_;
  const Clock* const clock_;
  std::atomic<uint64_t> bytes_{0};
  std::atomic<uint64_t> installed_{0};
  std::atomic<uint64_t> refused_{0};
  std::atomic<size_t> in_flight_{0};

  // The thread's.
  std::vector<Install> installs_;
  std::deque<Message> waiting_;  // begins

  absl::Mutex mu_;
  std::deque<Message> messages_ ABSL_GUARDED_BY(mu_);
  bool stops_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_HOST_SNAPSHOT_RECEIVER_H_
