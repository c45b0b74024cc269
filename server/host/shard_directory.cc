#include "server/host/shard_directory.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace hotbed {
namespace {

constexpr int64_t kIdleNsMax = 30 * kSecondNs;
constexpr int64_t kIdleStepNs = kMillisecondNs;
constexpr size_t kFindAhead = 8;  // entries

}  // namespace

const ShardDirectory::Map& ShardDirectory::Current() const { return *Cached(); }

const std::shared_ptr<const ShardDirectory::Map>& ShardDirectory::Cached() const {
  struct Known {
    uint64_t version = 0;
    std::shared_ptr<const Map> map;
  };
  thread_local Known cached;
  if (cached.version != version_.load(std::memory_order_acquire)) {
    absl::MutexLock lock(&mu_);
    cached.map = map_;
    cached.version = version_.load(std::memory_order_relaxed);
  }
  return cached.map;
}

std::shared_ptr<const ShardDirectory::Map> ShardDirectory::Hold() const {
  absl::MutexLock lock(&mu_);
  return map_;
}

void ShardDirectory::Publish(Map map) {
  static std::atomic<uint64_t> versions{0};
  auto shared = std::make_shared<const Map>(std::move(map));
  std::shared_ptr<const ShardList> shards;  // the last holder of a shard frees it without the lock
  absl::MutexLock lock(&mu_);
  map_.swap(shared);
  shards_.swap(shards);
  version_.store(versions.fetch_add(1) + 1, std::memory_order_release);
}

std::shared_ptr<Shard> ShardDirectory::Find(ShardId shard) const {
  const Map& map = Current();
  const auto it = map.find(shard);
  return it == map.end() ? nullptr : it->second.shard;
}

std::shared_ptr<const ShardDirectory::Map> ShardDirectory::FindAll(
    absl::Span<const ShardId> ids, std::vector<Shard*>* shards) const {
  const std::shared_ptr<const Map>& map = Cached();
  shards->resize(ids.size());
  for (size_t i = 0; i < std::min(kFindAhead, ids.size()); ++i) map->prefetch(ids[i]);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i + kFindAhead < ids.size()) map->prefetch(ids[i + kFindAhead]);
    const auto it = map->find(ids[i]);
    Shard* const shard = it == map->end() ? nullptr : it->second.shard.get();
    if (shard != nullptr) shard->FetchFirst();
    (*shards)[i] = shard;
  }
  return map;
}

std::optional<ShardRecord> ShardDirectory::RecordOf(ShardId shard) const {
  const Map& map = Current();
  const auto it = map.find(shard);
  if (it == map.end() || it->second.record->epoch == 0) return std::nullopt;
  return *it->second.record;
}

std::shared_ptr<const ShardList> ShardDirectory::Shards() const {
  absl::MutexLock lock(&mu_);
  if (shards_ != nullptr) return shards_;
  ShardList shards;
  shards.reserve(map_->size());
  for (const auto& [id, entry] : *map_) {
    if (entry.shard != nullptr) shards.push_back(entry.shard);
  }
  std::sort(shards.begin(), shards.end(),
            [](const auto& a, const auto& b) { return a->id() < b->id(); });
  shards_ = std::make_shared<const ShardList>(std::move(shards));
  return shards_;
}

absl::Status AwaitIdle(const ShardList& shards, const Clock* clock) {
  const int64_t end_ns = clock->NowNs() + kIdleNsMax;
  for (const auto& shard : shards) {
    while (!shard->idle()) {
      if (clock->NowNs() >= end_ns) {
        return absl::DeadlineExceededError(absl::StrCat(
            shard->id().ToString(), " still has work after ", kIdleNsMax / kSecondNs, " s"));
      }
      shard->Tick();
      clock->SleepNs(kIdleStepNs);
    }
  }
  return absl::OkStatus();
}

}  // namespace hotbed
