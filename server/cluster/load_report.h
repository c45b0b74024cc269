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
  // Tables in a report: those with most bytes in memory.
  static constexpr size_t kTablesMax = 1024;
  // Row accesses of a table are counted over the last one to two windows.
  static constexpr int64_t kWindowNs = 10'000'000'000;

  // `pulls` is the histogram of pulls at `now_ns` (Clock::NowNs()).
  void Fill(const HostStatus& status, const LatencyHistogram::Snapshot& pulls, int64_t now_ns,
            v1::ServerLoad* load);

 private:
  struct Accesses {
    uint64_t hits = 0;
    uint64_t misses = 0;
  };

  void Measure(const HostStatus& status, const LatencyHistogram::Snapshot& pulls);
  void AddTables(const HostStatus& status, int64_t now_ns, v1::ServerLoad* load);

  int64_t measured_ns_ = 0;  // 0: never
  uint64_t pull_p99_us_ = 0;
  LatencyHistogram::Snapshot pulls_;
  absl::flat_hash_map<ShardId, uint64_t> totals_;  // of rows served
  std::vector<ShardId> busiest_;                   // the busiest first
  int64_t window_ns_ = 0;                          // when the window began; 0: never
  absl::flat_hash_map<uint32_t, Accesses> at_window_, at_window_before_;  // totals, by table
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_CLUSTER_LOAD_REPORT_H_
