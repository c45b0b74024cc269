#include "server/host/host_reports.h"

#include <utility>

namespace hotbed {

std::vector<ShardHost::ShardEpoch> HostReports::ShardsToActivate() const {
  std::vector<ShardHost::ShardEpoch> waiting;
  for (const auto& [id, entry] : directory_->Current()) {
    if (entry.shard != nullptr && entry.shard->wants_activation()) {
      waiting.push_back({id, entry.shard->epoch()});
    }
  }
  return waiting;
}

std::vector<ShardHost::JoinReady> HostReports::JoinsReady() const {
  std::vector<ShardHost::JoinReady> ready;
  for (const auto& [id, entry] : directory_->Current()) {
    if (entry.shard == nullptr || entry.record.learners.empty()) continue;
    const Shard::OthersHeard heard = entry.shard->Heard();
    for (const Member& member : heard.joined) ready.push_back({id, heard.epoch, member});
  }
  return ready;
}

std::vector<ShardHost::JoinReady> HostReports::SilentMembers() const {
  std::vector<ShardHost::JoinReady> silent;
  for (const auto& [id, entry] : directory_->Current()) {
    const size_t replicas = entry.record.members.size() + entry.record.learners.size();
    if (entry.shard == nullptr || replicas < 2) continue;
    const Shard::OthersHeard heard = entry.shard->Heard();
    for (const Member& member : heard.silent) {
      if (silent.size() == ShardHost::kSilentMax) return silent;
      silent.push_back({id, heard.epoch, member});
    }
  }
  return silent;
}

std::vector<ShardHost::LostReplica> HostReports::LostReplicas() const {
  const Member self = data_->self();
  std::vector<ShardHost::LostReplica> lost;
  for (const auto& [id, entry] : directory_->Current()) {
    if (entry.shard == nullptr || !entry.shard->ReplicaLost(entry.record, self)) continue;
    lost.push_back({id, entry.record.epoch, entry.shard->error()});
  }
  return lost;
}

ShardHost::Primaries HostReports::CountPrimaries() const {
  const Member self = data_->self();
  ShardHost::Primaries primaries;
  for (const auto& [id, entry] : directory_->Current()) {
    if (entry.shard == nullptr || !(entry.record.primary == self)) continue;
    ++primaries.shards;
    if (entry.shard->active()) continue;
    const std::string error = entry.shard->error();
    if (error.empty()) {
      ++primaries.waiting;
    } else if (++primaries.refused == 1) {
      primaries.first_error = error;
    }
  }
  return primaries;
}

void HostReports::SetListener(std::function<void()> listener) {
  absl::MutexLock lock(&mu_);
  listener_ = std::move(listener);
}

void HostReports::TellListener() const {
  if (ShardsToActivate().empty() && JoinsReady().empty() && LostReplicas().empty()) return;
  std::function<void()> listener;
  {
    absl::MutexLock lock(&mu_);
    listener = listener_;
  }
  if (listener) listener();
}

}  // namespace hotbed
