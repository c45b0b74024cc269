// The memory that shards take on a server besides their rows.
#ifndef HOTBED_COMMON_TABLES_SHARD_MEMORY_H_
#define HOTBED_COMMON_TABLES_SHARD_MEMORY_H_

#include <cstdint>

namespace hotbed {

// The memory that one replica of a shard takes once it was used (shard_host_test measures it).
inline constexpr uint64_t kShardBytes = 9 << 10;

// The number of shards that take a quarter of a server's memory in this way.
inline constexpr uint64_t ShardsMax(uint64_t host_bytes) { return host_bytes / 4 / kShardBytes; }

}  // namespace hotbed

#endif  // HOTBED_COMMON_TABLES_SHARD_MEMORY_H_
