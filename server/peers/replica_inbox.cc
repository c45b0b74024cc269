#include "server/peers/replica_inbox.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/shard/request/not_given.h"

namespace hotbed {
namespace {

// Sets `more` of each message that is written to the log: whether another such message follows.
void MarkMore(std::vector<ReplicaMessage>* messages) {
  bool more = false;
  for (auto message = messages->rbegin(); message != messages->rend(); ++message) {
    const bool log = message->kind == ReplicaMessage::Kind::kAppend ||
                     message->kind == ReplicaMessage::Kind::kAppendReply;
    message->more = log && more;
    more = more || log;
  }
}

}  // namespace

void ReplicaInbox::SetSelf(const Member& self, const std::string& cluster_id) {
  absl::MutexLock lock(&mu_);
  self_ = self;
  cluster_id_ = cluster_id;
}

Member ReplicaInbox::self() const {
  absl::MutexLock lock(&mu_);
  return self_;
}

std::string ReplicaInbox::cluster_id() const {
  absl::MutexLock lock(&mu_);
  return cluster_id_;
}

ReplicaInbox::Peer* ReplicaInbox::Find(ServerId server) const {
  absl::MutexLock lock(&mu_);
  const auto it = peers_.find(server);
  return it == peers_.end() ? nullptr : it->second.get();
}

void ReplicaInbox::SetPeers(const std::vector<Member>& peers) {
  for (const Member& member : peers) {
    Peer* peer = nullptr;
    {
      absl::MutexLock lock(&mu_);
      std::unique_ptr<Peer>& slot = peers_[member.server];
      if (slot == nullptr) slot = std::make_unique<Peer>();
      peer = slot.get();
    }
    absl::MutexLock lock(&peer->mu);
    peer->given = std::max(peer->given, member.incarnation);
  }
}

absl::StatusOr<uint64_t> ReplicaInbox::Open(const Member& from) {
  const auto unknown = [&](Incarnation given) {
    NotGiven::Get().server.Add(1);
    return absl::UnavailableError(absl::StrCat(
        "the coordinator's map names no server ", from.server, " incarnation ", from.incarnation,
        " here yet (the highest is ", given, "); try again when it has registered"));
  };
  Peer* const peer = Find(from.server);
  if (peer == nullptr) return unknown(0);
  uint64_t stream = 0;
  {
    absl::MutexLock lock(&mu_);
    stream = ++streams_;
  }
  absl::MutexLock lock(&peer->mu);
  if (from.incarnation > peer->given) return unknown(peer->given);
  if (from.incarnation < peer->incarnation) {
    return absl::FailedPreconditionError(absl::StrCat("server ", from.server, " incarnation ",
                                                      from.incarnation, " is over: incarnation ",
                                                      peer->incarnation, " has spoken here"));
  }
  if (peer->stream != 0) sink_->OnPeerLost({from.server, peer->incarnation});
  peer->incarnation = from.incarnation;
  peer->stream = stream;
  return stream;
}

bool ReplicaInbox::Deliver(const Member& from, uint64_t stream,
                           std::vector<ReplicaMessage>* messages) {
  Peer* const peer = Find(from.server);
  if (peer == nullptr) return false;
  absl::MutexLock lock(&peer->mu);
  if (peer->stream != stream) return false;
  MarkMore(messages);
  for (ReplicaMessage& message : *messages) sink_->OnReplicaMessage(from, std::move(message));
  messages->clear();
  return true;
}

void ReplicaInbox::Close(const Member& from, uint64_t stream) {
  Peer* const peer = Find(from.server);
  if (peer == nullptr) return;
  absl::MutexLock lock(&peer->mu);
  if (peer->stream != stream) return;
  peer->stream = 0;
  sink_->OnPeerLost(from);
}

void ReplicaInbox::Lost(const Member& peer, absl::FunctionRef<void()> before) {
  Peer* const found = Find(peer.server);
  if (found == nullptr) return before();
  absl::MutexLock lock(&found->mu);
  before();
  sink_->OnPeerLost(peer);
}

}  // namespace hotbed
