#include "client/batch/split.h"

#include "row_math/position.h"

namespace hotbed {

void ShardSplit::Run(absl::Span<const uint64_t> ids, bool hashed, const ShardLocator& locator) {
  const uint32_t shards = locator.shard_count();
  const size_t n = ids.size();
  order.resize(n);
  begin.assign(shards + 1, 0);
  if (shards == 1) {
    begin[1] = static_cast<uint32_t>(n);
    for (size_t i = 0; i < n; ++i) order[i] = static_cast<uint32_t>(i);
    return;
  }
  shard_of.resize(n);
  for (size_t i = 0; i < n; ++i) {
    const uint32_t shard = locator.Find(hashed ? Mix64(ids[i]) : ids[i]);
    shard_of[i] = static_cast<uint16_t>(shard);
    ++begin[shard + 1];
  }
  for (uint32_t s = 0; s < shards; ++s) begin[s + 1] += begin[s];
  // Placing moves begin[s] to the end of s, which is the begin of s + 1; one shift restores it.
  for (size_t i = 0; i < n; ++i) order[begin[shard_of[i]]++] = static_cast<uint32_t>(i);
  for (uint32_t s = shards; s > 0; --s) begin[s] = begin[s - 1];
  begin[0] = 0;
}

}  // namespace hotbed
