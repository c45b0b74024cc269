#include "server/host/transfer/snapshot_receiver.h"

#include <utility>

namespace hotbed {

SnapshotReceiver::SnapshotReceiver(SnapshotIntake::Site* site, const Clock* clock)
    : intake_(site, clock) {
  thread_ = std::thread([this] { Work(); });
}

void SnapshotReceiver::Stop() {
  {
    absl::MutexLock lock(&mu_);
    stops_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void SnapshotReceiver::OnMessage(const Member& from, ReplicaMessage message) {
  absl::MutexLock lock(&mu_);
  // Each sender has one message per transfer in flight, and few transfers.
  if (stops_ || messages_.size() >= kTransferMessagesMax) return;
  messages_.push_back({from, std::move(message)});
}

void SnapshotReceiver::OnPeerLost(const Member& peer) {
  absl::MutexLock lock(&mu_);
  messages_.push_back({peer, ReplicaMessage()});
}

void SnapshotReceiver::Check() {
  absl::MutexLock lock(&mu_);
  if (messages_.empty()) messages_.push_back({Member(), ReplicaMessage()});
}

void SnapshotReceiver::Work() {
  for (;;) {
    Message next;
    {
      absl::MutexLock lock(&mu_);
      const auto wakes = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
        return stops_ || !messages_.empty();
      };
      mu_.Await(absl::Condition(&wakes));
      if (stops_) return;
      next = std::move(messages_.front());
      messages_.pop_front();
    }
    if (next.message.kind == ReplicaMessage::Kind::kNone) {
      intake_.OnPeerLost(next.from);
    } else {
      intake_.OnMessage(next.from, next.message);
    }
  }
}

}  // namespace hotbed
