#include "common/metrics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <thread>
#include <vector>

#include "common/random.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace metrics_test {

const MetricSample* Find(const std::vector<MetricSample>& samples, const std::string& name,
                         const Labels& labels = {}) {
  for (const MetricSample& sample : samples) {
    if (sample.name == name && sample.labels == labels) return &sample;
  }
  return nullptr;
}

TEST(Metrics, CountersOfManyThreadsAddUp) {
  Counter counter("hotbed_test_rows_total", "Rows.");
  std::vector<std::thread> threads;
  for (int t = 0; t < 2 * kMetricCells; ++t) {
    threads.emplace_back([&counter] {
      for (int i = 0; i < 1000; ++i) counter.Add(3);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counter.Value(), 2u * kMetricCells * 3000);
}

TEST(Metrics, ASeriesOccursOnceAndSorted) {
  Counter first("hotbed_test_b_total", "B.", {{"wire", "fp32"}});
  Counter second("hotbed_test_b_total", "B.", {{"wire", "fp32"}});
  Counter other("hotbed_test_b_total", "B.", {{"wire", "bf16"}});
  LatencyHistogram one("hotbed_test_c_seconds", "C.");
  LatencyHistogram two("hotbed_test_c_seconds", "C.");
  first.Add(1);
  second.Add(2);
  one.RecordNs(5000);
  two.RecordNs(7000);
  const std::vector<MetricSample> samples = CollectMetrics();
  const MetricSample* const b = Find(samples, "hotbed_test_b_total", {{"wire", "fp32"}});
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->value, 3);
  EXPECT_EQ(Find(samples, "hotbed_test_b_total", {{"wire", "bf16"}})->value, 0);
  EXPECT_EQ(Find(samples, "hotbed_test_c_seconds")->histogram.count, 2u);
  EXPECT_NEAR(Find(samples, "hotbed_test_c_seconds")->histogram.sum_seconds, 12e-6, 1e-12);
  EXPECT_TRUE(std::is_sorted(samples.begin(), samples.end(),
                             [](const auto& x, const auto& y) { return x.name < y.name; }));
}

TEST(Metrics, SourcesAndMetricsEndWithTheirObjects) {
  {
    Counter counter("hotbed_test_gone_total", "Gone.");
    MetricSource source([](std::vector<MetricSample>* samples) {
      MetricSample gauge;
      gauge.name = "hotbed_test_gauge";
      gauge.value = 4;
      samples->push_back(gauge);
    });
    EXPECT_EQ(Find(CollectMetrics(), "hotbed_test_gauge")->value, 4);
  }
  EXPECT_EQ(Find(CollectMetrics(), "hotbed_test_gauge"), nullptr);
  EXPECT_EQ(Find(CollectMetrics(), "hotbed_test_gone_total"), nullptr);
}

TEST(LatencyHistogram, EveryObservationIsAtOrBelowItsBound) {
  const TestSeed seed(4);
  Random random(seed.value());
  LatencyHistogram histogram("hotbed_test_bounds_seconds", "Bounds.");
  std::vector<int64_t> values = {0, 1, 1023, 1024, 1025, 2048, 2049, int64_t{1} << 36};
  for (int i = 0; i < 2000; ++i) values.push_back(random.Next() >> (64 - 1 - random.Uniform(36)));
  for (const int64_t ns : values) histogram.RecordNs(ns);
  const LatencyHistogram::Snapshot snapshot = histogram.Read();
  EXPECT_EQ(snapshot.count, values.size());
  for (const auto& [upper, at_or_below] : snapshot.cumulative) {
    const int64_t bound_ns = std::llround(upper * 1e9);
    const auto expected = std::count_if(values.begin(), values.end(),
                                        [&, bound = bound_ns](int64_t ns) { return ns <= bound; });
    ASSERT_EQ(at_or_below, static_cast<uint64_t>(expected)) << bound_ns;
  }
  for (size_t i = 1; i < snapshot.cumulative.size(); ++i) {
    EXPECT_LE(snapshot.cumulative[i].first / snapshot.cumulative[i - 1].first, 1.1251);
  }
}

TEST(LatencyHistogram, QuantilesAreNearAndTheLongestIsCounted) {
  LatencyHistogram histogram("hotbed_test_quantile_seconds", "Quantiles.");
  EXPECT_EQ(histogram.Read().Quantile(0.5), 0);
  for (int i = 1; i <= 1000; ++i) histogram.RecordNs(i * int64_t{1000000});
  EXPECT_NEAR(histogram.Read().Quantile(0.5), 0.5, 0.5 * 0.125);
  EXPECT_NEAR(histogram.Read().Quantile(0.99), 0.99, 0.99 * 0.125);
  histogram.RecordNs(int64_t{1} << 40);
  EXPECT_EQ(histogram.Read().count, 1001u);
  EXPECT_EQ(histogram.Read().cumulative.back().second, 1000u);
}

}  // namespace metrics_test
}  // namespace hotbed
