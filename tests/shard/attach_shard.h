// Points segments to their shards, as the streams do.
#ifndef HOTBED_TESTS_SHARD_ATTACH_SHARD_H_
#define HOTBED_TESTS_SHARD_ATTACH_SHARD_H_

#include <memory>
#include <utility>
#include <vector>

#include "server/host/shard_host.h"

namespace hotbed {

// `work` keeps the shards of all its segments alive.
template <typename Work, typename Segment>
void AttachShard(const ShardHost& host, ShardId shard, Work* work, Segment* segment) {
  std::shared_ptr<Shard> found = host.Find(shard);
  segment->shard = found.get();
  using Held = std::pair<std::shared_ptr<const void>, std::shared_ptr<Shard>>;
  work->shards = std::make_shared<Held>(std::move(work->shards), std::move(found));
}

}  // namespace hotbed

#endif  // HOTBED_TESTS_SHARD_ATTACH_SHARD_H_
