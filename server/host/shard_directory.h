// The shards that this server holds or has heard of: an immutable map that is swapped whenever an
// assignment changes it.
//
// Thread-safe. A lookup takes no lock and writes nothing shared, unless the map has changed since
// this thread's last lookup. A change copies the current map, edits the copy and publishes it;
// Assignments' lock serializes these changes. The copies share records and shards, because each
// thread keeps the map of its last lookup.
#ifndef HOTBED_SERVER_HOST_SHARD_DIRECTORY_H_
#define HOTBED_SERVER_HOST_SHARD_DIRECTORY_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "common/ids.h"
#include "common/shared_value.h"
#include "common/tables/shard_record.h"
#include "server/shard/shard.h"

namespace hotbed {

using ShardList = std::vector<std::shared_ptr<Shard>>;

class ShardDirectory {
 public:
  struct Entry {
    std::shared_ptr<Shard> shard;  // null: not held here, or out of service for the moment
    // Epoch 0: recovered from disk, the coordinator said nothing yet.
    SharedValue<ShardRecord> record;
  };
  using Map = absl::flat_hash_map<ShardId, Entry>;

  ShardDirectory() { Publish(Map()); }

  // Valid until the next call on this thread. A caller that enters a strand takes Hold() instead:
  // the strand may run work that looks up shards on this very thread. So does a thread that looks
  // up seldom: it would keep the map, with the records in it, until its next lookup.
  const Map& Current() const ABSL_LOCKS_EXCLUDED(mu_);
  std::shared_ptr<const Map> Hold() const ABSL_LOCKS_EXCLUDED(mu_);
  void Publish(Map map) ABSL_LOCKS_EXCLUDED(mu_);

  std::shared_ptr<Shard> Find(ShardId shard) const;  // null: not in service here
  // Find for each of `ids`, in order; what is returned keeps them alive. The entries come to the
  // cache while others are looked up, and so do the first lines of the shards, so that many shards
  // do not cost the latency of the memory each.
  std::shared_ptr<const Map> FindAll(absl::Span<const ShardId> ids,
                                     std::vector<Shard*>* shards) const;
  // Whether or not the shard is held here; nothing while its record is unknown.
  std::optional<ShardRecord> RecordOf(ShardId shard) const;
  // Those in service, by id.
  std::shared_ptr<const ShardList> Shards() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  const std::shared_ptr<const Map>& Cached() const ABSL_LOCKS_EXCLUDED(mu_);

  mutable absl::Mutex mu_;
  std::shared_ptr<const Map> map_ ABSL_GUARDED_BY(mu_);
  // The shards of map_; null: nobody has asked for them since it was published.
  mutable std::shared_ptr<const ShardList> shards_ ABSL_GUARDED_BY(mu_);
  std::atomic<uint64_t> version_{0};  // unique in the process; 0: none
};

// Blocks until none of the shards has work left; DeadlineExceeded after 30 s, naming the shard.
absl::Status AwaitIdle(const ShardList& shards, const Clock* clock);

}  // namespace hotbed

#endif  // HOTBED_SERVER_HOST_SHARD_DIRECTORY_H_
