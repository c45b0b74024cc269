#include "server/host/transfer/transfer_rate.h"

#include <gtest/gtest.h>

#include "server/shard/request/pull_latency.h"
#include "tests/common/number_of.h"

namespace hotbed {
namespace transfer_rate_test {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kMillisecond = 1'000'000;
constexpr uint64_t kMiB = 1 << 20;

TEST(TransferRateTest, WithoutALimitNobodyWaits) {
  TransferRate pace;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(pace.WaitNs(kMiB, 5), 0);
  EXPECT_EQ(NumberOf(pace, "snapshot_bytes_sent"), 100 * kMiB);
}

TEST(TransferRateTest, AllTransfersTogetherKeepTheRate) {
  TransferRate pace;
  pace.SetLimits({10 * kMiB, false, 0});
  int64_t now_ns = kSecond;
  const int64_t begun_ns = now_ns;
  for (int block = 0; block <= 50; ++block) now_ns += pace.WaitNs(kMiB, now_ns);
  EXPECT_NEAR(static_cast<double>(now_ns - begun_ns), 5.0 * kSecond, kMillisecond);
  // What was not used while nothing was sent is not made up for.
  now_ns += 100 * kSecond;
  EXPECT_EQ(pace.WaitNs(kMiB, now_ns), 0);
  EXPECT_GT(pace.WaitNs(kMiB, now_ns), 0);
}

TEST(TransferRateTest, SlowPullsHalveTheRateAndItGrowsBack) {
  TransferRate pace;
  pace.SetLimits({0, false, 10});
  pace.WaitNs(100 * kMiB, kSecond);
  pace.OnSecond(5 * kMillisecond);
  EXPECT_EQ(pace.rate(), 0u) << "pulls are fast";
  pace.WaitNs(100 * kMiB, 2 * kSecond);
  pace.OnSecond(50 * kMillisecond);
  EXPECT_EQ(pace.rate(), 50 * kMiB) << "half of what was sent";
  pace.WaitNs(50 * kMiB, 3 * kSecond);
  pace.OnSecond(50 * kMillisecond);
  EXPECT_EQ(pace.rate(), 25 * kMiB);
  for (int i = 0; i < 20; ++i) {
    pace.WaitNs(25 * kMiB, (4 + i) * kSecond);
    pace.OnSecond(50 * kMillisecond);
  }
  EXPECT_EQ(pace.rate(), TransferRate::kRateMin) << "it never stands still";
  uint64_t before = pace.rate();
  for (int i = 0; i < 60 && pace.rate() != 0; ++i) {
    EXPECT_GE(pace.rate(), before);
    before = pace.rate();
    pace.OnSecond(0);
  }
  EXPECT_EQ(pace.rate(), 0u);
}

TEST(TransferRateTest, TheGuardNeverGoesAboveTheDial) {
  TransferRate pace;
  pace.SetLimits({8 * kMiB, false, 10});
  pace.WaitNs(8 * kMiB, kSecond);
  pace.OnSecond(50 * kMillisecond);
  EXPECT_EQ(pace.rate(), 4 * kMiB);
  for (int i = 0; i < 20; ++i) pace.OnSecond(kMillisecond);
  EXPECT_EQ(pace.rate(), 8 * kMiB);
  // Without transfers slow pulls are no reason.
  pace.OnSecond(50 * kMillisecond);
  EXPECT_EQ(pace.rate(), 8 * kMiB);
}

TEST(PullLatencyTest, TellsTheSlowestOfAHundred) {
  PullLatency latency(Clock::Real());
  EXPECT_EQ(latency.TakeP99(), 0);
  for (int i = 0; i < 990; ++i) latency.Add(100'000);
  for (int i = 0; i < 10; ++i) latency.Add(80 * kMillisecond);
  const int64_t most = latency.TakeP99();
  EXPECT_GE(most, 100'000);
  EXPECT_LE(most, 150'000);
  for (int i = 0; i < 980; ++i) latency.Add(100'000);
  for (int i = 0; i < 20; ++i) latency.Add(80 * kMillisecond);
  const int64_t slow = latency.TakeP99();
  EXPECT_GE(slow, 80 * kMillisecond);
  EXPECT_LE(slow, 120 * kMillisecond);
  EXPECT_EQ(latency.TakeP99(), 0) << "counted from zero";
}

}  // namespace transfer_rate_test
}  // namespace hotbed
