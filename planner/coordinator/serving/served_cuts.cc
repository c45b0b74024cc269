#include "planner/coordinator/serving/served_cuts.h"

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/clock.h"

namespace hotbed {
namespace {

// Joined parts must be asked for less than this share of the rate that is too much for one copy, so
// that a table is not joined only to get further copies.
constexpr double kJoinedRateShare = 0.7;
constexpr int64_t kLookForJoinsNs = 10'000'000'000;  // that takes as long as placing all tables

// The copy's report of the version; an empty one if it has none.
v1::VersionReport SaidOf(const v1::ReplicaReport& replica, uint64_t number) {
  for (const v1::VersionReport& version : replica.versions()) {
    if (version.number() == number) return version;
  }
  return {};
}

bool IsWorse(const LackedVersion& one, const LackedVersion& other) {
  const auto weight = [](const LackedVersion& version) {
    return std::tuple(!version.trouble.empty(), !version.held, version.failed_ns);
  };
  return weight(one) > weight(other);
}

bool HasFailed(const LackedVersion& version) { return version.failed; }

bool IsGivenUp(const LackedVersion& version) { return version.given_up; }

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

bool JoinsParts(const v1::ServedTable& table) {
  return IsComing(table) && !table.beside().asked() &&
         ServedPartsOf(BesideOf(table)) < ServedPartsOf(table);
}

void ServedCuts::Begin() {
  left_since_ns_.clear();
  may_join_since_ns_.clear();
  stuck_since_ns_.clear();
  look_for_joins_ns_ = 0;
}

ServedCuts::PartStates ServedCuts::StatesOf(int64_t now_ns, const v1::ServedTable& table) const {
  PartStates states;
  std::set<uint32_t> full, away;
  for (int i = 0; i < table.servers_size(); ++i) {
    const std::string& name = table.servers(i);
    const ServedPart part = ServedPartAt(table, i);
    const v1::ReplicaReport* const replica = fleet_.FindReplica(name, table.table(), part);
    states.placed.insert(part.part);
    if (replica != nullptr && replica->full_bytes() != 0) {
      full.insert(part.part);
    } else if (fleet_.Away(now_ns, name)) {
      away.insert(part.part);
    } else {
      states.hopeful.insert(part.part);
    }
    if (replica != nullptr && replica->ready() && fleet_.Alive(now_ns, name)) {
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
bool ServedCuts::IsStuck(int64_t now_ns, const v1::ServedTable& table) const {
  return StatesOf(now_ns, table).hopeful.size() < ServedPartsOf(table);
}

bool ServedCuts::MayGiveUp(int64_t now_ns, const v1::ServedTable& table) const {
  if (StatesOf(now_ns, table).answered.size() < ServedPartsOf(table)) {
    return std::none_of(table.servers().begin(), table.servers().end(),
                        [&](const std::string& name) { return fleet_.IsQuiet(now_ns, name); });
  }
  const auto since = stuck_since_ns_.find(table.table());
  return fleet_.AllAwayKnown(now_ns) && since != stuck_since_ns_.end() &&
         now_ns - since->second >= options_.give_up_after_ns &&
         std::none_of(fleet_.servers().begin(), fleet_.servers().end(),
                      [&](const auto& one) { return fleet_.IsQuiet(now_ns, one.first); });
}

void ServedCuts::CutFurther(int64_t now_ns, const ServedTables& tables, const v1::TableSpec& spec,
                            v1::ServedTable* table) const {
  const uint64_t parts_max =
      std::min<uint64_t>({kServedPartsMax, ServedPlaces::Of(spec).places, fleet_.servers().size()});
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
      placement_.Fill(now_ns, others, spec, &cut, CopyPlacement::Room::kEnough);
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

std::vector<LackedVersion> ServedCuts::Lacked(int64_t now_ns, const v1::ServedTable& table) const {
  std::vector<LackedVersion> lacked;
  if (!IsComing(table)) return lacked;
  const v1::ServedTable cut = BesideOf(table);
  for (const uint64_t number : VersionsOf(now_ns, table)) {
    const std::set<uint32_t> with = PartsWith(now_ns, cut, number);
    std::optional<LackedVersion> worst;
    for (int i = 0; i < cut.servers_size(); ++i) {
      const std::string& name = cut.servers(i);
      const ServedPart part = ServedPartAt(cut, i);
      const v1::ReplicaReport* const replica = fleet_.FindReplica(name, cut.table(), part);
      if (!fleet_.Works(now_ns, name) || replica == nullptr || replica->full_bytes() != 0) continue;
      if (fleet_.Holds(name, cut.table(), part, number)) continue;
      const v1::VersionReport said = SaidOf(*replica, number);
      LackedVersion one = {.number = number,
                           .server = name,
                           .part = part,
                           .trouble = said.trouble(),
                           .failed_ns = static_cast<int64_t>(said.failed_for_ms()) * kMillisecondNs,
                           .current = current_.contains(number),
                           .held = with.contains(part.part)};
      one.failed = one.failed_ns >= options_.give_version_up_after_ns;
      if (one.held && one.failed) continue;
      if (!worst.has_value() || IsWorse(one, *worst)) worst = std::move(one);
    }
    if (!worst.has_value()) continue;
    worst->given_up = worst->failed && !worst->current;
    lacked.push_back(*std::move(worst));
  }
  return lacked;
}

// The versions that its servers hold, without those that are lost: their last report names versions
// that may not be kept any more.
std::set<uint64_t> ServedCuts::VersionsOf(int64_t now_ns, const v1::ServedTable& table) const {
  std::set<uint64_t> versions;
  for (int i = 0; i < table.servers_size(); ++i) {
    if (fleet_.Away(now_ns, table.servers(i))) continue;
    const v1::ReplicaReport* const replica =
        fleet_.FindReplica(table.servers(i), table.table(), ServedPartAt(table, i));
    if (replica == nullptr) continue;
    for (const v1::VersionReport& version : replica->versions()) {
      if (version.held()) versions.insert(version.number());
    }
  }
  return versions;
}

std::set<uint32_t> ServedCuts::PartsWith(int64_t now_ns, const v1::ServedTable& table,
                                         uint64_t version) const {
  std::set<uint32_t> parts;
  for (int i = 0; i < table.servers_size(); ++i) {
    const std::string& name = table.servers(i);
    const ServedPart part = ServedPartAt(table, i);
    const v1::ReplicaReport* const replica = fleet_.FindReplica(name, table.table(), part);
    if (replica != nullptr && fleet_.Follows(now_ns, name, *replica) &&
        fleet_.Holds(name, table.table(), part, version)) {
      parts.insert(part.part);
    }
  }
  return parts;
}

// It has all copies that it found servers for, and they hold all versions that are held now, but
// for those that are given up.
bool ServedCuts::MayFollow(int64_t now_ns, const v1::ServedTable& table,
                           const v1::ServedTable& cut) const {
  // Copies that were not heard of yet may hold versions.
  if (!fleet_.AllHeard(now_ns)) return false;
  std::set<uint32_t> ready;
  for (int i = 0; i < cut.servers_size(); ++i) {
    const std::string& name = cut.servers(i);
    const ServedPart part = ServedPartAt(cut, i);
    if (!fleet_.Works(now_ns, name)) continue;
    const v1::ReplicaReport* const replica = fleet_.FindReplica(name, cut.table(), part);
    if (replica != nullptr && replica->full_bytes() != 0) continue;
    if (replica == nullptr || !replica->ready()) return false;
    ready.insert(part.part);
  }
  if (ready.size() < ServedPartsOf(cut)) return false;
  v1::ServedTable coming = table;
  SetBeside(cut, /*leaves=*/false, &coming);
  const std::vector<LackedVersion> lacked = Lacked(now_ns, coming);
  return std::all_of(lacked.begin(), lacked.end(), IsGivenUp);
}

void ServedCuts::Recut(int64_t now_ns, const ServedTables& tables, const v1::TableSpec& spec,
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
    if (!fleet_.Away(now_ns, cut.servers(i))) continue;
    cut.mutable_servers()->erase(cut.servers().begin() + i);
    cut.mutable_server_parts()->erase(cut.server_parts().begin() + i);
  }
  ServedTables others = tables;
  others[table->table()] = *table;
  others[table->table()].clear_beside();
  placement_.Fill(now_ns, others, spec, &cut, CopyPlacement::Room::kEnough);
  // Parts are not joined to be read from disk.
  const bool joins = JoinsParts(*table);
  if (!joins) placement_.Fill(now_ns, others, spec, &cut, CopyPlacement::Room::kDisk);
  const PartStates states = StatesOf(now_ns, cut);
  const bool too_large = states.hopeful.size() < states.placed.size() ||
                         (joins && states.placed.size() < ServedPartsOf(cut));
  const std::vector<LackedVersion> lacked = Lacked(now_ns, *table);
  if (joins && std::any_of(lacked.begin(), lacked.end(), HasFailed)) {
    table->clear_beside();  // saving servers is not worth a version
  } else if (MayFollow(now_ns, *table, cut)) {
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

std::optional<v1::ServedTable> ServedCuts::JoinIfDue(int64_t now_ns, const ServedTables& tables,
                                                     const v1::TableSpec& spec,
                                                     const v1::ServedTable& table) const {
  return JoinIsDue(now_ns, table.table()) ? Joined(now_ns, tables, spec, table) : std::nullopt;
}

std::optional<v1::ServedTable> ServedCuts::Joined(int64_t now_ns, const ServedTables& tables,
                                                  const v1::TableSpec& spec,
                                                  const v1::ServedTable& table) const {
  if (table.has_beside()) return std::nullopt;
  for (int i = 0; i < table.servers_size(); ++i) {
    const v1::ReplicaReport* const replica =
        fleet_.FindReplica(table.servers(i), table.table(), ServedPartAt(table, i));
    if (replica == nullptr || !fleet_.CanStandIn(now_ns, table.servers(i), *replica))
      return std::nullopt;
    // Its bytes in memory do not tell what joined parts would take.
    if (replica->on_disk() && replica->memory_rows() < replica->rows()) return std::nullopt;
  }
  std::vector<uint64_t> free;
  for (const auto& [name, server] : fleet_.servers()) {
    if (!fleet_.Works(now_ns, name)) continue;
    const uint64_t filled = fleet_.FilledBytes(name, tables);
    if (filled < server.report.bytes_max()) free.push_back(server.report.bytes_max() - filled);
  }
  const uint64_t bytes = fleet_.BytesOf(spec, table);
  const uint32_t copies = std::min(LeastCopies(table), table.replicas());
  const double rows_per_s = fleet_.LookupRowsPerS(now_ns, table) * ServedPartsOf(table);
  v1::ServedTable cut = table;
  for (uint32_t parts = std::max<uint32_t>(table.parts_min(), 1); parts < ServedPartsOf(table);
       ++parts) {
    const double of_copy = rows_per_s / (parts * std::max<uint32_t>(copies, 1));
    if (of_copy > kJoinedRateShare * options_.rows_per_s_max) continue;
    // Finding the servers takes much longer than counting those with ample room.
    const uint64_t wanted = bytes / parts + bytes / parts / 4;
    const auto with_room =
        std::count_if(free.begin(), free.end(), [&](uint64_t room) { return room >= wanted; });
    if (static_cast<uint64_t>(with_room) < uint64_t{parts} * copies) continue;
    SetParts(parts, &cut);
    placement_.Fill(now_ns, tables, spec, &cut, CopyPlacement::Room::kAmple);
    if (copies > 0 && LeastCopies(cut) >= copies) return cut;
  }
  return std::nullopt;
}

void ServedCuts::Note(int64_t now_ns, const ServedTables& tables, const TableSpecs& specs) {
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

bool ServedCuts::JoinIsDue(int64_t now_ns, TableId table) const {
  const auto since = may_join_since_ns_.find(table);
  return since != may_join_since_ns_.end() && now_ns - since->second >= options_.join_after_ns;
}

std::string ServedCuts::States(int64_t now_ns, const ServedTables& tables) const {
  std::string states;
  for (const auto& [id, table] : tables) {
    if (JoinIsDue(now_ns, id)) absl::StrAppend(&states, " join ", id);
    if (stuck_since_ns_.contains(id)) {
      absl::StrAppend(&states, " stuck ", id, ":", MayGiveUp(now_ns, table));
    }
    if (!table.has_beside()) continue;
    if (IsComing(table)) {
      const std::vector<LackedVersion> lacked = Lacked(now_ns, table);
      absl::StrAppend(&states, " ", id, ":", MayFollow(now_ns, table, BesideOf(table)),
                      std::count_if(lacked.begin(), lacked.end(), HasFailed));
    } else {
      const auto since = left_since_ns_.find(id);
      absl::StrAppend(&states, " ", id, "-",
                      since != left_since_ns_.end() && now_ns - since->second >= options_.leave_ns);
    }
  }
  return states;
}

}  // namespace hotbed
