#include "admin/metric_export.h"

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <sstream>

#include "admin/process_stats.h"
#include "nlohmann/json.hpp"

namespace hotbed {
namespace {

constexpr int kHistogramEdges = 27;  // 1 us * 2^0 .. 2^26, which is 67 s

prometheus::MetricType TypeOf(const MetricSample& sample) {
  switch (sample.type) {
    case MetricSample::Type::kCounter:
      return prometheus::MetricType::Counter;
    case MetricSample::Type::kHistogram:
      return prometheus::MetricType::Histogram;
    case MetricSample::Type::kGauge:
      break;
  }
  return prometheus::MetricType::Gauge;
}

prometheus::ClientMetric::Histogram Thin(const LatencyHistogram::Snapshot& snapshot) {
  prometheus::ClientMetric::Histogram out;
  out.sample_count = snapshot.count;
  out.sample_sum = snapshot.sum_seconds;
  size_t next = 0;
  uint64_t below = 0;
  double edge = 1e-6;
  for (int i = 0; i < kHistogramEdges; ++i, edge *= 2) {
    while (next < snapshot.cumulative.size() &&
           snapshot.cumulative[next].first <= edge * 1.000001) {
      below = snapshot.cumulative[next++].second;
    }
    out.bucket.push_back({below, edge});
  }
  return out;
}

// Presents the samples to prometheus-cpp at each scrape. The hot path uses none of its types,
// because its Histogram locks per observation.
class SampleCollectable : public prometheus::Collectable {
 public:
  explicit SampleCollectable(const std::vector<MetricSample>& samples) : samples_(samples) {}

  std::vector<prometheus::MetricFamily> Collect() const override {
    std::vector<prometheus::MetricFamily> families;
    for (const MetricSample& sample : samples_) {
      if (families.empty() || families.back().name != sample.name) {
        families.emplace_back();
        families.back().name = sample.name;
        families.back().help = sample.help;
        families.back().type = TypeOf(sample);
      }
      prometheus::ClientMetric metric;
      for (const auto& [name, value] : sample.labels) metric.label.push_back({name, value});
      switch (sample.type) {
        case MetricSample::Type::kCounter:
          metric.counter.value = sample.value;
          break;
        case MetricSample::Type::kGauge:
          metric.gauge.value = sample.value;
          break;
        case MetricSample::Type::kHistogram:
          metric.histogram = Thin(sample.histogram);
          break;
      }
      families.back().metric.push_back(std::move(metric));
    }
    return families;
  }

 private:
  const std::vector<MetricSample>& samples_;
};

}  // namespace

std::vector<MetricSample> CollectAllMetrics() {
  std::vector<MetricSample> samples = CollectMetrics();
  AddProcessMetrics(&samples);
  AddSample("hotbed_build_info", "Always 1; the labels say what was built.",
            {{"compiler", __VERSION__}, {"version", HOTBED_VERSION}}, 1, &samples);
  std::stable_sort(samples.begin(), samples.end(),
                   [](const MetricSample& a, const MetricSample& b) { return a.name < b.name; });
  return samples;
}

std::string MetricsAsPrometheusText(const std::vector<MetricSample>& samples) {
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, SampleCollectable(samples).Collect());
  return out.str();
}

std::string MetricsAsJson(const std::vector<MetricSample>& samples) {
  nlohmann::json out = nlohmann::json::array();
  for (const MetricSample& sample : samples) {
    nlohmann::json labels = nlohmann::json::object();
    for (const auto& [name, value] : sample.labels) labels[name] = value;
    nlohmann::json one = {{"name", sample.name}, {"labels", std::move(labels)}};
    if (sample.type == MetricSample::Type::kHistogram) {
      one["count"] = sample.histogram.count;
      one["sum_seconds"] = sample.histogram.sum_seconds;
      one["p50_seconds"] = sample.histogram.Quantile(0.5);
      one["p99_seconds"] = sample.histogram.Quantile(0.99);
    } else {
      one["value"] = sample.value;
    }
    out.push_back(std::move(one));
  }
  return out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace hotbed
