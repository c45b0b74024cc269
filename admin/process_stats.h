// The kernel's statistics of this process, read from /proc at each call; none where there is no
// /proc. Named as in Prometheus's client libraries. Thread-safe.
#ifndef HOTBED_ADMIN_PROCESS_STATS_H_
#define HOTBED_ADMIN_PROCESS_STATS_H_

#include <vector>

#include "common/metrics.h"

namespace hotbed {

void AddProcessMetrics(std::vector<MetricSample>* samples);

}  // namespace hotbed

#endif  // HOTBED_ADMIN_PROCESS_STATS_H_
