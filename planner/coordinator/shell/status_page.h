// The coordinator's view of the cluster for people: the status page, as HTML and JSON, and gauges.
// Pure functions.
#ifndef HOTBED_PLANNER_COORDINATOR_SHELL_STATUS_PAGE_H_
#define HOTBED_PLANNER_COORDINATOR_SHELL_STATUS_PAGE_H_

#include <string>
#include <vector>

#include "admin/admin_server.h"
#include "common/metrics.h"
#include "planner/coordinator/shell/coordinator.h"

namespace hotbed {

StatusPage MakeStatusPage(const CoordinatorStatus& status, const std::string& address,
                          uint64_t watches);
void AddGauges(const CoordinatorStatus& status, uint64_t watches,
               std::vector<MetricSample>* samples);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_SHELL_STATUS_PAGE_H_
