#include "server/host/host_reports.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace hotbed {

template <typename Visit>
void HostReports::ForEachWatched(Visit visit) const {
  const std::vector<ShardId> watched = watched_->List();
  if (watched.empty()) return;
  const ShardDirectory::Map& map = directory_->Current();
  for (const ShardId id : watched) {
    const auto entry = map.find(id);
    if (entry != map.end() && entry->second.shard != nullptr) visit(id, entry->second);
  }
}

std::vector<ShardHost::ShardEpoch> HostReports::ShardsToActivate() const {
  std::vector<ShardHost::ShardEpoch> waiting;
  ForEachWatched([&](ShardId id, const ShardDirectory::Entry& entry) {
    if (entry.shard->wants_activation()) waiting.push_back({id, entry.shard->epoch()});
  });
  return waiting;
}

std::vector<ShardHost::JoinReady> HostReports::JoinsReady() const {
  std::vector<ShardHost::JoinReady> ready;
  ForEachWatched([&](ShardId id, const ShardDirectory::Entry& entry) {
    if (entry.record->learners.empty()) return;
    const Shard::OthersHeard heard = entry.shard->Heard();
    for (const Member& member : heard.joined) ready.push_back({id, heard.epoch, member});
  });
  return ready;
}

std::vector<ShardHost::JoinReady> HostReports::SilentMembers() const {
  std::vector<ShardHost::JoinReady> silent;
  ForEachWatched([&](ShardId id, const ShardDirectory::Entry& entry) {
    const size_t replicas = entry.record->members.size() + entry.record->learners.size();
    if (replicas < 2) return;
    const Shard::OthersHeard heard = entry.shard->Heard();
    for (const Member& member : heard.silent) {
      if (silent.size() < ShardHost::kSilentMax) silent.push_back({id, heard.epoch, member});
    }
  });
  return silent;
}

std::vector<ShardHost::LostReplica> HostReports::LostReplicas() const {
  const Member self = data_->self();
  std::vector<ShardHost::LostReplica> lost;
  ForEachWatched([&](ShardId id, const ShardDirectory::Entry& entry) {
    if (!entry.shard->ReplicaLost(entry.record, self)) return;
    lost.push_back({id, entry.record->epoch, entry.shard->error()});
  });
  return lost;
}

std::vector<ShardId> HostReports::AskedFor(
    const std::shared_ptr<const ShardDirectory::Map>& map) const {
  const Member self = data_->self();
  absl::MutexLock lock(&asked_mu_);
  if (asked_in_ == map && asked_of_ == self) return asked_;
  asked_.clear();
  for (const auto& [id, entry] : *map) {
    if (entry.record->AsksFor(self)) asked_.push_back(id);
  }
  asked_in_ = map;
  asked_of_ = self;
  return asked_;
}

std::vector<ShardHost::HeldReplica> HostReports::HeldReplicas(bool asked_for) const {
  std::vector<ShardHost::HeldReplica> held;
  const std::shared_ptr<const Catalog> catalog = data_->catalog();
  const auto map = directory_->Hold();
  std::vector<ShardId> ids;
  if (asked_for) {
    ids = AskedFor(map);
  } else {
    for (const auto& [id, entry] : *map) {
      if (entry.shard != nullptr) ids.push_back(id);
    }
  }
  for (const ShardId id : ids) {
    const ShardDirectory::Entry& entry = map->at(id);
    ShardHost::HeldReplica one;
    one.shard = id;
    one.nothing = entry.shard == nullptr;
    // Its rows are here, in a replica that has to be cut first.
    if (one.nothing && catalog->HoldsUnderAnother(id, entry.record->range)) continue;
    if (!one.nothing) {
      const Shard::ReplicaEnd end = entry.shard->End();
      one.end = end.log;
      one.behind = end.behind;
      one.member_of = end.member_of;
      one.committed_step = end.committed_step;
      one.damaged = entry.shard->refused();
      const bool fence = entry.record->primary.incarnation == 0;
      if (asked_for && fence && !one.damaged && end.promised < entry.record->epoch) continue;
    }
    held.push_back(one);
  }
  return held;
}

ShardHost::Recollection HostReports::Recollect() const {
  ShardHost::Recollection recollection;
  recollection.servers = data_->servers();
  const std::shared_ptr<const Catalog> catalog = data_->catalog();
  const auto map = directory_->Hold();
  for (const auto& [id, range] : catalog->shards) {
    const auto entry = map->find(id);
    if (entry == map->end() || entry->second.shard == nullptr) continue;
    ShardRecord& record = recollection.records.emplace_back(*entry->second.record);
    record.shard = id;
    record.range = range;
    if (const auto lanes = catalog->lanes.find(id); lanes != catalog->lanes.end()) {
      record.lanes = lanes->second;
    }
    // PROMISES knows who held the shard, also before the coordinator has told its record.
    const PromiseFile::Promise promise = promises_->Find(id);
    if (record.epoch == 0) {
      record.active = true;
      for (const ServerId server : promise.holders) record.members.push_back({server, 0});
    }
    record.epoch = std::max(record.epoch, promise.epoch);
    const std::vector<TableSpec>& known = recollection.tables;
    if (known.empty() || known.back().id != id.table) {
      recollection.tables.push_back(catalog->tables.at(id.table));
    }
  }
  return recollection;
}

std::string HostReports::UndecidedText() const {
  const Member self = data_->self();
  size_t count = 0;
  std::string first;
  for (const auto& [id, entry] : directory_->Current()) {
    if (!entry.record->AsksFor(self)) continue;
    if (count++ == 0) first = id.ToString();
  }
  if (count == 0) return "";
  return absl::StrCat("the coordinator has not decided whether the replicas here count, of ", first,
                      count == 1 ? "" : absl::StrCat(" and ", count - 1, " others"),
                      "; 'hotbed doctor' says which members are waited for");
}

ShardHost::Primaries HostReports::CountPrimaries() const {
  const Member self = data_->self();
  ShardHost::Primaries primaries;
  for (const auto& [id, entry] : directory_->Current()) {
    if (entry.shard == nullptr || !(entry.record->primary == self)) continue;
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
