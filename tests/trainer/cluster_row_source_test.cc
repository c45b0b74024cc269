// The rows of a trainer in a cluster, with --fresh-rows.
#include "trainer/cluster_row_source.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <vector>

#include "tests/client/fake_cluster.h"

namespace hotbed {
namespace cluster_row_source_test {

// As the train loop does: the next batch is pulled before the rows of this one are taken.
void Train(uint64_t bytes_max, LookAheadStats* stats) {
  FakeCluster cluster(2);
  cluster.AddTable("t", 40, 2, 3);
  LookAheadOptions fresh;
  fresh.bytes_max = bytes_max;
  const auto source = ClusterRowSource::Open(cluster.target(), {}, {"t"}, fresh);
  ASSERT_TRUE(source.ok()) << source.status();
  const std::vector<uint64_t> ids = {3, 17, 39};
  std::array<std::vector<float>, 2> rows;
  const std::vector<float> gradients(6, 1.0f);
  const auto columns = [&](uint64_t step) {
    rows[step % 2].assign(6, 7.0f);
    return std::vector<RowColumn>{{0, ids, rows[step % 2].data(), gradients.data()}};
  };
  std::vector<RowColumn> current = columns(1);
  Future<PushResult> push;
  ASSERT_TRUE((*source)->Pull(current).Wait().ok());
  for (uint64_t step = 1; step <= 20; ++step) {
    const std::vector<RowColumn> next = columns(step + 1);
    const absl::Status pulled = (*source)->Pull(next).Wait();
    ASSERT_TRUE(pulled.ok()) << pulled;
    const absl::Status taken = (*source)->Take(current);
    ASSERT_TRUE(taken.ok()) << taken;
    EXPECT_EQ(rows[step % 2], std::vector<float>(6, 1.0f - static_cast<float>(step)));
    push = (*source)->Push(step, current, 1.0f);
    current = next;
  }
  EXPECT_TRUE(push.Wait().status.ok());  // and those before it: the gradients are in use until then
  *stats = (*source)->look_ahead();
}

TEST(ClusterRowSourceTest, FreshRowsContainAllPushes) {
  LookAheadStats stats;
  Train(256 << 20, &stats);
  EXPECT_EQ(stats.rows, 60);
}

TEST(ClusterRowSourceTest, TrainingGoesOnWithBatchesThatMayNotBePulledEarly) {
  LookAheadStats stats;
  Train(8, &stats);  // one row; a batch has three
  EXPECT_EQ(stats.rows, 60);
  EXPECT_EQ(stats.rows_late, 60);
}

}  // namespace cluster_row_source_test
}  // namespace hotbed
