#include "cli/demo/cluster_changes.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/base/coordinator_stub.h"
#include "cli/shards/find_server.h"
#include "cli/shards/shard_replicas.h"
#include "cli/shards/shard_selection.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

constexpr absl::Duration kCallMax = absl::Seconds(10);
constexpr int64_t kLookNs = 20'000'000;
constexpr int64_t kMoveMaxNs = 60'000'000'000;
constexpr int64_t kRefillMaxNs = 60'000'000'000;

double SecondsSince(int64_t start_ns, const Clock* clock) {
  return static_cast<double>(clock->NowNs() - start_ns) * 1e-9;
}

// Waits until `done` is true of the map.
absl::Status WaitFor(const char* what, CoordinatorStub* coordinator, int64_t limit_ns,
                     const Tick& tick, const Clock* clock,
                     const std::function<bool(const v1::ClusterMap&)>& done) {
  while (true) {
    HOTBED_ASSIGN_OR_RETURN(const v1::ClusterMap map, coordinator->GetClusterMap());
    if (done(map)) return absl::OkStatus();
    if (clock->NowNs() > limit_ns) {
      return absl::DeadlineExceededError(absl::StrCat(what,
                                                      " took too long; see 'hotbed shard "
                                                      "moves' and 'hotbed events'"));
    }
    HOTBED_RETURN_IF_ERROR(tick());
    clock->SleepNs(kLookNs);
  }
}

bool IsActiveElsewhere(const v1::ClusterMap& map, uint64_t server) {
  return std::all_of(map.shards().begin(), map.shards().end(), [server](const auto& record) {
    return record.active() && record.primary().server() != server;
  });
}

bool HasAllReplicas(const v1::ClusterMap& map) {
  const ReplicaView view(map);
  return std::all_of(map.tables().begin(), map.tables().end(), [&view](const auto& table) {
    const ReplicaCount count = view.CountOf(table.id());
    return count.short_of == 0 && count.active == count.shards;
  });
}

}  // namespace

absl::StatusOr<MoveReport> MoveOnto(const std::string& address, const std::string& server,
                                    uint64_t one_of, const Tick& tick, const Clock* clock) {
  CoordinatorStub coordinator(address, kCallMax);
  v1::ControlMovesRequest off;
  off.set_action(v1::ControlMovesRequest::REBALANCE_OFF);
  HOTBED_RETURN_IF_ERROR(coordinator.ControlMoves(off).status());
  HOTBED_ASSIGN_OR_RETURN(const v1::ClusterMap map, coordinator.GetClusterMap());
  HOTBED_ASSIGN_OR_RETURN(const v1::ServerInfo to, FindServer(map, server));
  HOTBED_ASSIGN_OR_RETURN(const std::vector<SelectedShard> all, SelectShards(map, {"all"}));
  v1::MoveShardsRequest request;
  request.set_reason(absl::StrCat("the demo moves some shards onto ", server));
  uint64_t seen = 0;
  for (auto& move : MovesTo(all, 0, to.server()).moves) {
    if (seen++ % one_of == 0) *request.add_moves() = std::move(move);
  }
  const int64_t start_ns = clock->NowNs();
  HOTBED_ASSIGN_OR_RETURN(const v1::MoveShardsReply asked, coordinator.MoveShards(request));
  MoveReport report{static_cast<uint64_t>(asked.goals_size()), asked.bytes(), 0};
  v1::ListMovesRequest list;
  list.set_number(asked.number());
  while (true) {
    HOTBED_ASSIGN_OR_RETURN(const v1::ListMovesReply left, coordinator.ListMoves(list));
    if (left.moves_total() == 0) break;
    if (clock->NowNs() - start_ns > kMoveMaxNs) {
      return absl::DeadlineExceededError(absl::StrCat(left.moves_total(), " of ", report.shards,
                                                      " moves are not done; the first ",
                                                      "waits for: ", left.moves(0).waits_for()));
    }
    HOTBED_RETURN_IF_ERROR(tick());
    clock->SleepNs(kLookNs);
  }
  report.seconds = SecondsSince(start_ns, clock);
  HOTBED_ASSIGN_OR_RETURN(const uint64_t there, PrimariesOf(address, server));
  if (there >= report.shards) return report;
  return absl::InternalError(absl::StrCat(report.shards, " shards were to move onto ", server,
                                          ", it has ", there, ": see 'hotbed events'"));
}

absl::Status WaitForReplicas(const std::string& address, const Tick& tick, const Clock* clock) {
  CoordinatorStub coordinator(address, kCallMax);
  return WaitFor("the filling of replicas", &coordinator, clock->NowNs() + kRefillMaxNs, tick,
                 clock, [](const v1::ClusterMap& now) { return HasAllReplicas(now); });
}

absl::StatusOr<LossReport> WaitOutLoss(const std::string& address, const std::string& server,
                                       int64_t killed_ns, const Tick& tick, const Clock* clock) {
  CoordinatorStub coordinator(address, kCallMax);
  HOTBED_ASSIGN_OR_RETURN(const v1::ClusterMap map, coordinator.GetClusterMap());
  HOTBED_ASSIGN_OR_RETURN(const v1::ServerInfo lost, FindServer(map, server));
  LossReport report;
  const int64_t limit_ns = killed_ns + kRefillMaxNs;
  HOTBED_RETURN_IF_ERROR(WaitFor(
      "the fail-over", &coordinator, limit_ns, tick, clock,
      [&lost](const v1::ClusterMap& now) { return IsActiveElsewhere(now, lost.server()); }));
  report.fail_over_seconds = SecondsSince(killed_ns, clock);
  HOTBED_RETURN_IF_ERROR(WaitForReplicas(address, tick, clock));
  report.refill_seconds = SecondsSince(killed_ns, clock);
  return report;
}

absl::StatusOr<uint64_t> PrimariesOf(const std::string& address, const std::string& server) {
  CoordinatorStub coordinator(address, kCallMax);
  HOTBED_ASSIGN_OR_RETURN(const v1::ClusterMap map, coordinator.GetClusterMap());
  HOTBED_ASSIGN_OR_RETURN(const v1::ServerInfo info, FindServer(map, server));
  return static_cast<uint64_t>(std::count_if(
      map.shards().begin(), map.shards().end(),
      [&info](const auto& record) { return record.primary().server() == info.server(); }));
}

}  // namespace hotbed
