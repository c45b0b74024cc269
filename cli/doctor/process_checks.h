// Checks of the processes of a cluster, by their ports.
#ifndef HOTBED_CLI_DOCTOR_PROCESS_CHECKS_H_
#define HOTBED_CLI_DOCTOR_PROCESS_CHECKS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "cli/cluster/http_get.h"
#include "cli/doctor/check.h"
#include "nlohmann/json.hpp"
#include "proto/control.pb.h"

namespace hotbed {

// A live server, or the coordinator.
struct ProcessPorts {
  std::string name;
  std::string address;
  std::string admin_address;
  bool is_server = true;
};

std::vector<ProcessPorts> LiveProcesses(const v1::ClusterMap& map, const std::string& coordinator);

// The report of a process about itself.
struct Report {
  ProcessPorts process;
  absl::StatusOr<HttpReply> ready;
  absl::StatusOr<nlohmann::json> metrics;  // an array
  double asked_s = 0;                      // when the metrics came, in seconds since 1970

  template <typename See>  // see(labels, value)
  void ForEach(absl::string_view name, See see) const {
    if (!metrics.ok()) return;
    for (const nlohmann::json& metric : *metrics) {
      if (metric.value("name", "") == name) see(metric["labels"], metric.value("value", 0.0));
    }
  }
  double Sum(absl::string_view name) const {
    double sum = 0;
    ForEach(name, [&](const nlohmann::json&, double value) { sum += value; });
    return sum;
  }
};

std::vector<Report> AskAll(const std::vector<ProcessPorts>& processes, absl::Duration timeout);

// Connects to the addresses at which the map sends clients and other servers. Which of them reach a
// server may differ from machine to machine.
Check CheckDataPorts(const v1::ClusterMap& map, absl::Duration timeout);
// Counted over the servers that answer.
Check CheckHashes(const std::vector<Report>& reports);
// Also where other shards of the server are served, so that it is ready.
Check CheckDamage(const std::vector<Report>& reports);
Check CheckMemory(const std::vector<Report>& reports);
Check CheckInFlight(const std::vector<Report>& reports);
// Connections that were refused or ended, and requests that were refused as those of nobody.
Check CheckPeers(const std::vector<Report>& reports);
// The answer of /readyz of each process.
Check CheckReady(const std::vector<Report>& reports);
Check CheckVersions(const std::vector<Report>& reports);
// Which row kernels the servers run, those that serve copies included.
Check CheckKernels(const std::vector<Report>& reports);
// How many segments of their logs were written over old ones, and why the others were not. Warns
// where an old one was there lately and could not be used.
Check CheckLogs(const std::vector<Report>& reports);
// Whether their clocks agree with that of this machine.
Check CheckClocks(const std::vector<Report>& reports);
Check CheckOpenFiles(const std::vector<Report>& reports);

}  // namespace hotbed

#endif  // HOTBED_CLI_DOCTOR_PROCESS_CHECKS_H_
