// The shard host between its shards and other servers: messages, promises, ticks, what is reported.
#include <algorithm>
#include <utility>

#include "absl/time/time.h"
#include "common/await_for.h"
#include "common/clock.h"
#include "common/log.h"
#include "server/host/shard_host_impl.h"

namespace hotbed {
namespace {

// Cores count in ticks: of a follower that is silent, of an activation that is not answered.
constexpr int64_t kOftenNs = 100 * kMillisecondNs;
constexpr int64_t kSeldomNs = 1'000 * kMillisecondNs;
constexpr int64_t kExpireStepNs = 10 * kMillisecondNs;  // while requests wait in shards

}  // namespace

Member ShardHostImpl::Self() const {
  absl::MutexLock lock(&identity_mu_);
  return {identity_.server, incarnation_};
}

// --- in

void ShardHostImpl::SetReplicaNetwork(ReplicaNetwork* network) {
  network_.store(network, std::memory_order_release);
}

void ShardHostImpl::OnReplicaMessage(const Member& from, ReplicaMessage message) {
  using Kind = ReplicaMessage::Kind;
  if (!(message.to == Self())) return;  // of a life before
  switch (message.kind) {
    case Kind::kAppend:
    case Kind::kAppendReply: {
      const bool more = message.more;
      const std::shared_ptr<Shard> shard = Find(message.shard);
      if (shard != nullptr) {
        shard->OnReplicaMessage(from, std::move(message));
      } else if (message.kind == Kind::kAppend && receiver_->under_way() > 0) {
        receiver_->OnMessage(from, std::move(message));
      }
      if (!more) log_->Commit();
      return;
    }
    case Kind::kSnapshotBegin:
    case Kind::kSnapshotRows:
    case Kind::kSnapshotEnd:
      return receiver_->OnMessage(from, std::move(message));
    case Kind::kSnapshotReply:
      return sender_->OnReply(from, message);
    case Kind::kNone:
      return;
  }
}

void ShardHostImpl::OnPeerLost(const Member& peer) {
  const auto is_peer = [&peer](const Member& member) { return member == peer; };
  const std::shared_ptr<const ShardMap> map = HeldMap();
  for (const auto& [id, entry] : *map) {
    const ShardRecord& record = entry.record;
    const bool named = std::any_of(record.members.begin(), record.members.end(), is_peer) ||
                       std::any_of(record.learners.begin(), record.learners.end(), is_peer);
    if (entry.shard != nullptr && named) entry.shard->OnPeerLost(peer);
  }
  sender_->OnPeerLost(peer);
  receiver_->OnPeerLost(peer);
}

// --- out

void ShardHostImpl::Send(ReplicaMessage message) {
  ReplicaNetwork* const network = network_.load(std::memory_order_acquire);
  if (network != nullptr) network->Send(std::move(message));
}

void ShardHostImpl::StartCopy(ShardId shard, const Member& to) { sender_->Start(shard, to); }

void ShardHostImpl::PromiseWanted(ShardId shard, Epoch epoch) {
  {
    absl::MutexLock lock(&promise_mu_);
    Epoch& wanted = unpromised_[shard];
    wanted = std::max(wanted, epoch);
  }
  absl::MutexLock lock(&tick_mu_);
  tick_now_ = true;
}

void ShardHostImpl::HasNews() {
  if (news_.exchange(true, std::memory_order_acq_rel)) return;
  absl::MutexLock lock(&tick_mu_);
  tick_now_ = true;
}

void ShardHostImpl::WaitsUntil(int64_t ns) {
  int64_t known_ns = waits_until_ns_.load(std::memory_order_relaxed);
  while (known_ns < ns && !waits_until_ns_.compare_exchange_weak(known_ns, ns)) {
  }
  // The ticker looks often while there is something to wait for; it has to be told of the first.
  if (known_ns > clock_->NowNs()) return;
  absl::MutexLock lock(&tick_mu_);
  tick_now_ = true;
}

std::vector<ShardHost::JoinReady> ShardHostImpl::JoinsReady() const {
  std::vector<JoinReady> ready;
  for (const auto& [id, entry] : Map()) {
    if (entry.shard == nullptr || entry.record.learners.empty()) continue;
    const Shard::OthersHeard heard = entry.shard->Heard();
    for (const Member& member : heard.joined) ready.push_back({id, heard.epoch, member});
  }
  return ready;
}

std::vector<ShardHost::JoinReady> ShardHostImpl::SilentMembers() const {
  std::vector<JoinReady> silent;
  for (const auto& [id, entry] : Map()) {
    const size_t copies = entry.record.members.size() + entry.record.learners.size();
    if (entry.shard == nullptr || copies < 2) continue;
    const Shard::OthersHeard heard = entry.shard->Heard();
    for (const Member& member : heard.silent) {
      if (silent.size() == kSilentMax) return silent;
      silent.push_back({id, heard.epoch, member});
    }
  }
  return silent;
}

std::vector<ShardHost::TransferProgress> ShardHostImpl::Transfers() const { return sender_->Progress(); }

std::vector<ShardHost::LostReplica> ShardHostImpl::LostReplicas() const {
  const Member self = Self();
  std::vector<LostReplica> lost;
  for (const auto& [id, entry] : Map()) {
    if (entry.shard == nullptr || !entry.shard->CopyLost(entry.record, self)) continue;
    lost.push_back({id, entry.record.epoch, entry.shard->error()});
  }
  return lost;
}

std::vector<ShardId> ShardHostImpl::Held() const {
  absl::MutexLock control(&control_mu_);
  std::vector<ShardId> held;
  for (const auto& [shard, range] : catalog_.shards) held.push_back(shard);
  return held;
}

// --- the ticker

void ShardHostImpl::TickLoop() {
  int64_t often_ns = 0;
  int64_t seldom_ns = 0;
  for (;;) {
    const bool expires = waits_until_ns_.load(std::memory_order_relaxed) > 0;
    {
      absl::MutexLock lock(&tick_mu_);
      AwaitFor(&tick_mu_, absl::Condition(this, &ShardHostImpl::TickWakes),
               absl::Nanoseconds(expires ? kExpireStepNs : kOftenNs));
      if (ticks_stop_) return;
      tick_now_ = false;
    }
    if (const absl::Status kept = KeepPromises(); !kept.ok()) {
      HOTBED_LOG_EVERY_S(Error, 10) << "cannot keep promises: " << kept;
    }
    if (news_.exchange(false, std::memory_order_acq_rel)) CallListener();
    const int64_t now_ns = clock_->NowNs();
    if (expires) ExpireWaiting(now_ns);
    if (now_ns - often_ns < kOftenNs) continue;
    often_ns = now_ns;
    const bool all = now_ns - seldom_ns >= kSeldomNs;
    if (all) seldom_ns = now_ns;
    TickShards(all);
  }
}

void ShardHostImpl::ExpireWaiting(int64_t now_ns) {
  int64_t until_ns = waits_until_ns_.load(std::memory_order_relaxed);
  const std::shared_ptr<const ShardMap> map = HeldMap();
  for (const auto& [id, entry] : *map) {
    if (entry.shard != nullptr && entry.shard->has_waiting()) entry.shard->ExpireWaiting();
  }
  if (now_ns > until_ns) waits_until_ns_.compare_exchange_strong(until_ns, 0);
}

void ShardHostImpl::TickShards(bool all) {
  const std::shared_ptr<const ShardMap> map = HeldMap();
  for (const auto& [id, entry] : *map) {
    const std::shared_ptr<Shard>& shard = entry.shard;
    if (shard == nullptr) continue;
    if (all || shard->ticks_often() || shard->read_only()) shard->Tick();
  }
  log_->Commit();
}

}  // namespace hotbed
