#include "server/peers/replica_link.h"

namespace hotbed {
namespace {

// Peers remembered as unheard; beyond it every new peer counts as unheard.
constexpr size_t kUnheardMax = 1024;
constexpr int64_t kStopStepNs = 1'000'000;

}  // namespace

GrpcReplicaNetwork::GrpcReplicaNetwork(const PeerStreamOptions& options, ReplicaInbox* inbox,
                                       const Clock* clock,
                                       std::vector<grpc::CompletionQueue*> queues)
    : options_(options),
      inbox_(inbox),
      clock_(clock),
      queues_(std::move(queues)),
      gauges_([this](std::vector<MetricSample>* samples) {
        absl::ReaderMutexLock lock(&mu_);
        for (const auto& [server, stream] : streams_) {
          AddSample("hotbed_replica_queued_bytes",
                    "Bytes that wait to be sent to another server, by its number.",
                    {{"server", std::to_string(server)}},
                    static_cast<double>(stream->waiting_bytes()), samples);
        }
      }) {}

GrpcReplicaNetwork::~GrpcReplicaNetwork() { Stop(); }

std::shared_ptr<PeerStream> GrpcReplicaNetwork::Find(const Member& peer) const {
  const auto it = streams_.find(peer.server);
  if (it == streams_.end() || !(it->second->ends().peer == peer)) return nullptr;
  return it->second;
}

void GrpcReplicaNetwork::Send(ReplicaMessage message) {
  std::shared_ptr<PeerStream> stream;
  {
    absl::ReaderMutexLock lock(&mu_);
    stream = Find(message.to);
  }
  if (stream == nullptr) return Forget(message.to);
  stream->Send(std::move(message));
}

void GrpcReplicaNetwork::Forget(const Member& to) {
  absl::MutexLock lock(&mu_);
  if (stopped_) return;
  if (const auto stream = Find(to)) return stream->TellLost();  // it was added meanwhile
  if (unheard_.size() < kUnheardMax) unheard_.insert({to.server, to.incarnation});
}

uint64_t GrpcReplicaNetwork::QueuedBytes(const Member& to) const {
  absl::ReaderMutexLock lock(&mu_);
  const auto stream = Find(to);
  return stream == nullptr ? options_.queue_bytes_max : stream->queued_bytes();
}

void GrpcReplicaNetwork::AddStream(const Peer& peer) {
  PeerStreamOptions options = options_;
  options.jitter_seed += ++streams_made_;
  auto stream = std::make_shared<PeerStream>(
      options, PeerStream::Ends{self_, cluster_id_, peer.member, peer.address},
      queues_[streams_made_ % queues_.size()], inbox_, clock_, &live_);
  streams_[peer.member.server] = stream;
  const bool full = unheard_.size() >= kUnheardMax;
  if (unheard_.erase({peer.member.server, peer.member.incarnation}) > 0 || full) stream->TellLost();
}

void GrpcReplicaNetwork::RemoveStream(ServerId server) {
  const auto it = streams_.find(server);
  it->second->Close();
  it->second->TellLost();
  streams_.erase(it);
}

void GrpcReplicaNetwork::SetPeers(const std::vector<Peer>& peers) {
  std::vector<Member> members;
  for (const Peer& peer : peers) members.push_back(peer.member);
  inbox_->SetPeers(members);
  absl::MutexLock lock(&mu_);
  peers_ = peers;
  if (stopped_ || self_.server == 0) return;
  absl::flat_hash_set<ServerId> named;
  for (const Peer& peer : peers) {
    if (peer.member.server == self_.server || peer.address.empty()) continue;
    named.insert(peer.member.server);
    const auto it = streams_.find(peer.member.server);
    if (it != streams_.end()) {
      const PeerStream::Ends& ends = it->second->ends();
      if (ends.peer == peer.member && ends.address == peer.address) continue;
      RemoveStream(peer.member.server);
    }
    AddStream(peer);
  }
  std::vector<ServerId> gone;
  for (const auto& [server, stream] : streams_) {
    if (!named.contains(server)) gone.push_back(server);
  }
  for (const ServerId server : gone) RemoveStream(server);
}

void GrpcReplicaNetwork::SetSelf(const Member& self, const std::string& cluster_id) {
  inbox_->SetSelf(self, cluster_id);
  std::vector<Peer> peers;
  {
    absl::MutexLock lock(&mu_);
    if (stopped_ || (self_ == self && cluster_id_ == cluster_id)) return;
    self_ = self;
    cluster_id_ = cluster_id;
    while (!streams_.empty()) RemoveStream(streams_.begin()->first);
    peers = peers_;
  }
  SetPeers(peers);
}

void GrpcReplicaNetwork::Stop() {
  {
    absl::MutexLock lock(&mu_);
    if (stopped_) return;
    stopped_ = true;
    for (const auto& [server, stream] : streams_) stream->Close();
    streams_.clear();
  }
  while (live_.load() > 0) clock_->SleepNs(kStopStepNs);
}

}  // namespace hotbed
