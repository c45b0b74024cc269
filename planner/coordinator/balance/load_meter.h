// Loads of servers and shards, from the counters in heartbeats. Pure functions of two looks at the
// cluster; safe from any thread.
//
// The unit of load is a row a second. A shard's pulls and pushes are those of its primary; a backup
// applies every push too, and serves the pulls that it was measured to. What a server did beyond
// the copies that it named (it names the busiest) is spread over its other primaries by bytes. To
// that comes, for every copy, its part of kIdleShare of all rows, by bytes: what is idle has to lie
// somewhere too, and becomes busy as likely as anything. A cluster that is idle altogether is
// loaded by its bytes alone.
#ifndef HOTBED_PLANNER_COORDINATOR_BALANCE_LOAD_METER_H_
#define HOTBED_PLANNER_COORDINATOR_BALANCE_LOAD_METER_H_

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/ids.h"
#include "planner/cluster_problem.h"

namespace hotbed {

constexpr double kIdleShare = 0.1;

// The counters of one look, by server.
struct LoadSample {
  struct Rows {
    uint64_t pulled = 0;
    uint64_t pushed = 0;
  };
  struct Server {
    Incarnation incarnation = 0;
    Rows all;
    absl::flat_hash_map<uint64_t, Rows> copies;  // by packed shard
  };
  int64_t at_ms = 0;
  std::map<ServerId, Server> servers;
};

LoadSample SampleOf(int64_t now_ms, const ClusterView& view);

// What was measured between two looks.
struct MeasuredLoads {
  double rows_per_s = 0;  // of all servers
  // Of shards by table and index, as the view's; by server of the view.
  std::vector<std::vector<double>> pulled;
  std::vector<std::vector<double>> pushed;
  absl::flat_hash_map<uint64_t, std::map<ServerId, double>> backup_pulls;  // by packed shard
};

// A server that was restarted between the two counts as idle. `until` must be later.
MeasuredLoads LoadsBetween(const LoadSample& since, const LoadSample& until,
                           const ClusterView& view);

// Who holds which copies and what that is in load: changes as copies are moved in thought.
class LoadBoard {
 public:
  // Below `rows_per_s_min` rows the cluster is idle.
  LoadBoard(const ClusterView& view, const MeasuredLoads& loads, double rows_per_s_min);

  bool idle() const { return idle_; }
  double Load(ServerId server) const;
  // Over usable servers.
  double Busiest() const;
  double Mean() const;
  double Imbalance() const;  // 0 without load
  ServerId BusiestServer() const;

  // The part of the shard's load that only its primary has: its pulls.
  double PrimaryLoad(uint32_t table, uint32_t shard) const { return pulled_[table][shard]; }

  // Takes the shard off its holders and gives it to others; the primary is the first.
  void Change(uint32_t table, uint32_t shard, const std::vector<ServerId>& from,
              const std::vector<ServerId>& to);

  // The view with each shard's rows such that the planner's problem has these loads.
  ClusterView Weighed(ClusterView view) const;

 private:
  void Add(uint32_t table, uint32_t shard, const std::vector<ServerId>& holders, double sign);

  bool idle_ = false;
  std::vector<ServerId> usable_;
  absl::flat_hash_map<ServerId, double> loads_;
  std::vector<std::vector<double>> pulled_;  // the primary's alone, by table and shard
  std::vector<std::vector<double>> pushed_;
  std::vector<std::vector<double>> members_;  // pushes and the part for bytes
};

// Members of a shard, the primary first.
std::vector<ServerId> HoldersOf(const ClusterShard& shard);

// Of weights and state of one copy: what was measured, else what the table's rows would be.
uint64_t BytesOf(const TableSpec& spec, const ClusterShard& shard);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_BALANCE_LOAD_METER_H_
