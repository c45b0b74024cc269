// Decides when shards are moved without anybody asking, and which: a server came, a server is lost,
// a server drains, or the load has long been uneven. Pure: time and reports of servers come in,
// goals go out; the coordinator writes the goals and carries them out. If switching primaries with
// their backups is enough, nothing is sent; otherwise the planner (planner/rebalance) chooses the
// moves with the fewest bytes.
//
// Load is that of load_meter.h, over windows of time. Imbalance is the busiest usable server's load
// divided by the mean of all usable servers.
//
//   cause      begins when                                                 cut by the rate limit
//   drain      a live server drains and holds replicas; even if switched   no (but counted)
//              off
//   arrival    a server holds no replica (or was lost and is back), and    yes
//              it and every other new server have been up for settle_ms;
//              not for servers that were there before the first table
//   loss       a server has been down for lost_ms                          yes
//   imbalance  it was >= imbalance_begin in `windows` consecutive          yes
//              windows, with the same busiest server
//
// One wave at a time: nothing begins while any goal is open. Each cause is answered once. An
// arrival or loss is that of one process (server and incarnation). After a wave for imbalance, the
// next one waits until the imbalance was below imbalance_end or patience_ms have passed. A wave
// that the rate limit cut short remains a cause. Except for drains, a wave must lower the busiest
// server's load by improvement_min.
//
// Where no move does that for an imbalance, because one shard of a hashed table has much of the
// load, this shard is to be cut in two, once within patience_ms. Its parts are moved if the
// imbalance lasts.
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
  int64_t settle_ms = 5000;    // that a server must be up before it is given anything
  int64_t lost_ms = 30'000;    // that a server must be down before the others are evened out
  int64_t window_ms = 10'000;  // over which loads are measured
  uint32_t windows = 6;        // consecutive uneven windows that make an imbalance
  double imbalance_begin = 1.3;
  double imbalance_end = 1.1;
  int64_t patience_ms =
      1'800'000;                   // before another wave for an imbalance that the last did not end
  uint32_t moves_per_hour = 1000;  // replicas that change servers; switching roles is free
  uint32_t moves_per_wave = 500;
  bool splits = true;  // may want shards cut in two
  double improvement_min = 0.02;
  double rows_per_s_min = 1000;  // of the whole cluster; below this, load is not judged
};

struct RebalanceReport {
  bool on = true;
  std::string last_reason;  // of the last wave, or why a cause had none
  int64_t last_ms = 0;      // when; 0: never
  double imbalance = 0;     // 0: unknown
  int64_t next_ms = 0;      // no wave for imbalance before then; 0: any time
};

class RebalancePolicy {
 public:
  explicit RebalancePolicy(RebalanceOptions options);

  // Whether it wants a Tick. Making the view for it is expensive.
  bool Due(int64_t now_ms) const { return now_ms >= next_look_ms_; }

  // `now_ms` is monotonic. `view` is that of cluster_view.h. `goals_open` is the number of goals,
  // for whatever reason, that are not reached yet. The caller writes the wave's goals at once; a
  // goal that it does not write comes again only if its cause persists.
  std::optional<RebalanceWave> Tick(int64_t now_ms, const ClusterView& view, uint64_t goals_open);

  // The view with the load of each shard as it was over the last windows; nullopt: it is not
  // measured yet, or the cluster is idle.
  std::optional<ClusterView> Weighed(const ClusterView& view) const;

  void Switch(bool on) { options_.on = on; }
  RebalanceReport report() const;

 private:
  struct Seen {
    Incarnation incarnation = 0;
    int64_t since_ms = 0;  // up, or down
    bool up = false;
    bool held = false;        // it held replicas when it was last up
    bool answered = false;    // its arrival or loss has had its wave, or needs none
    bool was_lost = false;    // it came back after lost_ms
    bool unfinished = false;  // its wave was cut short
  };

  enum class Cause { kArrival, kLoss, kImbalance };

  void LookAtServers(int64_t now_ms, const ClusterView& view);
  void LookAtLoads(int64_t now_ms, const ClusterView& view, bool quiet);
  std::optional<RebalanceWave> Drain(int64_t now_ms, const ClusterView& view);
  std::optional<RebalanceWave> EvenOut(int64_t now_ms, const ClusterView& view);
  // Names of servers that arrived, or are lost, and have had no wave yet. Empty: none, or not all
  // that arrived are settled.
  std::string Arrivals(int64_t now_ms, const ClusterView& view) const;
  std::string Losses(int64_t now_ms, const ClusterView& view) const;
  bool Lasting(int64_t now_ms) const;
  std::optional<RebalanceWave> Plan(int64_t now_ms, const ClusterView& view, Cause cause,
                                    const std::string& why);
  std::optional<RebalanceWave> Split(int64_t now_ms, const ClusterView& view,
                                     const LoadBoard& board, const std::string& why);
  void Answered(Cause cause, bool cut_short, int64_t now_ms);
  uint32_t MovesLeft(int64_t now_ms);
  void Say(int64_t now_ms, std::string reason);

  RebalanceOptions options_;
  int64_t next_look_ms_ = 0;
  std::map<ServerId, Seen> servers_;

  std::optional<LoadSample>
      since_;  // start of the average: that of the uneven windows, or of the last one
  std::optional<LoadSample> until_;
  uint32_t uneven_ = 0;  // consecutive uneven windows with the same busiest server
  ServerId busiest_ = 0;
  bool evened_ =
      false;  // a wave for imbalance went out, and the imbalance was not below its end since
  int64_t patient_until_ms_ = 0;
  bool unfinished_ = false;  // the last wave for imbalance was cut short, or split a shard
  int64_t split_again_ms_ = 0;
  int64_t drain_again_ms_ = 0;
  std::deque<std::pair<int64_t, uint32_t>>
      moved_;  // time and number of replicas, over the last hour
  RebalanceReport report_;
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_BALANCE_REBALANCE_POLICY_H_
