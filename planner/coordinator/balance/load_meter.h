// Loads of servers and shards, from the counters in heartbeats. Pure functions of two samples of
// the cluster; safe from any thread.
//
// The unit of load is rows per second. A shard's pulls and pushes are those of its primary; a
// backup applies every push too, and serves the pulls that were measured on it. A server reports
// its busiest replicas only; the rest of its rows are spread over its other primaries by bytes. On
// top, kIdleShare of all rows is spread over all replicas by bytes: idle rows occupy a server too,
// and may become busy. In a cluster that is idle altogether the load is by bytes alone.
#ifndef HOTBED_PLANNER_COORDINATOR_BALANCE_LOAD_METER_H_
#define HOTBED_PLANNER_COORDINATOR_BALANCE_LOAD_METER_H_

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/ids.h"
#include "planner/cluster_problem.h"
#include "planner/plan_on_cluster.h"

namespace hotbed {

constexpr double kIdleShare = 0.1;

// The counters of all servers at one instant.
struct LoadSample {
  struct Rows {
    uint64_t pulled = 0;
    uint64_t pushed = 0;
  };
  struct Server {
    Incarnation incarnation = 0;
    Rows all;
    absl::flat_hash_map<uint64_t, Rows> replicas;  // by packed shard
  };
  int64_t at_ms = 0;
  std::map<ServerId, Server> servers;
};

LoadSample SampleOf(int64_t now_ms, const ClusterView& view);

// Rates measured between two samples.
struct MeasuredLoads {
  double rows_per_s = 0;  // of all servers
  // Rows per second of each shard, by table and shard in the view's order.
  std::vector<std::vector<double>> pulled;
  std::vector<std::vector<double>> pushed;
  absl::flat_hash_map<uint64_t, std::map<ServerId, double>> backup_pulls;  // by packed shard
};

// A server that was restarted between the samples counts as idle. `until` must be the later one.
MeasuredLoads LoadsBetween(const LoadSample& since, const LoadSample& until,
                           const ClusterView& view);

// The load of each server under a placement, which the caller may change step by step.
class LoadBoard {
 public:
  // Below `rows_per_s_min` rows per second the cluster counts as idle.
  LoadBoard(const ClusterView& view, const MeasuredLoads& loads, double rows_per_s_min);

  bool idle() const { return idle_; }
  double Load(ServerId server) const;
  // The next four are over usable servers.
  double Busiest() const;
  double Mean() const;
  double Imbalance() const;  // 0 without load
  ServerId BusiestServer() const;

  // The part of the shard's load that only its primary has: its pulls.
  double PrimaryLoad(uint32_t table, uint32_t shard) const { return pulled_[table][shard]; }
  // All that the shard costs its primary.
  double WholeLoad(uint32_t table, uint32_t shard) const {
    return pulled_[table][shard] + members_[table][shard];
  }

  // Moves the shard from its holders to others; the first of each is the primary.
  void Change(uint32_t table, uint32_t shard, const std::vector<ServerId>& from,
              const std::vector<ServerId>& to);

  // The view with rows set per shard such that the planner's problem has these loads.
  ClusterView Weighed(ClusterView view) const;

 private:
  void Add(uint32_t table, uint32_t shard, const std::vector<ServerId>& holders, double sign);

  bool idle_ = false;
  std::vector<ServerId> usable_;
  absl::flat_hash_map<ServerId, double> loads_;
  std::vector<std::vector<double>> pulled_;  // of the primary alone, by table and shard
  std::vector<std::vector<double>> pushed_;
  std::vector<std::vector<double>> members_;  // of every member: pushes and the share for bytes
};

// Bytes of weights and state of one replica: measured, else computed from the table's rows.
uint64_t BytesOf(const TableSpec& spec, const ClusterShard& shard);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_BALANCE_LOAD_METER_H_
