// The samples of common/metrics.h and of the process itself, in Prometheus's format and as JSON.
// Thread-safe.
#ifndef HOTBED_ADMIN_METRIC_EXPORT_H_
#define HOTBED_ADMIN_METRIC_EXPORT_H_

#include <string>
#include <vector>

#include "common/metrics.h"

namespace hotbed {

// CollectMetrics() plus hotbed_build_info and process_* (named as in Prometheus's client
// libraries), sorted by name.
std::vector<MetricSample> CollectAllMetrics();

// Text exposition format 0.0.4. Histograms are reduced to one bucket per power of two from 1 us to
// 64 s. The edges are always the same, so that a scrape stays small and no bucket appears later.
std::string MetricsAsPrometheusText(const std::vector<MetricSample>& samples);

// [{"name", "labels": {...}, "value"}] and for histograms "count", "sum_seconds", "p50_seconds",
// "p99_seconds".
std::string MetricsAsJson(const std::vector<MetricSample>& samples);

}  // namespace hotbed

#endif  // HOTBED_ADMIN_METRIC_EXPORT_H_
