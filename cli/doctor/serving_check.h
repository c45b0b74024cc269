// The check of serving servers and their read copies.
#ifndef HOTBED_CLI_DOCTOR_SERVING_CHECK_H_
#define HOTBED_CLI_DOCTOR_SERVING_CHECK_H_

#include <vector>

#include "cli/doctor/check.h"
#include "cli/doctor/process_checks.h"
#include "proto/serving.pb.h"

namespace hotbed {

// Failed where nobody answers lookups of a table; a warning where fewer copies answer than the
// table wants, or one is old or in trouble.
Check CheckServing(const v1::ServingMap& map);

std::vector<ProcessPorts> LiveServingProcesses(const v1::ServingMap& map);

}  // namespace hotbed

#endif  // HOTBED_CLI_DOCTOR_SERVING_CHECK_H_
