// How the flags of a server reach its parts.
#include "server/server_options.h"

#include <gtest/gtest.h>

#include "server/host/host_budget.h"

namespace hotbed {
namespace server_options_test {

// The data port counts the records that shards keep. With a smaller limit than theirs, streams of
// other servers would end for ever once shards have kept that much.
TEST(ServerOptionsTest, TheDataPortHasRoomForWhatShardsKeepForReplicas) {
  ServerOptions options;
  options.host.host_bytes = 1ull << 30;
  options.host.replica_tail_bytes = 0;  // by the budget
  EXPECT_EQ(DataOptionsOf(options).peer_limits.replica_tail_bytes_max,
            CarveHostBytes(options.host.host_bytes).replica_tail_bytes);
  EXPECT_GT(DataOptionsOf(options).peer_limits.replica_tail_bytes_max, 0u);
  options.host.replica_tail_bytes = 5ull << 20;
  EXPECT_EQ(DataOptionsOf(options).peer_limits.replica_tail_bytes_max, 5ull << 20);
  EXPECT_EQ(HostOptionsOf(options).replica_tail_bytes, 5ull << 20);
}

}  // namespace server_options_test
}  // namespace hotbed
