// The server's part of the admin port: the status page for people, and the same numbers as JSON and
// as metrics.
#ifndef HOTBED_SERVER_SERVER_STATUS_H_
#define HOTBED_SERVER_SERVER_STATUS_H_

#include <string>
#include <vector>

#include "admin/admin_server.h"
#include "common/metrics.h"
#include "server/cluster/coordinator_link.h"
#include "server/host/shard_host.h"

namespace hotbed {

// Everything that is shown, read at one moment.
struct ServerSnapshot {
  std::string name;
  std::string data_address;
  std::string admin_address;
  int64_t now_ns = 0;
  bool ready = false;
  HostStatus host;
  LinkStatus link;
  uint64_t pull_bytes_in_flight = 0;
  uint64_t pull_bytes_in_flight_max = 0;
  uint64_t push_bytes_in_flight = 0;
  uint64_t push_bytes_in_flight_max = 0;
  uint32_t streams = 0;
};

// The facts that decide whether the server is ready.
struct ReadyFacts {
  int64_t now_ns = 0;
  bool stopping = false;
  LinkStatus link;
  std::string device_error;  // empty: it works, or there is none
  ShardHost::Primaries primaries;
};
std::vector<ReadyCondition> ReadyConditions(const ReadyFacts& facts);

// The instructions of the row kernels that this processor runs, and how they fetch rows.
std::string KernelsText();

StatusPage RenderStatus(const ServerSnapshot& snapshot);

// The host's numbers as metrics; those of shards are summed per table.
void CollectHostMetrics(const HostStatus& host, std::vector<MetricSample>* samples);

}  // namespace hotbed

#endif  // HOTBED_SERVER_SERVER_STATUS_H_
