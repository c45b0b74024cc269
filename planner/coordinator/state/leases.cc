#include "planner/coordinator/state/leases.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace hotbed {
namespace {

constexpr size_t kGuardShare = 5;  // one of this many servers may fall silent without being probed

}  // namespace

void Leases::Sync(int64_t now_ns, const ClusterState& state) {
  for (auto it = leases_.begin(); it != leases_.end();) {
    auto server = state.servers().find(it->first);
    const bool live = server != state.servers().end() && server->second.live();
    it = live ? std::next(it) : leases_.erase(it);
  }
  for (const auto& [id, info] : state.servers()) {
    if (!info.live()) {
      gone_since_ns_.emplace(id, now_ns);
      continue;
    }
    Lease& lease = leases_[id];
    if (lease.incarnation == info.incarnation()) continue;
    lease = Lease();
    lease.incarnation = info.incarnation();
    lease.address = info.address();
    lease.since_ns = now_ns;
    lease.deadline_ns = now_ns + options_.ttl_ns;
    lease.load = info.load();
    gone_since_ns_.erase(id);
  }
}

void Leases::RenewAll(int64_t now_ns) {
  for (auto& [server, lease] : leases_) lease.deadline_ns = now_ns + options_.ttl_ns;
  silent_ends_ns_.clear();
}

void Leases::Renew(int64_t now_ns, ServerId server) {
  auto it = leases_.find(server);
  if (it != leases_.end()) it->second.deadline_ns = now_ns + options_.ttl_ns;
}

bool Leases::OnHeartbeat(int64_t now_ns, const v1::HeartbeatRequest& request) {
  auto it = leases_.find(request.server());
  if (it == leases_.end() || it->second.incarnation != request.incarnation() || it->second.ended) {
    return false;
  }
  Lease& lease = it->second;
  lease.deadline_ns = now_ns + options_.ttl_ns;
  lease.heard_ns = now_ns;
  if (request.draining() && !lease.stopping) lease.stopping_since_ns = now_ns;
  lease.stopping = request.draining();
  lease.transfers.assign(request.transfers().begin(), request.transfers().end());
  return true;
}

void Leases::TakeLoad(ServerId server, v1::ServerLoad load) {
  leases_.at(server).load = std::move(load);
}

void Leases::OnRegistering(int64_t now_ns, const ClusterState& state,
                           const v1::RegisterServerRequest& request) {
  const auto known = state.servers().find(request.server());
  const auto it = leases_.find(request.server());
  if (known == state.servers().end() || it == leases_.end() || it->second.ended ||
      known->second.run() == request.run() || known->second.address() == request.address()) {
    return;
  }
  Lease& lease = it->second;
  std::erase_if(lease.askers, [&](const Asker& a) { return now_ns - a.last_ns > kAskerSilentNs; });
  const auto asker = std::find_if(lease.askers.begin(), lease.askers.end(),
                                  [&](const Asker& a) { return a.run == request.run(); });
  if (asker != lease.askers.end()) {
    asker->last_ns = now_ns;
  } else if (lease.askers.size() < kAskersMax) {
    lease.askers.push_back({request.run(), now_ns, now_ns});
  }
  Probe(request.server(), &lease);
}

Rival Leases::RivalOf(ServerId server, uint64_t run) const {
  const Lease* const lease = Find(server);
  if (lease == nullptr || lease->ended) return Rival::kGone;
  const bool heard = std::any_of(lease->askers.begin(), lease->askers.end(), [&](const Asker& a) {
    return a.run == run && lease->heard_ns - a.since_ns >= kRivalRunsNs;
  });
  return heard ? Rival::kRuns : Rival::kMayRun;
}

void Leases::OnStreamBroken(ServerId server, Incarnation incarnation) {
  auto it = leases_.find(server);
  if (it == leases_.end() || it->second.incarnation != incarnation || it->second.ended) return;
  Probe(server, &it->second);
}

void Leases::OnProbed(int64_t now_ns, ServerId server, Incarnation incarnation,
                      ProbeAnswer answer) {
  auto it = leases_.find(server);
  if (it == leases_.end() || it->second.incarnation != incarnation || !it->second.probing) return;
  Lease& lease = it->second;
  lease.probing = false;
  const bool guarded = std::exchange(lease.guarded, false);
  if (lease.ended) return;
  if (answer == ProbeAnswer::kRefused) {
    return End(now_ns, server, &lease, "its connections broke and its data port is closed");
  }
  if (!guarded || lease.deadline_ns > now_ns) return;
  if (answer == ProbeAnswer::kSilent) {
    End(now_ns, server, &lease, "no heartbeat in time, as of others, and no answer to a probe");
  } else {
    lease.deadline_ns = now_ns + options_.ttl_ns;
  }
}

bool Leases::TooMany(size_t silent) const {
  return silent > 1 && silent * kGuardShare > leases_.size();
}

void Leases::Tick(int64_t now_ns) {
  while (!silent_ends_ns_.empty() && now_ns - silent_ends_ns_.front() > options_.ttl_ns) {
    silent_ends_ns_.pop_front();
  }
  size_t silent = silent_ends_ns_.size();
  for (const auto& [server, lease] : leases_) {
    silent += !lease.ended && lease.deadline_ns <= now_ns;
  }
  const bool guard = TooMany(silent);
  for (auto& [server, lease] : leases_) {
    if (lease.ended || lease.deadline_ns > now_ns) continue;
    if (guard) {
      lease.guarded = true;
      Probe(server, &lease);
    } else if (!lease.guarded) {
      silent_ends_ns_.push_back(now_ns);
      End(now_ns, server, &lease,
          absl::StrCat("no heartbeat for ", options_.ttl_ns / 1000000, " ms"));
    }
  }
}

void Leases::Probe(ServerId server, Lease* lease) {
  if (std::exchange(lease->probing, true)) return;
  probes_.push_back({server, lease->incarnation, lease->address});
}

void Leases::End(int64_t now_ns, ServerId server, Lease* lease, std::string why) {
  lease->ended = true;
  lease->why = std::move(why);
  gone_since_ns_.insert_or_assign(server, now_ns);
}

std::vector<Leases::Ended> Leases::TakeEnded() {
  std::vector<Ended> out;
  for (auto& [server, lease] : leases_) {
    if (!lease.ended || std::exchange(lease.told, true)) continue;
    out.push_back({server, lease.incarnation, lease.why});
  }
  return out;
}

void Leases::ForgetTold() {
  for (auto& [server, lease] : leases_) lease.told = false;
}

std::vector<ProbeRequest> Leases::TakeProbes() { return std::exchange(probes_, {}); }

Incarnation Leases::LiveIncarnation(ServerId server) const {
  auto it = leases_.find(server);
  return it == leases_.end() || it->second.ended ? 0 : it->second.incarnation;
}

bool Leases::Stopping(ServerId server) const {
  auto it = leases_.find(server);
  return it != leases_.end() && it->second.stopping;
}

bool Leases::StopsAlone(int64_t now_ns, ServerId server) const {
  auto it = leases_.find(server);
  return it != leases_.end() && it->second.stopping &&
         now_ns - it->second.stopping_since_ns >= kStopsTogetherNs;
}

bool Leases::LiveForAwaited(int64_t now_ns, ServerId server) const {
  return Held(server) && now_ns - leases_.at(server).since_ns >= options_.awaited_ns;
}

bool Leases::Awaited(int64_t now_ns, ServerId server) const {
  if (Held(server)) return Stopping(server);
  auto it = gone_since_ns_.find(server);
  return it != gone_since_ns_.end() && now_ns - it->second < options_.awaited_ns;
}

int64_t Leases::GoneSinceNs(ServerId server) const {
  auto it = gone_since_ns_.find(server);
  return it == gone_since_ns_.end() ? 0 : it->second;
}

bool Leases::AnyAwaited(int64_t now_ns) const {
  const auto awaited = [&](const auto& one) { return Awaited(now_ns, one.first); };
  return std::any_of(gone_since_ns_.begin(), gone_since_ns_.end(), awaited) ||
         std::any_of(leases_.begin(), leases_.end(), awaited);
}

const Leases::Lease* Leases::Find(ServerId server) const {
  auto it = leases_.find(server);
  return it == leases_.end() ? nullptr : &it->second;
}

const v1::TransferProgress* Leases::ProgressOf(const ShardRecord& record, const Member& to) const {
  const Lease* const source = Find(record.primary.server);
  if (source == nullptr) return nullptr;
  for (const v1::TransferProgress& transfer : source->transfers) {
    if (transfer.shard() == record.shard.packed() && MemberOf(transfer.to()) == to)
      return &transfer;
  }
  return nullptr;
}

}  // namespace hotbed
