#include "planner/coordinator/serving/serving_servers.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/clock.h"

namespace hotbed {
namespace {

constexpr int64_t kPlaceAgainNs = 10'000'000'000;

}  // namespace

ServingServers::ServingServers(const Options& options)
    : options_(options),
      fleet_({.alive_ns = options.alive_ns,
              .away_ns = options.away_ns,
              .rate_ns = options.demand.raise_after_ns / 3,
              .servers_max = options.servers_max}),
      placement_(&fleet_),
      cuts_({.leave_ns = options.leave_ns,
             .join_after_ns = options.join_after_ns,
             .give_up_after_ns = options.give_up_after_ns,
             .give_version_up_after_ns = options.give_version_up_after_ns,
             .rows_per_s_max = options.demand.rows_per_s_max},
            &fleet_, &placement_),
      demand_(options.demand) {}

void ServingServers::Begin(int64_t now_ns) {
  fleet_.Begin(now_ns);
  cuts_.Begin();
  demand_.Begin();
  wanted_.clear();
}

std::string ServingServers::FeederOf(int64_t now_ns, const v1::ServedTable& table,
                                     const ServedPart& part) const {
  std::string hopeful, best;
  ServingFleet::Crowds crowds = fleet_.CrowdsOf(now_ns, table, part.part);
  int best_crowd = -1;
  for (int i = 0; i < table.servers_size(); ++i) {
    const std::string& name = table.servers(i);
    if (ServedPartAt(table, i) != part || !fleet_.Works(now_ns, name)) continue;
    const v1::ReplicaReport* const replica = fleet_.FindReplica(name, table.table(), part);
    if (replica != nullptr && fleet_.Follows(now_ns, name, *replica) &&
        replica->format() == table.format()) {
      // Those of other domains read across.
      const int crowd = crowds[fleet_.DomainOf(name)];
      if (crowd > best_crowd) {
        best = name;
        best_crowd = crowd;
      }
      continue;
    }
    const bool too_small = replica != nullptr && replica->full_bytes() != 0;
    if (hopeful.empty() && !too_small) hopeful = name;
  }
  return best.empty() ? hopeful : best;
}

bool ServingServers::IsAlone(int64_t now_ns, const v1::ServedTable& table,
                             const std::string& name) const {
  const ServedPart part = *ServedPartOn(table, name);
  for (int i = 0; i < table.servers_size(); ++i) {
    const std::string& other = table.servers(i);
    if (other == name || ServedPartAt(table, i) != part) continue;
    const v1::ReplicaReport* const replica = fleet_.FindReplica(other, table.table(), part);
    if (replica != nullptr && fleet_.Follows(now_ns, other, *replica)) return false;
  }
  return true;
}

v1::ServingOrders ServingServers::OrdersFor(int64_t now_ns, const std::string& name,
                                            const ServedTables& tables,
                                            const TableSpecs& specs) const {
  v1::ServingOrders orders;
  orders.set_report_interval_ms(options_.report_interval_ms);
  for (const auto& [id, table] : tables) {
    const auto spec = specs.find(id);
    if (spec == specs.end()) continue;
    const auto feeder = [&](const v1::ServedTable& cut) -> std::string {
      // A copy that joins slices has a place in the log of each, and a relay keeps one.
      if (spec->second.column_slices() > 1) return "";
      const std::string server = FeederOf(now_ns, cut, *ServedPartOn(cut, name));
      return server.empty() || server == name ? "" : fleet_.servers().at(server).report.address();
    };
    const v1::ServedTable cut = table.has_beside() ? BesideOf(table) : v1::ServedTable();
    if (HasCopy(cut, name)) {
      v1::OrderedCopy& copy = *orders.add_beside();
      *copy.mutable_table() = cut;
      *copy.mutable_spec() = spec->second;
      copy.set_feeder(feeder(cut));
      copy.set_leaves(table.beside().leaves());
    }
    // Readers with an old map still ask for copies that may have been too small.
    if (table.beside().leaves()) orders.add_alone(id);
    if (!HasCopy(table, name)) continue;
    *orders.add_tables() = table;
    *orders.add_specs() = spec->second;
    orders.add_feeders(feeder(table));
    if (IsAlone(now_ns, table, name) && !table.beside().leaves()) orders.add_alone(id);
  }
  return orders;
}

v1::ServingMap ServingServers::Map(int64_t now_ns, const ServedTables& tables,
                                   const TableSpecs& specs) const {
  v1::ServingMap map;
  for (const auto& [id, table] : tables) {
    const auto spec = specs.find(id);
    if (spec == specs.end()) continue;
    *map.add_tables() = table;
    *map.add_specs() = spec->second;
    for (const LackedVersion& lacked : Lacked(now_ns, table)) {
      if (lacked.trouble.empty()) continue;
      v1::AwaitedVersion& awaited = *map.add_awaited();
      awaited.set_table(id);
      awaited.set_number(lacked.number);
      awaited.set_server(lacked.server);
      awaited.set_part(lacked.part.part);
      awaited.set_parts(lacked.part.parts);
      awaited.set_trouble(
          absl::StrCat(lacked.trouble, lacked.held ? " (another copy of the part holds it)" : ""));
      awaited.set_joins(JoinsParts(table) && !lacked.held);
      if (lacked.current && !lacked.held && !awaited.joins()) continue;
      const int64_t left_ns = options_.give_version_up_after_ns - lacked.failed_ns;
      awaited.set_given_up_in_ms(
          static_cast<uint64_t>(std::max<int64_t>(left_ns, 0) / kMillisecondNs));
    }
  }
  fleet_.AddTo(now_ns, &map);
  return map;
}

CopyDemand::Load ServingServers::LoadOf(int64_t now_ns, const ServedTables& tables,
                                        const v1::TableSpec& spec,
                                        const v1::ServedTable& table) const {
  CopyDemand::Load load = {.rows_per_s = fleet_.LookupRowsPerS(now_ns, table)};
  // A place for another copy is looked for where one would be wanted: few tables are hot.
  load.may_raise = !table.has_beside() && table.replicas() < table.replicas_max() &&
                   load.rows_per_s > table.replicas() * options_.demand.rows_per_s_max;
  load.may_lower = !table.has_beside();
  v1::ServedTable more = table;
  if (load.may_raise) {
    more.mutable_server_parts()->Resize(more.servers_size(), 0);
    more.set_replicas(table.replicas() + 1);
    placement_.Fill(now_ns, tables, spec, &more, CopyPlacement::Room::kEnough);
  }
  for (uint32_t part = 0; part < std::max<uint32_t>(table.parts(), 1); ++part) {
    uint32_t ready = 0;
    for (int i = 0; i < table.servers_size(); ++i) {
      const ServedPart has = ServedPartAt(table, i);
      if (has.part != part) continue;
      const v1::ReplicaReport* const replica =
          fleet_.FindReplica(table.servers(i), table.table(), has);
      ready += replica != nullptr && fleet_.CanStandIn(now_ns, table.servers(i), *replica) ? 1 : 0;
    }
    // A copy beyond the wanted ones is on its way to another failure domain.
    const uint32_t copies = CopiesOf(table, part);
    load.may_raise = load.may_raise && copies == table.replicas() && ready == copies &&
                     CopiesOf(more, part) > copies;
    load.may_lower = load.may_lower && copies <= table.replicas() && ready >= table.replicas_min();
  }
  return load;
}

bool ServingServers::Place(int64_t now_ns, const ServedTables& tables, const v1::TableSpec& spec,
                           v1::ServedTable* table) const {
  const std::string before = table->SerializeAsString();
  table->mutable_server_parts()->Resize(table->servers_size(), 0);
  placement_.Replace(now_ns, tables, spec, table);
  placement_.Fill(now_ns, tables, spec, table, CopyPlacement::Room::kEnough);
  if (!table->has_beside()) placement_.Spread(now_ns, tables, spec, table);
  cuts_.Recut(now_ns, tables, spec, table);
  placement_.Fill(now_ns, tables, spec, table, CopyPlacement::Room::kDisk);
  // As earlier releases have it.
  if (table->parts() <= 1) table->clear_server_parts();
  return table->SerializeAsString() != before;
}

bool ServingServers::NeedsPlacing(int64_t now_ns, const std::string& revision,
                                  const ServedTables& tables, const TableSpecs& specs) {
  std::string depends = absl::StrCat(revision, fleet_.AllAwayKnown(now_ns));
  wanted_.clear();
  demand_.KeepOnly(tables);
  cuts_.Note(now_ns, tables, specs);
  depends += cuts_.States(now_ns, tables);
  for (const auto& [id, table] : tables) {
    const auto spec = specs.find(id);
    if (spec == specs.end() || table.replicas_max() == 0) continue;
    const uint32_t wanted =
        demand_.Wanted(now_ns, table, LoadOf(now_ns, tables, spec->second, table));
    if (wanted == table.replicas()) continue;
    wanted_[id] = {table.replicas(), wanted};
    absl::StrAppend(&depends, " ", id, ":", wanted);
  }
  for (const auto& [name, server] : fleet_.servers()) {
    const v1::ServingReport& report = server.report;
    absl::StrAppend(&depends, ";", name, " ", fleet_.Alive(now_ns, name), fleet_.Away(now_ns, name),
                    report.stopping(), report.has_disk(), " ", report.bytes_max(), " ",
                    report.failure_domain());
    for (const v1::ReplicaReport& replica : report.replicas()) {
      if (replica.full_bytes() == 0) continue;
      absl::StrAppend(&depends, " ", replica.table(), "/", replica.part(), "/", replica.parts());
    }
  }
  if (depends == placed_for_ && now_ns < place_again_ns_) return false;
  if (!Changes(now_ns, tables, specs).empty()) return true;
  placed_for_ = std::move(depends);
  place_again_ns_ = now_ns + kPlaceAgainNs;
  return false;
}

std::vector<v1::ServedTable> ServingServers::Changes(int64_t now_ns, const ServedTables& tables,
                                                     const TableSpecs& specs) const {
  std::vector<v1::ServedTable> changes;
  ServedTables after = tables;
  for (auto& [id, table] : after) {
    const auto spec = specs.find(id);
    if (spec == specs.end()) {
      v1::ServedTable gone;
      gone.set_table(id);
      changes.push_back(std::move(gone));
      continue;
    }
    v1::ServedTable placed = table;
    const auto wanted = wanted_.find(id);
    bool other_number = wanted != wanted_.end() && wanted->second.first == table.replicas() &&
                        wanted->second.second <= table.replicas_max() &&
                        wanted->second.second >= table.replicas_min();
    // Other hot tables may have taken the room since.
    if (other_number && wanted->second.second > table.replicas() &&
        table.replicas() >= table.replicas_min()) {
      other_number = LoadOf(now_ns, after, spec->second, table).may_raise;
    }
    if (other_number) placed.set_replicas(wanted->second.second);
    const auto joined = cuts_.JoinIfDue(now_ns, after, spec->second, table);
    if (joined.has_value()) SetBeside(*joined, /*leaves=*/false, &placed);
    const bool other = other_number || joined.has_value();
    if (!Place(now_ns, after, spec->second, &placed) && !other) continue;
    table = placed;
    changes.push_back(std::move(placed));
  }
  return changes;
}

}  // namespace hotbed
