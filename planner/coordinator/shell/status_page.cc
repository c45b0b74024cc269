#include "planner/coordinator/shell/status_page.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/json.h"
#include "common/tables/table_spec.h"
#include "config/config.h"
#include "planner/coordinator/console/cluster_document.h"
#include "proto/types.pb.h"

namespace hotbed {
namespace {

constexpr size_t kMovesMax = 200;       // lines; `hotbed shard moves` shows all
constexpr size_t kShardRunsMax = 2000;  // lines of the shard table; the JSON has all of them

TableId TableOf(const v1::ShardRecord& r) { return ShardId::FromPacked(r.shard()).table; }
uint32_t IndexOf(const v1::ShardRecord& r) { return ShardId::FromPacked(r.shard()).index; }

StatusTable ServerTable(const v1::ClusterMap& map) {
  StatusTable table;
  table.title = "Servers";
  table.columns = {"id",     "name",          "state",     "data port", "admin port",
                   "shards", "rows resident", "hot bytes", "spill",     "log"};
  for (const v1::ServerInfo& s : map.servers()) {
    const v1::ServerLoad& load = s.load();
    table.rows.push_back({absl::StrCat(s.server()), s.name(), StateOf(s), s.address(),
                          s.admin_address(), absl::StrCat(s.shards()),
                          absl::StrCat(load.rows_resident()), FormatBytes(load.hot_bytes()),
                          FormatBytes(load.spill_bytes()), FormatBytes(load.log_bytes())});
  }
  return table;
}

StatusTable TableTable(const v1::ClusterMap& map) {
  std::map<TableId, std::pair<uint64_t, uint64_t>> shards;  // all, active
  for (const v1::ShardRecord& r : map.shards()) {
    ++shards[TableOf(r)].first;
    shards[TableOf(r)].second += r.active();
  }
  StatusTable table;
  table.title = "Tables";
  table.columns = {"id",      "name",      "ids",    "rows",          "dim",
                   "weights", "optimizer", "shards", "shards active", "durability"};
  for (const v1::TableSpec& t : map.tables()) {
    table.rows.push_back(
        {absl::StrCat(t.id()), t.name(), t.hashed() ? "hashed" : "bounded", absl::StrCat(t.rows()),
         absl::StrCat(t.dim()), WordOf(kWeightTypeWords, t.weight_type()),
         WordOf(kOptimizerWords, t.optimizer().kind()), absl::StrCat(shards[t.id()].first),
         absl::StrCat(shards[t.id()].second), WordOf(kDurabilityWords, t.durability())});
  }
  return table;
}

// Servers of the members other than the primary, and of the learners.
std::pair<std::vector<ServerId>, std::vector<ServerId>> OthersOf(const v1::ShardRecord& r) {
  std::pair<std::vector<ServerId>, std::vector<ServerId>> others;
  for (const v1::Member& m : r.members()) {
    if (m.server() != r.primary().server()) others.first.push_back(m.server());
  }
  for (const v1::Member& m : r.learners()) others.second.push_back(m.server());
  return others;
}

using Names = std::map<ServerId, std::string>;

Names ServerNames(const v1::ClusterMap& map) {
  Names names;
  for (const v1::ServerInfo& s : map.servers()) names[s.server()] = s.name();
  return names;
}

std::string Joined(const Names& names, const std::vector<ServerId>& servers) {
  return absl::StrJoin(servers, " ", [&](std::string* out, ServerId server) {
    auto it = names.find(server);
    absl::StrAppend(out, it == names.end() ? absl::StrCat("server ", server) : it->second);
  });
}

bool SameForDisplay(const v1::ShardRecord& a, const v1::ShardRecord& b) {
  return TableOf(a) == TableOf(b) && a.primary().server() == b.primary().server() &&
         a.epoch() == b.epoch() && a.active() == b.active() && OthersOf(a) == OthersOf(b);
}

// One line per run of adjacent shards with the same owner and epoch.
StatusTable ShardTable(const v1::ClusterMap& map) {
  Names servers = ServerNames(map);
  std::map<TableId, std::string> tables;
  for (const v1::TableSpec& t : map.tables()) tables[t.id()] = t.name();
  StatusTable table;
  table.title = "Shards";
  table.columns = {"table",   "shards",       "rows or buckets", "primary",
                   "backups", "transfers to", "epoch",           "state"};
  for (int i = 0; i < map.shards_size() && table.rows.size() < kShardRunsMax;) {
    const v1::ShardRecord& first = map.shards(i);
    int last = i;
    while (last + 1 < map.shards_size() && SameForDisplay(first, map.shards(last + 1))) ++last;
    const v1::ShardRecord& end = map.shards(last);
    table.rows.push_back({tables[TableOf(first)],
                          last == i ? absl::StrCat(IndexOf(first))
                                    : absl::StrCat(IndexOf(first), "..", IndexOf(end)),
                          absl::StrCat("[", first.range_first(), ", ", end.range_limit(), ")"),
                          servers[first.primary().server()], Joined(servers, OthersOf(first).first),
                          Joined(servers, OthersOf(first).second), absl::StrCat(first.epoch()),
                          first.active() ? "active" : "waiting for its server"});
    i = last + 1;
  }
  return table;
}

StatusTable MoveTable(const CoordinatorStatus& status) {
  std::map<TableId, std::string> tables;
  for (const v1::TableSpec& t : status.map.tables()) tables[t.id()] = t.name();
  const Names names = ServerNames(status.map);
  StatusTable table;
  table.title = "Moves and refills";
  table.columns = {"shard", "wanted on", "step", "copied", "of", "why", "waits for"};
  for (const v1::ShardMove& move : status.moves.moves()) {
    if (table.rows.size() == kMovesMax) break;
    const v1::ShardGoal& goal = move.goal();
    table.rows.push_back({absl::StrCat(tables[TableOf(move.record())], "/", IndexOf(move.record())),
                          Joined(names, {goal.servers().begin(), goal.servers().end()}),
                          move.step(), FormatBytes(move.bytes_copied()),
                          FormatBytes(move.bytes_total()), goal.reason(), move.waits_for()});
  }
  return table;
}

StatusTable DoubtTable(const CoordinatorStatus& status) {
  std::map<TableId, std::string> tables;
  for (const v1::TableSpec& t : status.map.tables()) tables[t.id()] = t.name();
  StatusTable table;
  table.title = "Shards in doubt";
  table.columns = {"shard", "served", "since", "what is waited for, or may be elsewhere"};
  for (const v1::ShardDoubt& doubt : status.moves.doubts()) {
    if (table.rows.size() == kMovesMax) break;
    const ShardId shard = ShardId::FromPacked(doubt.shard());
    table.rows.push_back(
        {absl::StrCat(tables[shard.table], "/", shard.index), doubt.stopped() ? "no" : "yes",
         absl::FormatTime("%Y-%m-%d %H:%M:%E3S", absl::FromUnixMillis(doubt.since_unix_ms()),
                          absl::UTCTimeZone()),
         doubt.text()});
  }
  return table;
}

StatusTable EventTable(const CoordinatorStatus& status) {
  StatusTable table;
  table.title = "Events";
  table.columns = {"number", "time", "kind", "what"};
  const auto& events = status.events.events();
  for (auto it = events.rbegin(); it != events.rend(); ++it) {
    table.rows.push_back(
        {absl::StrCat(it->number()),
         absl::FormatTime("%Y-%m-%d %H:%M:%E3S", absl::FromUnixMillis(it->unix_ms()),
                          absl::UTCTimeZone()),
         it->kind(), it->text()});
  }
  return table;
}

std::string Json(const CoordinatorStatus& status, const std::string& address, uint64_t watches) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string map;
  if (!google::protobuf::util::MessageToJsonString(status.map, &map, options).ok()) map = "null";
  return absl::StrCat("{\"role\":\"coordinator\",\"address\":", JsonString(address),
                      ",\"serving\":", status.serving ? "true" : "false",
                      ",\"trouble\":", JsonString(status.trouble),
                      ",\"sessions\":", status.sessions, ",\"requests_pending\":", status.pending,
                      ",\"watches\":", watches, ",\"map\":", map, "}");
}

uint64_t LiveServers(const CoordinatorStatus& status) {
  uint64_t live = 0;
  for (const v1::ServerInfo& s : status.map.servers()) live += s.live();
  return live;
}

uint64_t ActiveShards(const CoordinatorStatus& status) {
  uint64_t active = 0;
  for (const v1::ShardRecord& r : status.map.shards()) active += r.active();
  return active;
}

// Shards with fewer live members than their table wants.
double ShardsShort(const v1::ClusterMap& map) {
  std::set<std::pair<ServerId, uint64_t>> live;  // with the incarnation
  for (const v1::ServerInfo& s : map.servers()) {
    if (s.live()) live.emplace(s.server(), s.incarnation());
  }
  std::map<TableId, uint64_t> wanted;
  for (const v1::TableSpec& t : map.tables()) wanted[t.id()] = std::max<uint64_t>(t.replicas(), 1);
  double total = 0;
  for (const v1::ShardRecord& r : map.shards()) {
    const auto is_live = [&](const v1::Member& m) {
      return live.count({m.server(), m.incarnation()}) > 0;
    };
    const auto members = std::count_if(r.members().begin(), r.members().end(), is_live);
    total += static_cast<uint64_t>(members) < wanted[TableOf(r)] ? 1 : 0;
  }
  return total;
}

}  // namespace

StatusPage MakeStatusPage(const CoordinatorStatus& status, const std::string& address,
                          uint64_t watches) {
  const v1::ClusterMap& map = status.map;
  StatusPage page;
  page.title = "hotbed-coordinator";
  page.subtitle = absl::StrCat(address, ", ", status.serving ? "serving" : "not serving",
                               status.trouble.empty() ? "" : ": ", status.trouble);
  page.facts = {
      {"cluster", map.cluster_id()},
      {"plan revision", absl::StrCat(map.plan_revision())},
      {"servers", absl::StrCat(LiveServers(status), " live of ", map.servers_size())},
      {"tables", absl::StrCat(map.tables_size())},
      {"shards", absl::StrCat(ActiveShards(status), " active of ", map.shards_size())},
      {"sessions", absl::StrCat(status.sessions)},
      {"watches", absl::StrCat(watches)},
      {"moves and refills", absl::StrCat(status.moves.moves_total(), " in progress or waiting, ",
                                         FormatBytes(status.moves.bytes_per_s()), "/s, ",
                                         FormatBytes(status.moves.bytes_left()), " left",
                                         status.moves.paused() ? ", paused" : "")},
      {"rebalancing", status.moves.rebalance().on() ? "on" : "off"},
  };
  page.tables = {ServerTable(map), TableTable(map), ShardTable(map), MoveTable(status),
                 EventTable(status)};
  if (status.moves.doubts_total() > 0) page.tables.insert(page.tables.begin(), DoubtTable(status));
  page.json = Json(status, address, watches);
  return page;
}

void AddGauges(const CoordinatorStatus& status, uint64_t watches,
               std::vector<MetricSample>* samples) {
  const auto add = [&](const char* name, const char* help, Labels labels, double value) {
    AddSample(name, help, std::move(labels), value, samples);
  };
  const double live = LiveServers(status);
  const double active = ActiveShards(status);
  constexpr char kServers[] = "hotbed_coordinator_servers";
  constexpr char kServersHelp[] = "Shard servers known, by whether their lease holds.";
  add(kServers, kServersHelp, {{"state", "live"}}, live);
  add(kServers, kServersHelp, {{"state", "down"}}, status.map.servers_size() - live);
  constexpr char kShards[] = "hotbed_coordinator_shards";
  constexpr char kShardsHelp[] = "Shards, by whether they are active at their epoch.";
  add(kShards, kShardsHelp, {{"state", "active"}}, active);
  add(kShards, kShardsHelp, {{"state", "waiting"}}, status.map.shards_size() - active);
  add("hotbed_coordinator_shards_short", "Shards with fewer live members than their table wants.",
      {}, ShardsShort(status.map));
  add("hotbed_coordinator_tables", "Tables.", {}, status.map.tables_size());
  add("hotbed_coordinator_sessions", "Session names ever opened.", {}, status.sessions);
  add("hotbed_coordinator_watches", "Open streams of the cluster map.", {}, watches);
  add("hotbed_coordinator_requests_pending", "Requests that wait for the metadata store.", {},
      status.pending);
  for (const v1::TrainerGroup& group : status.trainers.groups()) {
    const Labels labels = {{"group", group.commit().group()}};
    add("hotbed_coordinator_trainers", "Members of a group of trainers.", labels,
        group.trainers_size());
    add("hotbed_coordinator_group_committed_step", "The last step that a group has committed.",
        labels, static_cast<double>(group.commit().step()));
    double slowest = -1;
    double fastest = 0;
    for (const v1::Trainer& trainer : group.trainers()) {
      const auto ended = static_cast<double>(trainer.ended_step());
      slowest = slowest < 0 ? ended : std::min(slowest, ended);
      fastest = std::max(fastest, ended);
    }
    if (slowest < 0) continue;
    add("hotbed_coordinator_group_slowest_step",
        "The last step that the slowest trainer has ended.", labels, slowest);
    add("hotbed_coordinator_group_fastest_step",
        "The last step that the fastest trainer has ended.", labels, fastest);
  }
  constexpr char kDone[] = "hotbed_coordinator_shard_changes_total";
  constexpr char kDoneHelp[] = "Changes of who holds a shard that were decided, by kind.";
  const auto count = [&](const char* kind, uint64_t value) {
    add(kDone, kDoneHelp, {{"kind", kind}}, static_cast<double>(value));
  };
  count("fail_over", status.done.fail_overs);
  count("move", status.done.moves);
  count("refill", status.done.refills);
  count("given_up", status.done.given_up);
  add("hotbed_coordinator_moves", "Moves and refills in progress or waiting.", {},
      status.moves.moves_total());
  add("hotbed_coordinator_shards_in_doubt",
      "Shards that have lost all members, or of which a passed over replica may hold more.", {},
      static_cast<double>(status.moves.doubts_total()));
  add("hotbed_coordinator_shards_waiting",
      "Shards that wait for a server, for a place or for their turn.", {}, status.shards_waiting);
  add("hotbed_coordinator_transfer_bytes_per_second", "Of all snapshot transfers between servers.",
      {}, static_cast<double>(status.moves.bytes_per_s()));
  add("hotbed_coordinator_events_total", "Events in the log since the cluster began.", {},
      status.events.events().empty()
          ? 0
          : static_cast<double>(status.events.events().rbegin()->number()));
  add("hotbed_coordinator_plan_revision", "Revision of the newest change that maps show.", {},
      status.map.plan_revision());
}

}  // namespace hotbed
