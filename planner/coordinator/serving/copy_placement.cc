#include "planner/coordinator/serving/copy_placement.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace hotbed {

bool HasCopy(const v1::ServedTable& table, const std::string& server) {
  return std::find(table.servers().begin(), table.servers().end(), server) != table.servers().end();
}

uint32_t CopiesOf(const v1::ServedTable& table, uint32_t part) {
  uint32_t copies = 0;
  for (int i = 0; i < table.servers_size(); ++i)
    copies += ServedPartAt(table, i).part == part ? 1 : 0;
  return copies;
}

std::string CopyPlacement::LeastFilled(int64_t now_ns, const ServedTables& tables,
                                       const v1::TableSpec& spec, const v1::ServedTable& table,
                                       uint32_t part, Room room) const {
  const uint64_t wanted = fleet_.BytesOf(spec, table) / std::max<uint32_t>(table.parts(), 1);
  const uint64_t growth = room == Room::kAmple ? wanted / 4 : 0;
  std::string best;
  std::pair<int64_t, double> best_rank;
  for (const auto& [name, server] : fleet_.servers()) {
    if (!fleet_.Works(now_ns, name) || HasCopy(table, name)) continue;
    const uint64_t filled = fleet_.FilledBytes(name, tables) + wanted;
    const uint64_t bytes_max = std::max<uint64_t>(server.report.bytes_max(), 1);
    if (room == Room::kDisk ? !server.report.has_disk() : filled + growth > bytes_max) continue;
    // Equally full ones: the one with fewer tables.
    const auto has = std::count_if(tables.begin(), tables.end(), [&name = name](const auto& one) {
      return HasCopy(one.second, name);
    });
    const double share = static_cast<double>(filled) / static_cast<double>(bytes_max) +
                         static_cast<double>(has) * 1e-6;
    int64_t there = 0;  // of the part's servers
    for (int i = 0; i < table.servers_size(); ++i) {
      const std::string& other = table.servers(i);
      if (ServedPartAt(table, i).part == part && !fleet_.Away(now_ns, other) &&
          fleet_.DomainOf(other) == fleet_.DomainOf(name)) {
        ++there;
      }
    }
    const std::pair<int64_t, double> rank = {there, share};
    if (!best.empty() && rank >= best_rank) continue;
    best = name;
    best_rank = rank;
  }
  return best;
}

void CopyPlacement::Fill(int64_t now_ns, const ServedTables& tables, const v1::TableSpec& spec,
                         v1::ServedTable* table, Room room) const {
  const uint32_t parts = std::max<uint32_t>(table->parts(), 1);
  // A first copy of each part comes before the second of any.
  for (uint32_t copies = 1; copies <= table->replicas(); ++copies) {
    for (uint32_t part = 0; part < parts; ++part) {
      if (CopiesOf(*table, part) >= copies) continue;
      const std::string server = LeastFilled(now_ns, tables, spec, *table, part, room);
      if (server.empty()) continue;
      table->add_servers(server);
      table->add_server_parts(part);
    }
  }
}

std::optional<int> CopyPlacement::Surplus(int64_t now_ns, const v1::ServedTable& table,
                                          uint32_t part) const {
  ServingFleet::Crowds crowds = fleet_.CrowdsOf(now_ns, table, part);
  bool all_known = true;
  int gone = -1;
  std::tuple<bool, int, bool> gone_rank;
  for (int i = 0; i < table.servers_size(); ++i) {
    const std::string& name = table.servers(i);
    if (ServedPartAt(table, i).part != part) continue;
    if (fleet_.Away(now_ns, name)) return i;
    all_known = all_known && fleet_.servers().contains(name);
    const v1::ReplicaReport* const replica =
        fleet_.FindReplica(name, table.table(), ServedPartAt(table, i));
    const bool too_small = replica != nullptr && replica->full_bytes() != 0;
    const bool ready = replica != nullptr && replica->ready();
    const std::tuple rank(too_small, crowds[fleet_.DomainOf(name)], !ready);
    if (gone >= 0 && rank < gone_rank) continue;
    gone = i;
    gone_rank = rank;
  }
  if (!all_known) return std::nullopt;
  const std::string& name = table.servers(gone);
  const v1::ReplicaReport* const leaving =
      fleet_.FindReplica(name, table.table(), ServedPartAt(table, gone));
  // A person who wants fewer copies waits for nothing.
  const bool asked = table.replicas_max() == 0 && crowds[fleet_.DomainOf(name)] < 2;
  if (asked || leaving == nullptr || !leaving->ready()) return gone;
  uint32_t others = 0;
  for (int i = 0; i < table.servers_size(); ++i) {
    if (i != gone && fleet_.CanStandIn(now_ns, table.servers(i), *leaving)) ++others;
  }
  return others >= table.replicas() ? std::optional<int>(gone) : std::nullopt;
}

void CopyPlacement::Spread(int64_t now_ns, const ServedTables& tables, const v1::TableSpec& spec,
                           v1::ServedTable* table) const {
  for (uint32_t part = 0; part < std::max<uint32_t>(table->parts(), 1); ++part) {
    if (CopiesOf(*table, part) != table->replicas()) continue;
    ServingFleet::Crowds crowds = fleet_.CrowdsOf(now_ns, *table, part);
    bool all_ready = true;
    int largest = 0;
    for (int i = 0; i < table->servers_size(); ++i) {
      if (ServedPartAt(*table, i).part != part) continue;
      const std::string& name = table->servers(i);
      const v1::ReplicaReport* const replica =
          fleet_.FindReplica(name, table->table(), ServedPartAt(*table, i));
      all_ready = all_ready && replica != nullptr && fleet_.CanStandIn(now_ns, name, *replica);
      largest = std::max(largest, crowds[fleet_.DomainOf(name)]);
    }
    if (!all_ready || largest < 2) continue;
    const std::string server = LeastFilled(now_ns, tables, spec, *table, part, Room::kEnough);
    if (fleet_.DomainOf(server).empty() || crowds[fleet_.DomainOf(server)] + 2 > largest) continue;
    table->add_servers(server);
    table->add_server_parts(part);
  }
}

void CopyPlacement::Replace(int64_t now_ns, const ServedTables& tables, const v1::TableSpec& spec,
                            v1::ServedTable* table) const {
  for (uint32_t part = 0; part < std::max<uint32_t>(table->parts(), 1); ++part) {
    while (CopiesOf(*table, part) > table->replicas()) {
      const std::optional<int> gone = Surplus(now_ns, *table, part);
      if (!gone.has_value()) break;
      table->mutable_servers()->erase(table->servers().begin() + *gone);
      table->mutable_server_parts()->erase(table->server_parts().begin() + *gone);
    }
  }
  for (int i = 0; i < table->servers_size(); ++i) {
    if (!fleet_.Away(now_ns, table->servers(i))) continue;
    const std::string other =
        LeastFilled(now_ns, tables, spec, *table, table->server_parts(i), Room::kEnough);
    if (!other.empty()) *table->mutable_servers(i) = other;
  }
}

}  // namespace hotbed
