#include "planner/coordinator/console/cluster_document.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/ids.h"
#include "common/tables/table_spec.h"
#include "config/config.h"
#include "proto/served_part.h"

namespace hotbed {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kEventsMax = 100;

Json ServerOf(const v1::ServerInfo& server) {
  const v1::ServerLoad& load = server.load();
  uint64_t device_bytes = 0;
  for (const v1::TableLoad& table : load.tables()) device_bytes += table.device_bytes();
  return {{"id", server.server()},
          {"name", server.name()},
          {"state", StateOf(server)},
          {"address", server.address()},
          {"admin_address", server.admin_address()},
          {"failure_domain", server.failure_domain()},
          {"primaries", server.shards()},
          {"rows_resident", load.rows_resident()},
          {"host_bytes", load.hot_bytes()},
          {"host_bytes_limit", load.host_bytes_limit()},
          {"device_bytes", device_bytes},
          {"device_bytes_limit", load.device_bytes_limit()},
          {"spill_bytes", load.spill_bytes()},
          {"log_bytes", load.log_bytes()},
          {"free_bytes", load.has_free_bytes() ? Json(load.free_bytes()) : Json(nullptr)},
          {"rows_pulled_total", load.rows_pulled_total()},
          {"rows_pushed_total", load.rows_pushed_total()},
          {"pull_p99_us", load.pull_p99_us()}};
}

struct TableSum {
  uint64_t rows_resident = 0;
  uint64_t hits = 0;
  uint64_t misses = 0;
};

// What servers report about a shard, its primary's and the other members'.
struct ShardSum {
  uint64_t bytes = 0;
  uint64_t pulled = 0;
  uint64_t pushed = 0;
  uint64_t applied = 0;  // at the primary; 0: not among the busiest shards of its server
  uint64_t behind = 0;   // applied at the member that is furthest behind; 0: unknown
};

struct Sums {
  std::map<TableId, TableSum> tables;
  std::map<uint64_t, ShardSum> shards;  // by packed shard
};

Sums SumsOf(const v1::ClusterMap& map) {
  Sums sums;
  for (const v1::ServerInfo& server : map.servers()) {
    for (const v1::TableLoad& load : server.load().tables()) {
      TableSum& table = sums.tables[load.table()];
      table.rows_resident += load.rows_resident();
      table.hits += load.hits();
      table.misses += load.misses();
    }
    for (const v1::ShardLoad& load : server.load().shards()) {
      ShardSum& shard = sums.shards[load.shard()];
      shard.pulled += load.rows_pulled_total();
      if (load.primary()) {
        shard.bytes = load.bytes();
        shard.pushed = load.rows_pushed_total();
        shard.applied = load.applied_lsn();
      } else if (server.live()) {
        shard.behind =
            shard.behind == 0 ? load.applied_lsn() : std::min(shard.behind, load.applied_lsn());
      }
    }
  }
  return sums;
}

Json TableOf(const v1::TableSpec& table, const TableSum& sum) {
  return {{"id", table.id()},
          {"name", table.name()},
          {"ids", table.hashed() ? "hashed" : "bounded"},
          {"rows", table.rows()},
          {"dim", table.dim()},
          {"weights", WordOf(kWeightTypeWords, table.weight_type())},
          {"optimizer", WordOf(kOptimizerWords, table.optimizer().kind())},
          {"durability", WordOf(kDurabilityWords, table.durability())},
          {"replicas", std::max<uint64_t>(table.replicas(), 1)},
          {"rows_resident", sum.rows_resident},
          {"hits", sum.hits},
          {"misses", sum.misses}};
}

template <typename Members>
Json ServersOf(const Members& members) {
  Json servers = Json::array();
  for (const v1::Member& member : members) servers.push_back(member.server());
  return servers;
}

// Neighbouring shards of one table.
struct ShardsEntry {
  const v1::ShardRecord* first = nullptr;
  uint64_t limit = 0;  // of the last one
  uint64_t shards = 0;
  uint64_t inactive = 0;
  uint64_t bytes = 0;
  uint64_t pulled = 0;
  uint64_t pushed = 0;
  std::optional<uint64_t> behind;  // records; the most of any

  void Add(const v1::ShardRecord& record, const ShardSum& sum) {
    if (first == nullptr) first = &record;
    limit = record.range_limit();
    ++shards;
    inactive += record.active() ? 0 : 1;
    bytes += sum.bytes;
    pulled += sum.pulled;
    pushed += sum.pushed;
    if (sum.applied == 0 || sum.behind == 0) return;
    behind = std::max(behind.value_or(0), sum.applied - std::min(sum.applied, sum.behind));
  }
};

Json EntryOf(const ShardsEntry& entry) {
  const v1::ShardRecord& record = *entry.first;
  const ShardId shard = ShardId::FromPacked(record.shard());
  return {{"table", shard.table},
          {"index", shard.index},
          {"shards", entry.shards},
          {"first", record.range_first()},
          {"limit", entry.limit},
          {"primary", record.primary().server()},
          {"members", ServersOf(record.members())},
          {"learners", ServersOf(record.learners())},
          {"epoch", record.epoch()},
          {"active", entry.inactive == 0},
          {"inactive", entry.inactive},
          {"bytes", entry.bytes},
          {"rows_pulled_total", entry.pulled},
          {"rows_pushed_total", entry.pushed},
          {"records_behind", entry.behind.has_value() ? Json(*entry.behind) : Json(nullptr)}};
}

// Table by table; within a table in the order of the ranges where several shards share an entry.
Json ShardsOf(const v1::ClusterMap& map, uint64_t entries_max, Sums* sums) {
  std::map<TableId, std::vector<const v1::ShardRecord*>> tables;
  for (const v1::ShardRecord& record : map.shards()) {
    tables[ShardId::FromPacked(record.shard()).table].push_back(&record);
  }
  const auto all = static_cast<uint64_t>(map.shards_size());
  const uint64_t per_entry = entries_max == 0 ? 1 : (all + entries_max - 1) / entries_max;
  Json shards = Json::array();
  for (auto& [table, records] : tables) {
    if (per_entry > 1) {
      std::stable_sort(records.begin(), records.end(), [](const auto* a, const auto* b) {
        return std::pair(a->column_first(), a->range_first()) <
               std::pair(b->column_first(), b->range_first());
      });
    }
    for (size_t i = 0; i < records.size();) {
      ShardsEntry entry;
      for (; i < records.size() && entry.shards < per_entry; ++i) {
        entry.Add(*records[i], sums->shards[records[i]->shard()]);
      }
      shards.push_back(EntryOf(entry));
    }
  }
  return shards;
}

Json MoveOf(const v1::ShardMove& move) {
  const ShardId shard = ShardId::FromPacked(move.record().shard());
  return {{"table", shard.table},
          {"index", shard.index},
          {"servers",
           Json(std::vector<uint64_t>(move.goal().servers().begin(), move.goal().servers().end()))},
          {"step", move.step()},
          {"bytes_copied", move.bytes_copied()},
          {"bytes_total", move.bytes_total()},
          {"reason", move.goal().reason()},
          {"waits_for", move.waits_for()}};
}

Json DoubtOf(const v1::ShardDoubt& doubt) {
  const ShardId shard = ShardId::FromPacked(doubt.shard());
  return {{"table", shard.table},
          {"index", shard.index},
          {"served", !doubt.stopped()},
          {"since_unix_ms", doubt.since_unix_ms()},
          {"text", doubt.text()}};
}

Json MovesOf(const v1::ListMovesReply& moves) {
  Json list = Json::array();
  for (const v1::ShardMove& move : moves.moves()) list.push_back(MoveOf(move));
  return {{"total", moves.moves_total()},       {"done_total", moves.done_total()},
          {"bytes_per_s", moves.bytes_per_s()}, {"bytes_left", moves.bytes_left()},
          {"paused", moves.paused()},           {"list", std::move(list)}};
}

// The newest first.
Json EventsOf(const v1::ListEventsReply& reply) {
  Json events = Json::array();
  for (auto it = reply.events().rbegin(); it != reply.events().rend(); ++it) {
    if (static_cast<int>(events.size()) == kEventsMax) break;
    events.push_back({{"number", it->number()},
                      {"unix_ms", it->unix_ms()},
                      {"kind", it->kind()},
                      {"text", it->text()}});
  }
  return events;
}

// The version as lists of the page name it; 0 is none.
Json VersionName(const v1::ServingMap& served, uint64_t number) {
  for (const v1::ServedVersion& version : served.versions()) {
    if (version.number() == number) return version.name();
  }
  return nullptr;
}

Json ServingServersOf(const v1::ServingMap& served) {
  Json servers = Json::array();
  for (const v1::ServingServerInfo& server : served.servers()) {
    uint64_t rows = 0;
    uint64_t tables_ready = 0;
    for (const v1::ReplicaReport& replica : server.replicas()) {
      rows += replica.rows();
      tables_ready += replica.ready() ? 1 : 0;
    }
    servers.push_back({{"name", server.name()},
                       {"live", server.alive()},
                       {"address", server.address()},
                       {"admin_address", server.admin_address()},
                       {"http_address", server.http_address()},
                       {"failure_domain", server.failure_domain()},
                       {"bytes", server.bytes()},
                       {"bytes_limit", server.bytes_max()},
                       {"rows", rows},
                       {"tables", server.replicas_size()},
                       {"tables_ready", tables_ready},
                       {"lookups_total", server.lookups_total()},
                       {"lookups_refused_total", server.lookups_refused_total()}});
  }
  return servers;
}

// A table's copies, also those that were ordered and not reported yet.
Json CopiesOf(const v1::ServingMap& served, const v1::ServedTable& table) {
  Json copies = Json::array();
  for (int i = 0; i < table.servers_size(); ++i) {
    const std::string& name = table.servers(i);
    const ServedPart part = ServedPartAt(table, i);
    Json copy = {{"server", name},         {"part", part.part},   {"state", "not reported"},
                 {"rows", nullptr},        {"bytes", nullptr},    {"age_ms", nullptr},
                 {"trouble", ""},          {"versions_held", 0u}, {"versions_wanted", 0u},
                 {"lookup_rows_per_s", 0u}};
    for (const v1::ServingServerInfo& server : served.servers()) {
      if (server.name() != name) continue;
      for (const v1::ReplicaReport& replica : server.replicas()) {
        if (replica.table() != table.table() || ServedPartOf(replica) != part) continue;
        const auto held = std::count_if(replica.versions().begin(), replica.versions().end(),
                                        [](const v1::VersionReport& one) { return one.held(); });
        copy["state"] = !server.alive() ? "silent" : replica.ready() ? "ready" : "loading";
        copy["rows"] = replica.rows();
        copy["bytes"] = replica.bytes();
        copy["lookup_rows_per_s"] = server.alive() ? replica.lookup_rows_per_s() : 0;
        if (replica.ready()) copy["age_ms"] = replica.age_ms() + server.silent_ms();
        copy["trouble"] = replica.trouble();
        copy["versions_held"] = held;
        copy["versions_wanted"] = replica.versions_size();
      }
    }
    copies.push_back(std::move(copy));
  }
  return copies;
}

Json ServedTablesOf(const v1::ServingMap& served) {
  Json tables = Json::array();
  for (int i = 0; i < std::min(served.tables_size(), served.specs_size()); ++i) {
    const v1::ServedTable& table = served.tables(i);
    const std::string format = v1::ServedFormat_Name(table.format());
    tables.push_back(
        {{"id", table.table()},
         {"name", served.specs(i).name()},
         {"format", absl::AsciiStrToLower(absl::StripPrefix(format, "SERVED_"))},
         {"parts", ServedPartsOf(table)},
         {"parts_to_follow", table.has_beside() && !table.beside().leaves()
                                 ? Json(ServedPartsOf(BesideOf(table)))
                                 : Json()},
         {"copies_wanted", table.replicas()},
         {"copies_min", table.replicas_max() == 0 ? table.replicas() : table.replicas_min()},
         {"copies_max", std::max(table.replicas_max(), table.replicas())},
         {"age_ms_max", table.staleness_ms_max() == 0 ? Json() : Json(table.staleness_ms_max())},
         {"copies", CopiesOf(served, table)}});
  }
  return tables;
}

Json ModelsOf(const v1::ServingMap& served) {
  Json models = Json::array();
  for (const v1::VersionChoice& choice : served.choices()) {
    if (choice.target() == 0) continue;  // of no version yet
    models.push_back({{"model", choice.model()},
                      {"current", VersionName(served, choice.current())},
                      {"target", VersionName(served, choice.target())},
                      {"pinned", choice.pinned()}});
  }
  return models;
}

}  // namespace

std::string WordOf(const std::vector<std::string>& words, int value) {
  const auto index = static_cast<size_t>(value);
  return index < words.size() ? words[index] : absl::StrCat(value);
}

const char* StateOf(const v1::ServerInfo& server) {
  if (!server.live()) return "down";
  if (server.draining()) return "draining";
  return server.load().read_only() ? "read-only" : "live";
}

std::string ClusterDocument(const ClusterFacts& facts) {
  Sums sums = SumsOf(facts.map);
  Json servers = Json::array();
  for (const v1::ServerInfo& server : facts.map.servers()) servers.push_back(ServerOf(server));
  Json tables = Json::array();
  for (const v1::TableSpec& table : facts.map.tables()) {
    tables.push_back(TableOf(table, sums.tables[table.id()]));
  }
  Json doubts = Json::array();
  for (const v1::ShardDoubt& doubt : facts.moves.doubts()) doubts.push_back(DoubtOf(doubt));
  const Json document = {{"unix_ms", facts.unix_ms},
                         {"cluster_id", facts.map.cluster_id()},
                         {"coordinator", facts.address},
                         {"serving", facts.serving},
                         {"trouble", facts.trouble},
                         {"plan_revision", facts.map.plan_revision()},
                         {"rebalancing", facts.moves.rebalance().on()},
                         {"servers", std::move(servers)},
                         {"tables", std::move(tables)},
                         {"shards", ShardsOf(facts.map, facts.entries_max, &sums)},
                         {"moves", MovesOf(facts.moves)},
                         {"doubts", std::move(doubts)},
                         {"serving_servers", ServingServersOf(facts.served)},
                         {"served_tables", ServedTablesOf(facts.served)},
                         {"models", ModelsOf(facts.served)},
                         {"events", EventsOf(facts.events)}};
  // Names that are not UTF-8 are shown with replacement characters.
  return document.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace hotbed
