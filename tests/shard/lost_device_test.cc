// A server whose device fails while it works: its shards are refused, readiness goes, nothing that
// was acknowledged is lost, and a restart has everything. Rows move between device, host memory
// and disk meanwhile.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/shard/host_fixture.h"
#include "tests/tiers/emulated_device.h"

namespace hotbed {
namespace lost_device_test {

constexpr uint32_t kDim = 4;
constexpr uint64_t kRows = 600;

class LostDeviceTest : public testing::TestWithParam<uint64_t> {
 protected:
  LostDeviceTest() : server_(Options(), Tables(), 2) { faults_.works_before_fault = GetParam(); }

  ShardHostOptions Options() {
    ShardHostOptions options;
    options.data_dir = dir_.path();
    options.host_bytes = 64ull << 20;
    options.hot_bytes = 16ull << 10;
    options.open_device =
        EmulatedDevice(SmallMessages(256), 16ull << 10, [this] { return faults_; });
    return options;
  }
  static std::vector<TableSpec> Tables() {
    TableSpec table = TestTable(1, "t", kRows, kDim, OptimizerKind::kSgd);
    table.optimizer.learning_rate = 1.0f;
    table.initializer = {InitializerKind::kZero, 0, 0};
    return {table};
  }

  std::unique_ptr<TestPush> Push(uint64_t seq, uint64_t row) {
    auto push = server_.MakePush(7, 1, 1, {row, row + kRows / 2}, std::vector<float>(2 * kDim, 1));
    for (PushSegment& segment : push->segments) {
      segment.seq = seq;
      segment.prev_seq = seq - 1;
      segment.open = seq == 1;
    }
    server_.Run(push.get());
    return push;
  }

  TempDir dir_;
  device::HostDeviceOptions faults_;
  TestServer server_;
};

TEST_P(LostDeviceTest, NothingAcknowledgedIsLost) {
  server_.Start();
  ASSERT_TRUE(server_.host()->Ready());
  EXPECT_EQ(server_.host()->Status().device, "emulated on the host");
  std::vector<float> least(kRows), most(kRows);  // of updates that a row has had
  bool refused = false;
  for (uint64_t seq = 1; !refused; ++seq) {
    ASSERT_LT(seq, 20000u) << "the device never failed";
    const uint64_t row = seq * seq % (kRows / 2);
    const auto push = Push(seq, row);
    for (size_t shard = 0; shard < push->segments.size(); ++shard) {
      const PushSegment& segment = push->segments[shard];
      const uint64_t of = row + shard * kRows / 2;
      const bool ok = segment.result.code == SegmentCode::kOk;
      least[of] += ok;
      most[of] += 1;
      refused = refused || !ok;
      if (!ok) {
        EXPECT_EQ(segment.result.code, SegmentCode::kUnavailable) << segment.result.detail;
      }
    }
  }
  EXPECT_FALSE(server_.host()->Ready());
  const HostStatus status = server_.host()->Status();
  EXPECT_NE(status.device_error.find("the device failed"), std::string::npos);
  bool any = false;
  for (const ShardStatus& shard : status.shards) any = any || shard.refused;
  EXPECT_TRUE(any) << "a shard with rows on the device is fenced";
  // What could not be written back is in the log, however the server ends.
  if (GetParam() % 2 == 0) {
    EXPECT_TRUE(server_.Stop().ok());
  } else {
    server_.Kill();
  }

  faults_ = {};
  server_.Start();
  EXPECT_TRUE(server_.host()->Ready());
  for (uint64_t first = 0; first < kRows; first += 100) {
    std::vector<uint64_t> ids;
    for (uint64_t row = first; row < first + 100; ++row) ids.push_back(row);
    const std::vector<float> rows = server_.Pull(1, ids);
    for (uint64_t row = first; row < first + 100; ++row) {
      const float updates = -rows[(row - first) * kDim];
      EXPECT_GE(updates, least[row]) << "row " << row << ": an acknowledged push is lost";
      EXPECT_LE(updates, most[row]) << "row " << row << ": a push was applied twice";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AfterLaunches, LostDeviceTest,
                         testing::Values(0, 1, 7, 90, 100, 110, 2001));

}  // namespace lost_device_test
}  // namespace hotbed
