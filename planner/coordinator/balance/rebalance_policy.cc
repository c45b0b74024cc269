#include "planner/coordinator/balance/rebalance_policy.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace hotbed {
namespace {

constexpr int64_t kHourMs = 3'600'000;
constexpr int64_t kDrainAgainMs = 10'000;  // after a drain that found no room

std::string NameOf(const ClusterServer& server) {
  return server.name.empty() ? absl::StrCat("server ", server.id) : server.name;
}

std::string NameOf(const ClusterView& view, ServerId id) {
  for (const ClusterServer& server : view.servers) {
    if (server.id == id) return NameOf(server);
  }
  return absl::StrCat("server ", id);
}

// Joins the goals of both; for a shard in both, the later goal, which takes the earlier into
// account.
std::vector<WantedShard> Joined(std::vector<WantedShard> earlier, std::vector<WantedShard> later) {
  std::set<uint64_t> in_later;
  for (const WantedShard& goal : later) in_later.insert(goal.shard.packed());
  for (WantedShard& goal : earlier) {
    if (in_later.count(goal.shard.packed()) == 0) later.push_back(std::move(goal));
  }
  std::sort(later.begin(), later.end(),
            [](const WantedShard& a, const WantedShard& b) { return a.shard < b.shard; });
  return later;
}

void Carry(const ClusterView& view, const std::vector<WantedShard>& goals, LoadBoard* board) {
  std::map<TableId, uint32_t> tables;
  for (uint32_t t = 0; t < view.tables.size(); ++t) tables.emplace(view.tables[t].spec.id, t);
  for (const WantedShard& goal : goals) {
    const uint32_t t = tables.at(goal.shard.table);
    const uint32_t place = view.tables[t].PlaceOf(goal.shard);
    board->Change(t, place, HoldersOf(view.tables[t].shards[place]), goal.servers);
  }
}

// Keeps the fewest first moves that bring the imbalance halfway below the `end` at which it counts
// as none, or all moves.
RebalanceWave FewestOf(const ClusterView& view, const std::vector<PlannedMove>& moves,
                       uint32_t moves_max, double end, const std::string& reason,
                       const LoadBoard& board) {
  RebalanceWave wave = WaveOf(view, moves, moves_max, reason);
  const double aim = 1 + (end - 1) / 2;
  for (uint32_t low = 0; low < wave.moves;) {  // more are needed than `low`
    const uint32_t middle = low + (wave.moves - low) / 2;
    RebalanceWave fewer = WaveOf(view, moves, middle, reason);
    LoadBoard then = board;
    Carry(view, fewer.goals, &then);
    if (then.Imbalance() > aim || fewer.moves <= low) {
      low = middle + 1;
      continue;
    }
    fewer.cut_short = false;
    wave = std::move(fewer);
  }
  return wave;
}

uint32_t Switches(const ClusterView& view, const std::vector<WantedShard>& goals) {
  const ClusterView after = After(view, goals);
  uint32_t switches = 0;
  for (size_t t = 0; t < view.tables.size(); ++t) {
    for (size_t i = 0; i < view.tables[t].shards.size(); ++i) {
      std::vector<ServerId> now = HoldersOf(view.tables[t].shards[i]);
      std::vector<ServerId> then = HoldersOf(after.tables[t].shards[i]);
      const bool roles = now.front() != then.front();
      std::sort(now.begin(), now.end());
      std::sort(then.begin(), then.end());
      switches += roles && now == then ? 1 : 0;
    }
  }
  return switches;
}

}  // namespace

RebalancePolicy::RebalancePolicy(RebalanceOptions options) : options_(options) {}

RebalanceReport RebalancePolicy::report() const {
  RebalanceReport report = report_;
  report.on = options_.on;
  report.next_ms = evened_ && !unfinished_ ? patient_until_ms_ : 0;
  return report;
}

std::optional<RebalanceWave> RebalancePolicy::Tick(int64_t now_ms, const ClusterView& view,
                                                   uint64_t goals_open) {
  if (!Due(now_ms)) return std::nullopt;
  next_look_ms_ = now_ms + options_.look_ms;
  LookAtServers(now_ms, view);
  LookAtLoads(now_ms, view, goals_open == 0);
  if (goals_open > 0) return std::nullopt;
  std::optional<RebalanceWave> wave = Drain(now_ms, view);
  if (!wave.has_value() && options_.on) wave = EvenOut(now_ms, view);
  if (!wave.has_value()) return std::nullopt;
  moved_.emplace_back(now_ms, wave->moves);
  next_look_ms_ = now_ms + 3 * options_.look_ms;  // its goals have to be written first
  Say(now_ms, wave->reason);
  return wave;
}

std::optional<ClusterView> RebalancePolicy::Weighed(const ClusterView& view) const {
  if (!since_.has_value() || since_->at_ms == until_->at_ms) return std::nullopt;
  const LoadBoard board(view, LoadsBetween(*since_, *until_, view), options_.rows_per_s_min);
  if (board.idle()) return std::nullopt;
  return board.Weighed(view);
}

void RebalancePolicy::LookAtServers(int64_t now_ms, const ClusterView& view) {
  const std::set<ServerId> holders = HoldersIn(view);
  bool changed = false;
  for (const ClusterServer& server : view.servers) {
    const bool is_new = servers_.count(server.id) == 0;
    Seen& seen = servers_[server.id];
    const bool up = server.usable;
    if (is_new || seen.up != up || (up && seen.incarnation != server.incarnation)) {
      changed = true;
      seen.was_lost = up && !is_new && !seen.up && now_ms - seen.since_ms >= options_.lost_ms;
      // Nobody knows what servers held that were already down when this coordinator started.
      seen.answered = up ? holders.empty() : !is_new && !seen.held;
      seen.unfinished = false;
      seen.up = up;
      seen.since_ms = now_ms;
      seen.incarnation = server.incarnation;
    }
    if (!up) continue;
    seen.held = holders.count(server.id) > 0;
    const bool settled = now_ms - seen.since_ms >= options_.settle_ms;
    if (settled && seen.held && !seen.was_lost && !seen.unfinished) seen.answered = true;
  }
  if (!changed) return;
  uneven_ = 0;
  since_ = until_ = SampleOf(now_ms, view);
}

void RebalancePolicy::LookAtLoads(int64_t now_ms, const ClusterView& view, bool quiet) {
  if (!quiet) {  // the cost of transfers is no load to even out
    uneven_ = 0;
    since_ = until_ = SampleOf(now_ms, view);
    return;
  }
  if (!until_.has_value() || now_ms - until_->at_ms < options_.window_ms) return;
  LoadSample latest = SampleOf(now_ms, view);
  const LoadBoard board(view, LoadsBetween(*until_, latest, view), options_.rows_per_s_min);
  report_.imbalance = board.idle() ? 0 : board.Imbalance();
  const ServerId busiest = board.BusiestServer();
  const bool uneven = !board.idle() && board.Imbalance() >= options_.imbalance_begin;
  if (!uneven || busiest != busiest_ || uneven_ == 0) {
    since_ = std::move(until_);
    uneven_ = 0;
  }
  uneven_ += uneven ? 1 : 0;
  busiest_ = busiest;
  if (!board.idle() && board.Imbalance() < options_.imbalance_end) evened_ = unfinished_ = false;
  until_ = std::move(latest);
}

std::optional<RebalanceWave> RebalancePolicy::Drain(int64_t now_ms, const ClusterView& view) {
  if (now_ms < drain_again_ms_) return std::nullopt;
  absl::StatusOr<RebalanceWave> wave = PlanDrain(view);
  if (wave.ok() && !wave->goals.empty()) return *std::move(wave);
  if (wave.ok() && wave->reason.empty()) return std::nullopt;  // nothing is there
  drain_again_ms_ = now_ms + kDrainAgainMs;
  Say(now_ms, wave.ok() ? absl::StrCat(wave->reason, ": what is left there cannot move")
                        : absl::StrCat("a drain finds no place: ", wave.status().message()));
  return std::nullopt;
}

std::string RebalancePolicy::Arrivals(int64_t now_ms, const ClusterView& view) const {
  std::vector<std::string> came;
  for (const ClusterServer& server : view.servers) {
    const Seen& seen = servers_.at(server.id);
    if (!seen.up || seen.answered || (seen.held && !seen.was_lost && !seen.unfinished)) continue;
    if (now_ms - seen.since_ms < options_.settle_ms) return "";
    came.push_back(NameOf(server));
  }
  return absl::StrJoin(came, ", ");
}

std::string RebalancePolicy::Losses(int64_t now_ms, const ClusterView& view) const {
  std::vector<std::string> lost;
  for (const ClusterServer& server : view.servers) {
    const Seen& seen = servers_.at(server.id);
    if (server.reachable || seen.up || seen.answered) continue;
    if (now_ms - seen.since_ms >= options_.lost_ms) lost.push_back(NameOf(server));
  }
  return absl::StrJoin(lost, ", ");
}

bool RebalancePolicy::Lasting(int64_t now_ms) const {
  return uneven_ >= options_.windows && (!evened_ || unfinished_ || now_ms >= patient_until_ms_);
}

std::optional<RebalanceWave> RebalancePolicy::EvenOut(int64_t now_ms, const ClusterView& view) {
  if (!since_.has_value() || since_->at_ms == until_->at_ms) return std::nullopt;  // not measured
  if (const std::string came = Arrivals(now_ms, view); !came.empty()) {
    return Plan(now_ms, view, Cause::kArrival, absl::StrCat(came, " came"));
  }
  if (const std::string lost = Losses(now_ms, view); !lost.empty()) {
    return Plan(now_ms, view, Cause::kLoss, absl::StrCat(lost, " is lost"));
  }
  if (!Lasting(now_ms)) return std::nullopt;
  return Plan(now_ms, view, Cause::kImbalance,
              absl::StrFormat("%s has had %.2f times the mean load or more for %d s",
                              NameOf(view, busiest_), options_.imbalance_begin,
                              (until_->at_ms - since_->at_ms) / 1000));
}

// The best wave for the cause within the rate limit, if it is worth it.
std::optional<RebalanceWave> RebalancePolicy::Plan(int64_t now_ms, const ClusterView& view,
                                                   Cause cause, const std::string& why) {
  const uint32_t moves_max = std::min(options_.moves_per_wave, MovesLeft(now_ms));
  if (moves_max == 0) {
    Say(now_ms, absl::StrCat(why, "; waits: ", options_.moves_per_hour,
                             " replicas were moved within the last hour, which is the limit"));
    return std::nullopt;
  }
  const LoadBoard now(view, LoadsBetween(*since_, *until_, view), options_.rows_per_s_min);
  LoadBoard board = now;
  const double busiest = board.Busiest();
  const double mean = std::max(board.Mean(), 1e-9);
  const std::string reason = absl::StrCat("rebalance: ", why);
  RebalanceWave wave;
  if (cause == Cause::kArrival || board.Imbalance() >= options_.imbalance_end) {
    std::vector<WantedShard> switches =
        SwitchPrimaries(view, options_.imbalance_end, options_.moves_per_wave, reason, &board);
    const ClusterView next = After(view, switches);
    if (cause == Cause::kArrival || board.Imbalance() >= options_.imbalance_end) {
      absl::StatusOr<std::vector<PlannedMove>> moves = MovesFor(board.Weighed(next));
      if (moves.ok())
        wave = FewestOf(next, *moves, moves_max, options_.imbalance_end, reason, board);
      Carry(next, wave.goals, &board);
    }
    wave.goals = Joined(std::move(switches), std::move(wave.goals));
  }
  const bool better = board.Busiest() <= busiest * (1 - options_.improvement_min);
  Answered(cause, better && wave.cut_short, now_ms);
  if (wave.goals.empty() || !better) {
    if (cause == Cause::kImbalance) {
      if (std::optional<RebalanceWave> split = Split(now_ms, view, now, why)) return split;
    }
    Say(now_ms, absl::StrFormat("%s; no move makes the busiest server's load (%.2f times the mean) "
                                "less by %.0f %%",
                                why, busiest / mean, options_.improvement_min * 100));
    return std::nullopt;
  }
  wave.cause = cause == Cause::kArrival ? "arrival" : cause == Cause::kLoss ? "loss" : "imbalance";
  wave.reason = absl::StrFormat(
      "%s: the busiest server goes from %.2f to %.2f times the mean load by %d replicas that move, "
      "%d bytes, and %d that only change roles",
      why, busiest / mean, board.Busiest() / mean, wave.moves, wave.bytes,
      Switches(view, wave.goals));
  return wave;
}

// The busiest shard of the busiest server, if it has as much as makes an imbalance.
std::optional<RebalanceWave> RebalancePolicy::Split(int64_t now_ms, const ClusterView& view,
                                                    const LoadBoard& board,
                                                    const std::string& why) {
  if (!options_.splits || now_ms < split_again_ms_) return std::nullopt;
  const ServerId busiest = board.BusiestServer();
  double most = (options_.imbalance_begin - 1) * board.Mean();
  RebalanceWave wave;
  for (uint32_t t = 0; t < view.tables.size(); ++t) {
    const ClusterTable& table = view.tables[t];
    if (!table.spec.hashed || table.spec.column_slices > 1 || table.spec.vocabulary != 0) continue;
    for (uint32_t i = 0; i < table.shards.size(); ++i) {
      const ShardRange& range = table.shards[i].range;
      if (table.shards[i].primary != busiest || range.limit - range.first < 2) continue;
      if (board.WholeLoad(t, i) < most) continue;
      most = board.WholeLoad(t, i);
      wave.split = table.IdOf(i);
    }
  }
  if (!wave.split.has_value()) return std::nullopt;
  split_again_ms_ = now_ms + options_.patience_ms;
  unfinished_ = true;
  uneven_ = 0;
  wave.cause = "imbalance";
  wave.reason =
      absl::StrFormat("rebalance: %s, no move helps, and the shard has %.2f times the mean", why,
                      most / board.Mean());
  return wave;
}

void RebalancePolicy::Answered(Cause cause, bool cut_short, int64_t now_ms) {
  if (cause == Cause::kImbalance) {
    evened_ = true;
    unfinished_ = cut_short;
    patient_until_ms_ = now_ms + options_.patience_ms;
    return;
  }
  for (auto& [id, seen] : servers_) {
    if (seen.up != (cause == Cause::kArrival) || seen.answered) continue;
    if (now_ms - seen.since_ms < (seen.up ? options_.settle_ms : options_.lost_ms)) continue;
    seen.answered = !cut_short;
    seen.unfinished = cut_short;
  }
}

uint32_t RebalancePolicy::MovesLeft(int64_t now_ms) {
  while (!moved_.empty() && now_ms - moved_.front().first >= kHourMs) moved_.pop_front();
  uint64_t moved = 0;
  for (const auto& [when, replicas] : moved_) moved += replicas;
  return moved >= options_.moves_per_hour ? 0
                                          : options_.moves_per_hour - static_cast<uint32_t>(moved);
}

void RebalancePolicy::Say(int64_t now_ms, std::string reason) {
  report_.last_reason = std::move(reason);
  report_.last_ms = now_ms;
}

}  // namespace hotbed
