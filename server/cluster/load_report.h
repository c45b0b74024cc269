// The load of a server for its heartbeats: totals, the busiest shards, the latency of pulls.
//
// Latency and the choice of the busiest shards cover the time since they were last measured, at
// least kIntervalNsMin. Thread-compatible.
#ifndef HOTBED_SERVER_CLUSTER_LOAD_REPORT_H_
#define HOTBED_SERVER_CLUSTER_LOAD_REPORT_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/ids.h"
#include "common/metrics.h"
#include "proto/types.pb.h"
#include "server/host/shard_host.h"

namespace hotbed {

class LoadReport {
 public:
  // Shards in a report: those that served most rows in the last interval, then the largest.
  static constexpr size_t kShardsMax = 256;
  static constexpr int64_t kIntervalNsMin = 250'000'000;

  // `pulls` is the histogram of pulls at `now_ns` (Clock::NowNs()), `copied_bytes` a total.
  void Fill(const HostStatus& status, const LatencyHistogram::Snapshot& pulls,
            uint64_t copied_bytes, int64_t now_ns, v1::ServerLoad* load);

 private:
  void Measure(const HostStatus& status, const LatencyHistogram::Snapshot& pulls);

  int64_t measured_ns_ = 0;  // 0: never
  uint64_t pull_p99_us_ = 0;
  LatencyHistogram::Snapshot pulls_;
  absl::flat_hash_map<ShardId, uint64_t> totals_;  // of rows served
  std::vector<ShardId> busiest_;                   // the busiest first
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_CLUSTER_LOAD_REPORT_H_
