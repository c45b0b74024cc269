// When shards are moved without anybody asking, and which: a server came, a server is lost, a
// server is drained, or the load has long been uneven. Pure: time and what servers say come in,
// goals go out; the coordinator writes the goals and carries them out. The planner (planner/
// rebalance) chooses the moves, with the fewest bytes; before it, primaries change places with
// their backups where that is enough, which copies nothing.
//
// Load of a server: rows pulled from and pushed to its copies a second, as the growth of the
// counters in its heartbeats over one window, plus a tenth of that spread by bytes (what is idle
// has to lie somewhere too); without any traffic, its bytes alone. Imbalance: the busiest usable
// server's load over the mean of all usable ones.
//
//   cause      begins when                                                 cut by the rate limit
//   drain      a live server is draining and holds copies; also when off   no (but counted)
//   arrival    a server holds no copy (or was lost and is back), and has   yes
//              been up for settle_ms, as has every other that came
//   loss       a server has been down for lost_ms                          yes
//   imbalance  >= imbalance_begin in `windows` windows on end              yes
//
// One wave at a time: nothing begins while any goal is open. A cause is answered once: an arrival
// or loss is one of a process (server and incarnation); after a wave for imbalance, no other until
// the imbalance was below imbalance_end, or `patience_ms` have passed. A wave that the rate limit
// cut short stays open as a cause. No wave but a drain's goes out that would not lower the busiest
// server's load by improvement_min.
//
// Thread-compatible.
#ifndef HOTBED_PLANNER_COORDINATOR_REBALANCE_POLICY_H_
#define HOTBED_PLANNER_COORDINATOR_REBALANCE_POLICY_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/ids.h"
#include "planner/cluster_problem.h"

namespace hotbed {

struct RebalanceOptions {
  bool on = true;
  int64_t look_ms = 1000;      // between two looks at the cluster
  int64_t settle_ms = 5000;    // that a server has been up before it is given anything
  int64_t lost_ms = 30'000;    // that a server is down before the others are evened out
  int64_t window_ms = 10'000;  // over which loads are measured
  uint32_t windows = 6;        // uneven ones on end that make an imbalance
  double imbalance_begin = 1.3;
  double imbalance_end = 1.1;
  int64_t patience_ms = 1'800'000;  // before an imbalance that a wave did not end is looked at anew
  uint32_t moves_per_hour =
      1000;  // copies that change their server; switches of primaries are free
  uint32_t moves_per_wave = 500;
  double improvement_min = 0.02;
  double rows_per_s_min = 1000;  // of the whole cluster; with less its load is not judged
};

// What is wanted of a shard: its members, the primary first.
struct WantedShard {
  ShardId shard;
  std::vector<ServerId> servers;
  std::string reason;
};

struct RebalanceWave {
  std::string cause;   // drain, arrival, loss or imbalance
  std::string reason;  // for the event log and for people: the cause, with names and numbers
  std::vector<WantedShard> goals;
  uint64_t bytes = 0;  // to be copied
};

struct RebalanceReport {
  bool on = true;
  std::string last_reason;  // of the last wave, or why a cause had none
  int64_t last_ms = 0;      // when; 0: never
  double imbalance = 0;     // 0: not known
  int64_t next_ms = 0;      // no wave for imbalance before; 0: any time
};

class RebalancePolicy {
 public:
  explicit RebalancePolicy(RebalanceOptions options);

  // Whether it wants a Tick: a view is dear to make.
  bool Due(int64_t now_ms) const { return now_ms >= next_look_ms_; }

  // `now_ms` is monotone. `view` as coordinator/cluster_view.h makes it. `goals_open`: goals of any
  // reason that are not reached yet. The wave's goals are to be written at once; what is not
  // written is asked for again later only if its cause is still there.
  std::optional<RebalanceWave> Tick(int64_t now_ms, const ClusterView& view, uint64_t goals_open);

  void Switch(bool on) { options_.on = on; }
  RebalanceReport report() const;

 private:
  RebalanceOptions options_;
  int64_t next_look_ms_ = 0;
};

// Where the copies of a draining server go: goals for every shard that it is a member of, and whose
// members elsewhere do not suffice. As the policy's drain; for an answer to a person, with
// `--dry-run`. FailedPrecondition: what finds no room, and how much is missing.
absl::StatusOr<RebalanceWave> PlanDrain(const ClusterView& view);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_REBALANCE_POLICY_H_
