#include "cli/doctor/cluster_checks.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/shards/event_text.h"
#include "cli/shards/shard_replicas.h"
#include "cli/tables/table_text.h"
#include "common/clock.h"
#include "config/units.h"
#include "terminal/table_printer.h"

namespace hotbed {
namespace {

// A move that waits longer than this is reported.
constexpr int64_t kMoveWaitsMs = 60'000;
// A server that holds more than this part of its memory soon reads rows from the disk.
constexpr double kFullPart = 0.9;

}  // namespace

Check CheckServers(const v1::ClusterMap& map) {
  Check check{"servers", Verdict::kOk, absl::StrCat(map.servers_size(), " registered, all live")};
  std::string down, read_only;
  for (const v1::ServerInfo& server : map.servers()) {
    if (!server.live()) {
      absl::StrAppend(&down, " ", server.name(), " (", server.address(), ")");
    } else if (server.load().read_only()) {
      absl::StrAppend(&read_only, " ", server.name());
    }
  }
  if (map.servers().empty()) return {check.name, Verdict::kFailed, "none registered"};
  if (!down.empty()) return {check.name, Verdict::kFailed, absl::StrCat("down:", down)};
  if (!read_only.empty()) {
    return {check.name, Verdict::kFailed,
            absl::StrCat("read-only (disk full or an I/O error):", read_only)};
  }
  return check;
}

Check CheckStrangers(CoordinatorStub* coordinator) {
  v1::RebuildMetadataRequest request;
  request.set_dry_run(true);
  const absl::StatusOr<v1::RebuildMetadataReply> reply = coordinator->RebuildMetadata(request);
  const absl::string_view why = reply.status().message();
  if (!reply.ok() && !absl::StrContains(why, "no server of a cluster") &&
      !absl::StrContains(why, "are not empty")) {
    return {"strangers", Verdict::kFailed, std::string(why)};
  }
  std::string names;
  if (reply.ok()) {
    for (const v1::ServerInfo& server : reply->servers()) {
      absl::StrAppend(&names, " ", server.name(), " (", server.address(), ")");
    }
  }
  if (names.empty()) return {"strangers", Verdict::kOk, "no server waits to be adopted"};
  return {"strangers", Verdict::kFailed,
          absl::StrCat("the metadata do not know", names,
                       "; 'hotbed metadata rebuild --from-servers' adopts them")};
}

Check CheckShards(const v1::ClusterMap& map) {
  int inactive = 0;
  std::string first;
  for (const v1::ShardRecord& shard : map.shards()) {
    if (shard.active()) continue;
    if (inactive++ == 0) first = ShardName(map, shard.shard());
  }
  if (inactive == 0)
    return {"shards", Verdict::kOk, absl::StrCat(map.shards_size(), ", all active")};
  return {"shards", Verdict::kFailed,
          absl::StrCat(inactive, " of ", map.shards_size(), " not active, the first is ", first)};
}

Check CheckDoubts(const v1::ClusterMap& map, const v1::ListMovesReply& list) {
  const std::string name = "complete replicas";
  if (list.doubts_total() == 0) return {name, Verdict::kOk, "no shard waits for lost members"};
  // The gravest first: one that stands still, one of which more is known to be elsewhere, the rest.
  const auto gravity = [](const v1::ShardDoubt& doubt) {
    return doubt.stopped() ? 2 : doubt.holds_more() ? 1 : 0;
  };
  const v1::ShardDoubt& worst =
      *std::max_element(list.doubts().begin(), list.doubts().end(),
                        [&](const auto& a, const auto& b) { return gravity(a) < gravity(b); });
  return {name, gravity(worst) > 0 ? Verdict::kFailed : Verdict::kWarning,
          absl::StrCat(list.doubts_total(), " in doubt, ", DoubtText(map, worst))};
}

Check CheckReplicas(const v1::ClusterMap& map) {
  const ReplicaView view(map);
  uint64_t replicated = 0, shorter = 0;
  std::string first;
  for (const v1::TableSpec& table : map.tables()) {
    const ReplicaCount count = view.CountOf(table.id());
    replicated += count.replicas > 1 ? count.shards : 0;
    if (count.replicas > 1 && count.short_of > 0 && shorter == 0) first = count.first_short;
    shorter += count.replicas > 1 ? count.short_of : 0;
  }
  if (shorter > 0) {
    return {"replicas", Verdict::kFailed,
            absl::StrCat(shorter, " of ", replicated,
                         " replicated shards have fewer replicas than wanted, the first is ", first,
                         "; 'hotbed shard moves' shows what is being filled")};
  }
  return {"replicas", Verdict::kOk,
          replicated == 0 ? "no replicated tables"
                          : absl::StrCat(replicated, " replicated shards have all replicas")};
}

Check CheckDomains(const v1::ClusterMap& map) {
  std::set<std::string> domains;
  std::string without, first;
  uint64_t replicas = 1;
  for (const v1::TableSpec& table : map.tables()) {
    replicas = std::max<uint64_t>(replicas, table.replicas());
  }
  for (const v1::ServerInfo& server : map.servers()) {
    if (!server.live()) continue;
    domains.insert(server.failure_domain());
    if (server.failure_domain().empty()) absl::StrAppend(&without, " ", server.name());
  }
  const uint64_t sharing = ReplicaView(map).SharingDomains(&first);
  if (sharing > 0) {
    return {"failure domains", Verdict::kFailed,
            absl::StrCat(sharing, " shards have two replicas in one failure domain, the first is ",
                         first)};
  }
  if (replicas > 1 && !without.empty()) {
    return {"failure domains", Verdict::kWarning,
            absl::StrCat("none said by", without, ": start them with --failure-domain")};
  }
  if (domains.size() < replicas) {
    return {"failure domains", Verdict::kWarning,
            absl::StrCat(domains.size(), " live for tables of ", replicas,
                         " replicas: a lost replica cannot be replaced until another is up")};
  }
  return {"failure domains", Verdict::kOk, absl::StrCat(domains.size(), " live")};
}

Check CheckMoves(const v1::ClusterMap& map, const v1::ListMovesReply& list) {
  const int64_t now_ms = Clock::Real()->WallUs() / 1000;
  if (list.paused()) {
    return {"moves", Verdict::kWarning,
            absl::StrCat("paused, ", list.moves_total(), " wait: 'hotbed shard resume'")};
  }
  for (const v1::ShardMove& move : list.moves()) {
    const int64_t age_ms = now_ms - move.goal().since_unix_ms();
    const bool asked = move.goal().since_unix_ms() != 0;  // a refill has no such time
    if (!asked || move.waits_for().empty() || age_ms < kMoveWaitsMs) continue;
    return {"moves", Verdict::kWarning,
            absl::StrCat(ShardName(map, move.goal().shard()), " does not go on for ",
                         ShortSeconds(static_cast<double>(age_ms) * 1e-3), ": ", move.waits_for())};
  }
  return {"moves", Verdict::kOk, absl::StrCat(list.moves_total(), " in progress or waiting")};
}

Check CheckRebalancing(const v1::ListMovesReply& list) {
  return {"rebalancing", list.rebalance().on() ? Verdict::kOk : Verdict::kWarning,
          RebalanceText(list.rebalance())};
}

Check CheckRoom(const v1::ClusterMap& map) {
  std::string full;
  for (const v1::ServerInfo& server : map.servers()) {
    const v1::ServerLoad& load = server.load();
    const double limit = static_cast<double>(load.host_bytes_limit());
    if (!server.live() || limit == 0) continue;
    if (static_cast<double>(load.bytes_held()) < kFullPart * limit) continue;
    absl::StrAppend(&full, " ", server.name(), " holds ", FormatBytes(load.bytes_held()), " with ",
                    FormatBytes(load.host_bytes_limit()), " of memory;");
  }
  if (full.empty()) return {"room", Verdict::kOk, "every server holds less than its memory"};
  return {"room", Verdict::kWarning,
          absl::StrCat(full.substr(1), " the rest is read from its disk: add a server")};
}

Check CheckDirectories(const v1::ListEventsReply& events) {
  const int64_t now_ms = Clock::Real()->WallUs() / 1000;
  int count = 0;
  std::string last;
  for (const v1::ClusterEvent& event : events.events()) {
    if (event.kind() != "server_refused" && event.kind() != "data_given_up") continue;
    if (now_ms - event.unix_ms() > kRecentSeconds * 1000) continue;
    ++count;
    last = EventLine(event);
  }
  if (count == 0) return {"directories", Verdict::kOk, "none was refused or given up lately"};
  return {"directories", Verdict::kWarning,
          absl::StrCat(count, " refused or given up lately, the last: ", last)};
}

}  // namespace hotbed
