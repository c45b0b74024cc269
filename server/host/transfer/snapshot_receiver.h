// The thread on which snapshot transfers from other servers are written (snapshot_intake.h): their
// messages in order. Thread-safe.
#ifndef HOTBED_SERVER_HOST_TRANSFER_SNAPSHOT_RECEIVER_H_
#define HOTBED_SERVER_HOST_TRANSFER_SNAPSHOT_RECEIVER_H_

#include <cstdint>
#include <deque>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "common/status_numbers.h"
#include "server/host/transfer/snapshot_intake.h"
#include "server/shard/replica/replica_message.h"

namespace hotbed {

constexpr size_t kTransferMessagesMax = 256;  // not handled yet

class SnapshotReceiver {
 public:
  // The site is called from this object's thread alone.
  SnapshotReceiver(SnapshotIntake::Site* site, const Clock* clock);
  ~SnapshotReceiver() { Stop(); }

  // As SnapshotIntake's.
  void OnMessage(const Member& from, ReplicaMessage message) ABSL_LOCKS_EXCLUDED(mu_);
  void OnPeerLost(const Member& peer) ABSL_LOCKS_EXCLUDED(mu_);
  void Check() ABSL_LOCKS_EXCLUDED(mu_);
  // Leaves transfers in flight as they are: the next start deletes their rows.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

  void AddNumbers(StatusNumbers* numbers) const { intake_.AddNumbers(numbers); }
  size_t in_flight() const { return intake_.in_flight(); }

 private:
  struct Message {
    Member from;
    ReplicaMessage message;  // kNone: the peer is lost, or, without a peer, Check was called
  };

  void Work() ABSL_LOCKS_EXCLUDED(mu_);

  SnapshotIntake intake_;  // the thread's
  absl::Mutex mu_;
  std::deque<Message> messages_ ABSL_GUARDED_BY(mu_);
  bool stops_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_HOST_TRANSFER_SNAPSHOT_RECEIVER_H_
