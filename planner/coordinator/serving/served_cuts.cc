// The members of ServingServers that cut served tables into more parts, and join parts again, while
// the parts that there are go on answering.
#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/coordinator/serving/serving_servers.h"

namespace hotbed {
namespace {

// Joined parts must be asked for less than this share of the rate that is too much for one copy, so
// that a table is not joined only to get further copies.
constexpr double kJoinedRateShare = 0.7;
constexpr int64_t kLookForJoinsNs = 10'000'000'000;  // that takes as long as placing all tables

bool IsComing(const v1::ServedTable& table) {
  return table.has_beside() && !table.beside().leaves();
}

void SetParts(uint32_t parts, v1::ServedTable* table) {
  table->set_parts(parts);
  table->clear_servers();
  table->clear_server_parts();
}

// The table takes the cut, and has its own one besides.
void Follow(const v1::ServedTable& cut, v1::ServedTable* table) {
  const v1::ServedTable before = *table;
  table->set_parts(cut.parts());
  *table->mutable_servers() = cut.servers();
  *table->mutable_server_parts() = cut.server_parts();
  SetBeside(before, /*leaves=*/true, table);
}

// Whether fewer parts are coming, because they would fit and not because a person has asked.
bool Joins(const v1::ServedTable& table, const v1::ServedTable& cut) {
  return ServedPartsOf(cut) < ServedPartsOf(table) && ServedPartsOf(cut) != table.parts_min();
}

// The fewest servers that any part has.
uint32_t LeastCopies(const v1::ServedTable& table) {
  std::vector<uint32_t> copies(ServedPartsOf(table));
  for (int i = 0; i < table.servers_size(); ++i) {
    const uint32_t part = ServedPartAt(table, i).part;
    if (part < copies.size()) ++copies[part];
  }
  return *std::min_element(copies.begin(), copies.end());
}

}  // namespace

ServingServers::PartStates ServingServers::StatesOf(int64_t now_ns,
                                                    const v1::ServedTable& table) const {
  PartStates states;
  std::set<uint32_t> full, away;
  for (int i = 0; i < table.servers_size(); ++i) {
    const std::string& name = table.servers(i);
    const ServedPart part = ServedPartAt(table, i);
    const v1::ReplicaReport* const replica = FindReplica(name, table.table(), part);
    states.placed.insert(part.part);
    if (replica != nullptr && replica->full_bytes() != 0) {
      full.insert(part.part);
    } else if (Away(now_ns, name)) {
      away.insert(part.part);
    } else {
      states.hopeful.insert(part.part);
    }
    if (replica != nullptr && replica->ready() && Alive(now_ns, name)) {
      states.answered.insert(part.part);
    }
  }
  // A lost server is waited for, but not while another one shows that the part has grown too large.
  for (const uint32_t part : away) {
    if (!full.contains(part)) states.hopeful.insert(part);
  }
  return states;
}

// A copy that loads, or whose server may come back, is waited for.
bool ServingServers::IsStuck(int64_t now_ns, const v1::ServedTable& table) const {
  return StatesOf(now_ns, table).hopeful.size() < ServedPartsOf(table);
}

bool ServingServers::IsQuiet(int64_t now_ns, const std::string& name) const {
  if (Away(now_ns, name)) return false;
  return !Alive(now_ns, name) || servers_.at(name).report.stopping();
}

bool ServingServers::MayGiveUp(int64_t now_ns, const v1::ServedTable& table) const {
  if (StatesOf(now_ns, table).answered.size() < ServedPartsOf(table)) {
    return std::none_of(table.servers().begin(), table.servers().end(),
                        [&](const std::string& name) { return IsQuiet(now_ns, name); });
  }
  const auto since = stuck_since_ns_.find(table.table());
  return now_ns - began_ns_ >= options_.away_ns && since != stuck_since_ns_.end() &&
         now_ns - since->second >= options_.give_up_after_ns &&
         std::none_of(servers_.begin(), servers_.end(),
                      [&](const auto& one) { return IsQuiet(now_ns, one.first); });
}

void ServingServers::CutFurther(int64_t now_ns, const ServedTables& tables,
                                const v1::TableSpec& spec, v1::ServedTable* table) const {
  const uint64_t parts_max =
      std::min<uint64_t>({kServedPartsMax, ServedPlaces::Of(spec).places, servers_.size()});
  const bool answers = StatesOf(now_ns, *table).answered.size() == ServedPartsOf(*table);
  ServedTables others = tables;
  others[table->table()] = *table;
  others[table->table()].clear_beside();
  v1::ServedTable cut = *table;
  cut.clear_beside();
  for (const bool keeps : {true, false}) {
    // Rows that nobody can look up are not kept.
    if (keeps && !answers) continue;
    if (!keeps && !MayGiveUp(now_ns, *table)) return;
    if (!keeps) others.erase(table->table());
    for (uint32_t parts = ServedPartsOf(*table) + 1; parts <= parts_max; ++parts) {
      SetParts(parts, &cut);
      Fill(now_ns, others, spec, &cut, Room::kEnough);
      if (IsStuck(now_ns, cut)) continue;
      if (keeps) {
        SetBeside(cut, /*leaves=*/false, table);
      } else {
        *table = std::move(cut);
      }
      return;
    }
  }
}

// It has all copies that it found servers for, and they hold all versions that are held now.
bool ServingServers::MayFollow(int64_t now_ns, const v1::ServedTable& table,
                               const v1::ServedTable& cut) const {
  // Copies that were not heard of yet may hold versions.
  if (now_ns - began_ns_ < options_.alive_ns) return false;
  std::set<uint64_t> versions;
  for (int i = 0; i < table.servers_size(); ++i) {
    // The last report of a lost server names versions that may not be kept any more.
    if (Away(now_ns, table.servers(i))) continue;
    const v1::ReplicaReport* const replica =
        FindReplica(table.servers(i), table.table(), ServedPartAt(table, i));
    if (replica == nullptr) continue;
    for (const v1::VersionReport& version : replica->versions()) {
      if (version.held()) versions.insert(version.number());
    }
  }
  std::set<uint32_t> ready;
  for (int i = 0; i < cut.servers_size(); ++i) {
    const std::string& name = cut.servers(i);
    const ServedPart part = ServedPartAt(cut, i);
    if (!Alive(now_ns, name) || servers_.at(name).report.stopping()) continue;
    const v1::ReplicaReport* const replica = FindReplica(name, cut.table(), part);
    if (replica != nullptr && replica->full_bytes() != 0) continue;
    if (replica == nullptr || !replica->ready()) return false;
    for (const uint64_t version : versions) {
      if (!Holds(name, cut.table(), part, version)) return false;
    }
    ready.insert(part.part);
  }
  return ready.size() == ServedPartsOf(cut);
}

void ServingServers::Recut(int64_t now_ns, const ServedTables& tables, const v1::TableSpec& spec,
                           v1::ServedTable* table) const {
  if (table->has_beside() && table->beside().leaves()) {
    const auto since = left_since_ns_.find(table->table());
    if (since == left_since_ns_.end() || now_ns - since->second < options_.leave_ns) return;
    table->clear_beside();
  }
  if (!table->has_beside()) {
    if (IsStuck(now_ns, *table)) return CutFurther(now_ns, tables, spec, table);
    // As a person has asked, and a rebuild has lost.
    if (ServedPartsOf(*table) >= table->parts_min()) return;
    table->mutable_beside()->set_parts(table->parts_min());
  }
  v1::ServedTable cut = BesideOf(*table);
  for (int i = cut.servers_size() - 1; i >= 0; --i) {
    if (!Away(now_ns, cut.servers(i))) continue;
    cut.mutable_servers()->erase(cut.servers().begin() + i);
    cut.mutable_server_parts()->erase(cut.server_parts().begin() + i);
  }
  ServedTables others = tables;
  others[table->table()] = *table;
  others[table->table()].clear_beside();
  Fill(now_ns, others, spec, &cut, Room::kEnough);
  // Parts are not joined to be read from disk.
  const bool joins = Joins(*table, cut);
  if (!joins) Fill(now_ns, others, spec, &cut, Room::kDisk);
  const PartStates states = StatesOf(now_ns, cut);
  const bool too_large = states.hopeful.size() < states.placed.size() ||
                         (joins && states.placed.size() < ServedPartsOf(cut));
  if (MayFollow(now_ns, *table, cut)) {
    Follow(cut, table);
  } else if (IsStuck(now_ns, *table) &&
             (IsStuck(now_ns, cut) || ServedPartsOf(cut) <= ServedPartsOf(*table))) {
    table->clear_beside();
    CutFurther(now_ns, tables, spec, table);
  } else if (too_large && ServedPartsOf(cut) < ServedPartsOf(*table)) {
    table->clear_beside();  // the parts that were to be joined stay
  } else {
    SetBeside(cut, /*leaves=*/false, table);
  }
}

std::optional<v1::ServedTable> ServingServers::Joined(int64_t now_ns, const ServedTables& tables,
                                                      const v1::TableSpec& spec,
                                                      const v1::ServedTable& table) const {
  if (table.has_beside()) return std::nullopt;
  for (int i = 0; i < table.servers_size(); ++i) {
    const v1::ReplicaReport* const replica =
        FindReplica(table.servers(i), table.table(), ServedPartAt(table, i));
    if (replica == nullptr || !CanStandIn(now_ns, table.servers(i), *replica)) return std::nullopt;
    // Its bytes in memory do not tell what joined parts would take.
    if (replica->on_disk() && replica->memory_rows() < replica->rows()) return std::nullopt;
  }
  std::vector<uint64_t> free;
  for (const auto& [name, server] : servers_) {
    if (!Alive(now_ns, name) || server.report.stopping()) continue;
    const uint64_t filled = FilledBytes(name, tables);
    if (filled < server.report.bytes_max()) free.push_back(server.report.bytes_max() - filled);
  }
  const uint64_t bytes = BytesOf(spec, table);
  const uint32_t copies = std::min(LeastCopies(table), table.replicas());
  const double rows_per_s = LookupRowsPerS(now_ns, table) * ServedPartsOf(table);
  v1::ServedTable cut = table;
  for (uint32_t parts = std::max<uint32_t>(table.parts_min(), 1); parts < ServedPartsOf(table);
       ++parts) {
    const double of_copy = rows_per_s / (parts * std::max<uint32_t>(copies, 1));
    if (of_copy > kJoinedRateShare * options_.demand.rows_per_s_max) continue;
    // Finding the servers takes much longer than counting those with ample room.
    const uint64_t wanted = bytes / parts + bytes / parts / 4;
    const auto with_room =
        std::count_if(free.begin(), free.end(), [&](uint64_t room) { return room >= wanted; });
    if (static_cast<uint64_t>(with_room) < uint64_t{parts} * copies) continue;
    SetParts(parts, &cut);
    Fill(now_ns, tables, spec, &cut, Room::kAmple);
    if (copies > 0 && LeastCopies(cut) >= copies) return cut;
  }
  return std::nullopt;
}

void ServingServers::NoteCuts(int64_t now_ns, const ServedTables& tables, const TableSpecs& specs) {
  const auto gone = [&](const auto& noted) { return !tables.contains(noted.first); };
  absl::erase_if(left_since_ns_, gone);
  absl::erase_if(may_join_since_ns_, gone);
  absl::erase_if(stuck_since_ns_, gone);
  for (const auto& [id, table] : tables) {
    if (IsStuck(now_ns, table)) {
      stuck_since_ns_.try_emplace(id, now_ns);
    } else {
      stuck_since_ns_.erase(id);
    }
    if (table.has_beside() && table.beside().leaves()) {
      left_since_ns_.try_emplace(id, now_ns);
    } else {
      left_since_ns_.erase(id);
    }
    if (table.has_beside()) may_join_since_ns_.erase(id);
  }
  if (now_ns < look_for_joins_ns_) return;
  look_for_joins_ns_ = now_ns + std::min(options_.join_after_ns / 2, kLookForJoinsNs);
  for (const auto& [id, table] : tables) {
    const auto spec = specs.find(id);
    const bool may = spec != specs.end() && ServedPartsOf(table) > 1 &&
                     Joined(now_ns, tables, spec->second, table).has_value();
    if (may) {
      may_join_since_ns_.try_emplace(id, now_ns);
    } else {
      may_join_since_ns_.erase(id);
    }
  }
}

bool ServingServers::JoinIsDue(int64_t now_ns, TableId table) const {
  const auto since = may_join_since_ns_.find(table);
  return since != may_join_since_ns_.end() && now_ns - since->second >= options_.join_after_ns;
}

std::string ServingServers::CutStates(int64_t now_ns, const ServedTables& tables) const {
  std::string states;
  for (const auto& [id, table] : tables) {
    if (JoinIsDue(now_ns, id)) absl::StrAppend(&states, " join ", id);
    if (stuck_since_ns_.contains(id)) {
      absl::StrAppend(&states, " stuck ", id, ":", MayGiveUp(now_ns, table));
    }
    if (!table.has_beside()) continue;
    if (IsComing(table)) {
      absl::StrAppend(&states, " ", id, ":", MayFollow(now_ns, table, BesideOf(table)));
    } else {
      const auto since = left_since_ns_.find(id);
      absl::StrAppend(&states, " ", id, "-",
                      since != left_since_ns_.end() && now_ns - since->second >= options_.leave_ns);
    }
  }
  return states;
}

}  // namespace hotbed
