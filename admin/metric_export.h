// The samples of common/metrics.h, and the process's own, as Prometheus reads them and as JSON.
// Thread-safe.
#ifndef HOTBED_ADMIN_METRIC_EXPORT_H_
#define HOTBED_ADMIN_METRIC_EXPORT_H_

#include <string>
#include <vector>

#include "common/metrics.h"

namespace hotbed {

// CollectMetrics() plus hotbed_build_info and process_* (names as Prometheus's client libraries
// have them), sorted by name.
std::vector<MetricSample> CollectAllMetrics();

// Text exposition format 0.0.4. Histograms are thinned to one bucket a power of two from 1 us to 64
// s, always the same edges, so that a scrape stays small and buckets never come and go.
std::string MetricsAsPrometheusText(const std::vector<MetricSample>& samples);

// [{"name", "labels": {...}, "value"}] and for histograms "count", "sum_seconds", "p50_seconds",
// "p99_seconds".
std::string MetricsAsJson(const std::vector<MetricSample>& samples);

}  // namespace hotbed

#endif  // HOTBED_ADMIN_METRIC_EXPORT_H_
