// When shards are moved without anybody asking, and which: a server came, a server is lost, a
// server is drained, or the load has long been uneven. Pure: time and what servers say come in,
// goals go out; the coordinator writes the goals and carries them out. The planner (planner/
// rebalance) chooses the moves, with the fewest bytes; before it, primaries change places with
// their backups where that is enough, which copies nothing.
//
// Load is as planner/coordinator/balance/load_meter.h has it, over windows. Imbalance: the busiest usable
// server's load over the mean of all usable ones.
//
//   cause      begins when                                                 cut by the rate limit
//   drain      a live server is draining and holds copies; also when off   no (but counted)
//   arrival    a server holds no copy (or was lost and is back), and has   yes
//              been up for settle_ms, as has every other that came; not
//              of servers that are there before the first table
//   loss       a server has been down for lost_ms                          yes
//   imbalance  >= imbalance_begin in `windows` windows on end, of one      yes
//              and the same server
//
// One wave at a time: nothing begins while any goal is open. A cause is answered once: an arrival
// or loss is one of a process (server and incarnation); after a wave for imbalance, no other until
// the imbalance was below imbalance_end, or `patience_ms` have passed. A wave that the rate limit
// cut short stays open as a cause. No wave but a drain's goes out that would not lower the busiest
// server's load by improvement_min.
//
// Thread-compatible.
#ifndef HOTBED_PLANNER_COORDINATOR_BALANCE_REBALANCE_POLICY_H_
#define HOTBED_PLANNER_COORDINATOR_BALANCE_REBALANCE_POLICY_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/ids.h"
#include "planner/cluster_problem.h"
#include "planner/coordinator/balance/load_meter.h"
#include "planner/coordinator/balance/rebalance_moves.h"

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
  uint32_t moves_per_hour = 1000;   // copies that change their server; switching roles is free
  uint32_t moves_per_wave = 500;
  double improvement_min = 0.02;
  double rows_per_s_min = 1000;  // of the whole cluster; with less its load is not judged
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
  struct Seen {
    Incarnation incarnation = 0;
    int64_t since_ms = 0;  // up, or down
    bool up = false;
    bool held = false;        // copies, when it was last up
    bool answered = false;    // this coming or going has had its wave, or was none
    bool was_lost = false;    // it comes back after lost_ms
    bool unfinished = false;  // its wave was cut short
  };

  enum class Cause { kArrival, kLoss, kImbalance };

  void LookAtServers(int64_t now_ms, const ClusterView& view);
  void LookAtLoads(int64_t now_ms, const ClusterView& view, bool quiet);
  std::optional<RebalanceWave> Drain(int64_t now_ms, const ClusterView& view);
  std::optional<RebalanceWave> EvenOut(int64_t now_ms, const ClusterView& view);
  // Names of servers that have come, or are lost, without an answer yet; empty: none, or not all
  // that came are settled.
  std::string Arrivals(int64_t now_ms, const ClusterView& view) const;
  std::string Losses(int64_t now_ms, const ClusterView& view) const;
  bool Lasting(int64_t now_ms) const;
  std::optional<RebalanceWave> Plan(int64_t now_ms, const ClusterView& view, Cause cause,
                                    const std::string& why);
  void Answered(Cause cause, bool cut_short, int64_t now_ms);
  uint32_t MovesLeft(int64_t now_ms);
  void Say(int64_t now_ms, std::string reason);

  RebalanceOptions options_;
  int64_t next_look_ms_ = 0;
  std::map<ServerId, Seen> servers_;

  std::optional<LoadSample> since_;  // where the average begins: the uneven windows, or the last
  std::optional<LoadSample> until_;
  uint32_t uneven_ = 0;  // windows on end with the same busiest server
  ServerId busiest_ = 0;
  bool evened_ = false;  // a wave for imbalance went out, and it was not below its end since
  int64_t patient_until_ms_ = 0;
  bool unfinished_ = false;  // the last wave for imbalance was cut short
  int64_t drain_again_ms_ = 0;
  std::deque<std::pair<int64_t, uint32_t>> moved_;  // when, how many copies: of the last hour
  RebalanceReport report_;
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_BALANCE_REBALANCE_POLICY_H_
