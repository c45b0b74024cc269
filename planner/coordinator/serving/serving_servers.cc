#include "planner/coordinator/serving/serving_servers.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/host_port.h"
#include "common/status_macros.h"
#include "proto/served_format.h"
#include "row_math/row_formats.h"

namespace hotbed {
namespace {

constexpr size_t kNameBytesMax = 200;
constexpr size_t kTroubleBytesMax = 500;
constexpr uint64_t kOverheadBytes = 12;  // of a row: its key and its part of the index
constexpr int64_t kMsNs = 1'000'000;
constexpr int64_t kPlaceAgainNs = 10'000'000'000;

bool HasCopy(const v1::ServedTable& table, const std::string& server) {
  return std::find(table.servers().begin(), table.servers().end(), server) != table.servers().end();
}

uint32_t CopiesOf(const v1::ServedTable& table, uint32_t part) {
  uint32_t copies = 0;
  for (int i = 0; i < table.servers_size(); ++i)
    copies += ServedPartAt(table, i).part == part ? 1 : 0;
  return copies;
}

uint64_t VersionBytes(const v1::ReplicaReport& replica) {
  uint64_t bytes = 0;
  for (const v1::VersionReport& version : replica.versions()) bytes += version.bytes();
  return bytes;
}

absl::Status CheckReport(const v1::ServingReport& report) {
  const std::string& name = report.name();
  if (name.empty() || name.size() > kNameBytesMax ||
      !std::all_of(name.begin(), name.end(), [](char c) { return absl::ascii_isgraph(c); })) {
    return absl::InvalidArgumentError(absl::StrCat(
        "name \"", absl::CEscape(name.substr(0, 80)), "\" of a serving server has ", name.size(),
        " bytes, allowed: 1..", kNameBytesMax, " printable characters without spaces"));
  }
  if (report.failure_domain().size() > kNameBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("failure domain of serving server ", name,
                                                   " has ", report.failure_domain().size(),
                                                   " bytes, allowed: 0..", kNameBytesMax));
  }
  return CheckHostPorts(report.address(), 1);
}

}  // namespace

void ServingServers::Begin(int64_t now_ns) {
  began_ns_ = now_ns;
  for (auto& [name, server] : servers_) server.heard_ns = now_ns;
  demand_.Begin();
  wanted_.clear();
  left_since_ns_.clear();
  may_join_since_ns_.clear();
  stuck_since_ns_.clear();
  look_for_joins_ns_ = 0;
}

absl::Status ServingServers::OnReport(int64_t now_ns, const v1::ServingReport& report) {
  HOTBED_RETURN_IF_ERROR(CheckReport(report));
  const auto known = servers_.find(report.name());
  if (known != servers_.end() && known->second.report.run() != report.run() &&
      !known->second.report.stopping() && Alive(now_ns, report.name())) {
    return absl::AlreadyExistsError(
        absl::StrCat("another process reports as serving server \"", report.name(), "\", at ",
                     known->second.report.address(),
                     ": give each its own --name; one that was killed is "
                     "forgotten ",
                     options_.alive_ns / kMsNs, " ms after its last report"));
  }
  if (known == servers_.end() && servers_.size() >= options_.servers_max) {
    for (auto it = servers_.begin(); it != servers_.end();) {
      it = Away(now_ns, it->first) ? servers_.erase(it) : std::next(it);
    }
    if (servers_.size() >= options_.servers_max) {
      return absl::ResourceExhaustedError(absl::StrCat("serving server \"", report.name(),
                                                       "\": there are ", servers_.size(),
                                                       ", the limit is ", options_.servers_max));
    }
  }
  Server& server = servers_[report.name()];
  server.report = report;
  server.rates.Note(now_ns, options_.demand.raise_after_ns / 3, report);
  server.heard_ns = now_ns;
  for (v1::ReplicaReport& replica : *server.report.mutable_replicas()) {
    if (replica.trouble().size() > kTroubleBytesMax) {
      replica.mutable_trouble()->resize(kTroubleBytesMax);
    }
    for (v1::VersionReport& version : *replica.mutable_versions()) {
      if (version.trouble().size() > kTroubleBytesMax) {
        version.mutable_trouble()->resize(kTroubleBytesMax);
      }
    }
  }
  return absl::OkStatus();
}

bool ServingServers::Alive(int64_t now_ns, const std::string& name) const {
  const auto server = servers_.find(name);
  return server != servers_.end() && now_ns - server->second.heard_ns < options_.alive_ns;
}

// Null: the server has said nothing of it.
const v1::ReplicaReport* ServingServers::FindReplica(const std::string& name, TableId table,
                                                     const ServedPart& part) const {
  const auto server = servers_.find(name);
  if (server == servers_.end()) return nullptr;
  for (const v1::ReplicaReport& replica : server->second.report.replicas()) {
    if (replica.table() == table && ServedPartOf(replica) == part) return &replica;
  }
  return nullptr;
}

bool ServingServers::Holds(const std::string& name, TableId table, const ServedPart& part,
                           uint64_t version) const {
  const v1::ReplicaReport* const replica = FindReplica(name, table, part);
  return replica != nullptr && std::any_of(replica->versions().begin(), replica->versions().end(),
                                           [version](const v1::VersionReport& one) {
                                             return one.number() == version && one.held();
                                           });
}

bool ServingServers::AllHold(int64_t now_ns, const v1::ServedVersion& version,
                             const ServedTables& tables) const {
  // Servers that have not reported since it began to lead may be alive.
  if (now_ns - began_ns_ < options_.alive_ns) return false;
  bool any_table = false;
  for (const uint32_t id : version.tables()) {
    const auto table = tables.find(id);
    if (table == tables.end()) continue;  // it is not served any more
    any_table = true;
    std::set<uint32_t> parts;
    for (int i = 0; i < table->second.servers_size(); ++i) {
      const std::string& name = table->second.servers(i);
      if (!Alive(now_ns, name) || servers_.at(name).report.stopping()) continue;
      const ServedPart part = ServedPartAt(table->second, i);
      if (!Holds(name, id, part, version.number())) return false;
      parts.insert(part.part);
    }
    if (parts.size() < std::max<uint32_t>(table->second.parts(), 1)) return false;
  }
  return any_table;
}

bool ServingServers::Away(int64_t now_ns, const std::string& name) const {
  const auto server = servers_.find(name);
  const int64_t since_ns = server == servers_.end() ? began_ns_ : server->second.heard_ns;
  return now_ns - std::max(since_ns, began_ns_) >= options_.away_ns;
}

std::string ServingServers::FeederOf(int64_t now_ns, const v1::ServedTable& table,
                                     const ServedPart& part) const {
  std::string hopeful, best;
  Crowds crowds = CrowdsOf(now_ns, table, part.part);
  int best_crowd = -1;
  for (int i = 0; i < table.servers_size(); ++i) {
    const std::string& name = table.servers(i);
    if (ServedPartAt(table, i) != part || !Alive(now_ns, name) ||
        servers_.at(name).report.stopping()) {
      continue;
    }
    const v1::ReplicaReport* const replica = FindReplica(name, table.table(), part);
    if (replica != nullptr && Follows(now_ns, name, *replica) &&
        replica->format() == table.format()) {
      // Those of other domains read across.
      const int crowd = crowds[DomainOf(name)];
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

bool ServingServers::Follows(int64_t now_ns, const std::string& name,
                             const v1::ReplicaReport& replica) const {
  return replica.ready() && replica.full_bytes() == 0 && Alive(now_ns, name) &&
         !servers_.at(name).report.stopping();
}

// Whether no other copy of the part follows.
bool ServingServers::IsAlone(int64_t now_ns, const v1::ServedTable& table,
                             const std::string& name) const {
  const ServedPart part = *ServedPartOn(table, name);
  for (int i = 0; i < table.servers_size(); ++i) {
    const std::string& other = table.servers(i);
    if (other == name || ServedPartAt(table, i) != part) continue;
    const v1::ReplicaReport* const replica = FindReplica(other, table.table(), part);
    if (replica != nullptr && Follows(now_ns, other, *replica)) return false;
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
      return server.empty() || server == name ? "" : servers_.at(server).report.address();
    };
    const v1::ServedTable cut = table.has_beside() ? BesideOf(table) : v1::ServedTable();
    if (HasCopy(cut, name)) {
      v1::OrderedCopy& copy = *orders.add_beside();
      *copy.mutable_table() = cut;
      *copy.mutable_spec() = spec->second;
      copy.set_feeder(feeder(cut));
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
  }
  for (const auto& [name, server] : servers_) {
    v1::ServingServerInfo& info = *map.add_servers();
    info.set_name(name);
    info.set_address(server.report.address());
    info.set_admin_address(server.report.admin_address());
    info.set_http_address(server.report.http_address());
    info.set_failure_domain(server.report.failure_domain());
    info.set_lookups_total(server.report.lookups_total());
    info.set_lookups_refused_total(server.report.lookups_refused_total());
    info.set_bytes_max(server.report.bytes_max());
    info.set_message_bytes_max(server.report.message_bytes_max());
    uint64_t bytes = 0;
    for (const v1::ReplicaReport& replica : server.report.replicas()) {
      bytes += replica.bytes() + VersionBytes(replica);
    }
    info.set_bytes(bytes);
    info.set_alive(Alive(now_ns, name) && !server.report.stopping());
    info.set_silent_ms(static_cast<uint64_t>((now_ns - server.heard_ns) / kMsNs));
    *info.mutable_replicas() = server.report.replicas();
    for (v1::ReplicaReport& replica : *info.mutable_replicas()) {
      const double rows_per_s = server.rates.RowsPerS(replica.table(), ServedPartOf(replica));
      replica.set_lookup_rows_per_s(static_cast<uint64_t>(std::llround(rows_per_s)));
    }
  }
  return map;
}

// The bytes of all parts with their versions: as a replica reports its own, or by the declared
// rows; 0: unknown.
uint64_t ServingServers::BytesOf(const v1::TableSpec& spec, const v1::ServedTable& table) const {
  uint64_t bytes = 0;
  for (const auto& [name, server] : servers_) {
    for (const v1::ReplicaReport& replica : server.report.replicas()) {
      if (replica.table() == table.table() && replica.format() == table.format()) {
        const uint64_t of_part =
            std::max(replica.bytes() + VersionBytes(replica), replica.full_bytes());
        bytes = std::max<uint64_t>(bytes, of_part * ServedPartOf(replica).parts);
      }
    }
  }
  if (bytes != 0) return bytes;
  const uint64_t row = RowFormatBytes({.kind = FromProto(table.format())}, spec.dim());
  const uint64_t rows = spec.hashed() ? 0 : std::min<uint64_t>(spec.rows(), 1ull << 40);
  return rows * (row + kOverheadBytes);
}

// What it has, and what it is still to get.
uint64_t ServingServers::FilledBytes(const std::string& name, const ServedTables& tables) const {
  uint64_t bytes = 0;
  const auto add = [&](const v1::ServedTable& cut) {
    const std::optional<ServedPart> part = ServedPartOn(cut, name);
    if (!part.has_value()) return;
    const v1::ReplicaReport* const replica = FindReplica(name, cut.table(), *part);
    const uint64_t there =
        replica != nullptr && replica->ready() ? replica->bytes() + VersionBytes(*replica) : 0;
    v1::TableSpec hashed;  // without declared rows
    hashed.set_hashed(true);
    bytes += there != 0 ? there : BytesOf(hashed, cut) / part->parts;
  };
  for (const auto& [id, table] : tables) {
    add(table);
    if (table.has_beside()) add(BesideOf(table));
  }
  return bytes;
}

std::string ServingServers::LeastFilled(int64_t now_ns, const ServedTables& tables,
                                        const v1::TableSpec& spec, const v1::ServedTable& table,
                                        uint32_t part, Room room) const {
  const uint64_t wanted = BytesOf(spec, table) / std::max<uint32_t>(table.parts(), 1);
  const uint64_t growth = room == Room::kAmple ? wanted / 4 : 0;
  std::string best;
  std::pair<int64_t, double> best_rank;
  for (const auto& [name, server] : servers_) {
    if (!Alive(now_ns, name) || server.report.stopping() || HasCopy(table, name)) continue;
    const uint64_t filled = FilledBytes(name, tables) + wanted;
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
      if (ServedPartAt(table, i).part == part && !Away(now_ns, other) &&
          DomainOf(other) == DomainOf(name)) {
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

void ServingServers::Fill(int64_t now_ns, const ServedTables& tables, const v1::TableSpec& spec,
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

std::string ServingServers::DomainOf(const std::string& name) const {
  const auto server = servers_.find(name);
  return server == servers_.end() ? "" : server->second.report.failure_domain();
}

ServingServers::Crowds ServingServers::CrowdsOf(int64_t now_ns, const v1::ServedTable& table,
                                                uint32_t part) const {
  Crowds crowds;
  for (int i = 0; i < table.servers_size(); ++i) {
    const std::string& name = table.servers(i);
    const std::string domain = DomainOf(name);
    if (ServedPartAt(table, i).part != part || Away(now_ns, name) || domain.empty()) continue;
    ++crowds[domain];
  }
  return crowds;
}

bool ServingServers::CanStandIn(int64_t now_ns, const std::string& name,
                                const v1::ReplicaReport& leaving) const {
  const ServedPart part = ServedPartOf(leaving);
  const v1::ReplicaReport* const replica = FindReplica(name, leaving.table(), part);
  if (replica == nullptr || !Follows(now_ns, name, *replica)) return false;
  return std::all_of(
      leaving.versions().begin(), leaving.versions().end(), [&](const v1::VersionReport& version) {
        return !version.held() || Holds(name, leaving.table(), part, version.number());
      });
}

std::optional<int> ServingServers::Surplus(int64_t now_ns, const v1::ServedTable& table,
                                           uint32_t part) const {
  Crowds crowds = CrowdsOf(now_ns, table, part);
  bool all_known = true;
  int gone = -1;
  std::tuple<bool, int, bool> gone_rank;
  for (int i = 0; i < table.servers_size(); ++i) {
    const std::string& name = table.servers(i);
    if (ServedPartAt(table, i).part != part) continue;
    if (Away(now_ns, name)) return i;
    all_known = all_known && servers_.contains(name);
    const v1::ReplicaReport* const replica =
        FindReplica(name, table.table(), ServedPartAt(table, i));
    const bool too_small = replica != nullptr && replica->full_bytes() != 0;
    const bool ready = replica != nullptr && replica->ready();
    const std::tuple rank(too_small, crowds[DomainOf(name)], !ready);
    if (gone >= 0 && rank < gone_rank) continue;
    gone = i;
    gone_rank = rank;
  }
  if (!all_known) return std::nullopt;
  const std::string& name = table.servers(gone);
  const v1::ReplicaReport* const leaving =
      FindReplica(name, table.table(), ServedPartAt(table, gone));
  // A person who wants fewer copies waits for nothing.
  const bool asked = table.replicas_max() == 0 && crowds[DomainOf(name)] < 2;
  if (asked || leaving == nullptr || !leaving->ready()) return gone;
  uint32_t others = 0;
  for (int i = 0; i < table.servers_size(); ++i) {
    if (i != gone && CanStandIn(now_ns, table.servers(i), *leaving)) ++others;
  }
  return others >= table.replicas() ? std::optional<int>(gone) : std::nullopt;
}

void ServingServers::Spread(int64_t now_ns, const ServedTables& tables, const v1::TableSpec& spec,
                            v1::ServedTable* table) const {
  for (uint32_t part = 0; part < std::max<uint32_t>(table->parts(), 1); ++part) {
    if (CopiesOf(*table, part) != table->replicas()) continue;
    Crowds crowds = CrowdsOf(now_ns, *table, part);
    bool all_ready = true;
    int largest = 0;
    for (int i = 0; i < table->servers_size(); ++i) {
      if (ServedPartAt(*table, i).part != part) continue;
      const std::string& name = table->servers(i);
      const v1::ReplicaReport* const replica =
          FindReplica(name, table->table(), ServedPartAt(*table, i));
      all_ready = all_ready && replica != nullptr && CanStandIn(now_ns, name, *replica);
      largest = std::max(largest, crowds[DomainOf(name)]);
    }
    if (!all_ready || largest < 2) continue;
    const std::string server = LeastFilled(now_ns, tables, spec, *table, part, Room::kEnough);
    if (DomainOf(server).empty() || crowds[DomainOf(server)] + 2 > largest) continue;
    table->add_servers(server);
    table->add_server_parts(part);
  }
}

double ServingServers::LookupRowsPerS(int64_t now_ns, const v1::ServedTable& table) const {
  std::vector<double> parts(std::max<uint32_t>(table.parts(), 1));
  for (int i = 0; i < table.servers_size(); ++i) {
    const std::string& name = table.servers(i);
    const ServedPart part = ServedPartAt(table, i);
    if (part.part >= parts.size() || !Alive(now_ns, name)) continue;
    parts[part.part] += servers_.at(name).rates.RowsPerS(table.table(), part);
  }
  return *std::max_element(parts.begin(), parts.end());
}

CopyDemand::Load ServingServers::LoadOf(int64_t now_ns, const ServedTables& tables,
                                        const v1::TableSpec& spec,
                                        const v1::ServedTable& table) const {
  CopyDemand::Load load = {.rows_per_s = LookupRowsPerS(now_ns, table)};
  // A place for another copy is looked for where one would be wanted: few tables are hot.
  load.may_raise = !table.has_beside() && table.replicas() < table.replicas_max() &&
                   load.rows_per_s > table.replicas() * options_.demand.rows_per_s_max;
  load.may_lower = !table.has_beside();
  v1::ServedTable more = table;
  if (load.may_raise) {
    more.mutable_server_parts()->Resize(more.servers_size(), 0);
    more.set_replicas(table.replicas() + 1);
    Fill(now_ns, tables, spec, &more, Room::kEnough);
  }
  for (uint32_t part = 0; part < std::max<uint32_t>(table.parts(), 1); ++part) {
    uint32_t ready = 0;
    for (int i = 0; i < table.servers_size(); ++i) {
      const ServedPart has = ServedPartAt(table, i);
      if (has.part != part) continue;
      const v1::ReplicaReport* const replica = FindReplica(table.servers(i), table.table(), has);
      ready += replica != nullptr && CanStandIn(now_ns, table.servers(i), *replica) ? 1 : 0;
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
  for (uint32_t part = 0; part < std::max<uint32_t>(table->parts(), 1); ++part) {
    while (CopiesOf(*table, part) > table->replicas()) {
      const std::optional<int> gone = Surplus(now_ns, *table, part);
      if (!gone.has_value()) break;
      table->mutable_servers()->erase(table->servers().begin() + *gone);
      table->mutable_server_parts()->erase(table->server_parts().begin() + *gone);
    }
  }
  for (int i = 0; i < table->servers_size(); ++i) {
    if (!Away(now_ns, table->servers(i))) continue;
    const std::string other =
        LeastFilled(now_ns, tables, spec, *table, table->server_parts(i), Room::kEnough);
    if (!other.empty()) *table->mutable_servers(i) = other;
  }
  Fill(now_ns, tables, spec, table, Room::kEnough);
  if (!table->has_beside()) Spread(now_ns, tables, spec, table);
  Recut(now_ns, tables, spec, table);
  Fill(now_ns, tables, spec, table, Room::kDisk);
  // As earlier releases have it.
  if (table->parts() <= 1) table->clear_server_parts();
  return table->SerializeAsString() != before;
}

bool ServingServers::NeedsPlacing(int64_t now_ns, const std::string& revision,
                                  const ServedTables& tables, const TableSpecs& specs) {
  std::string depends = absl::StrCat(revision, now_ns - began_ns_ >= options_.away_ns);
  wanted_.clear();
  demand_.KeepOnly(tables);
  NoteCuts(now_ns, tables, specs);
  depends += CutStates(now_ns, tables);
  for (const auto& [id, table] : tables) {
    const auto spec = specs.find(id);
    if (spec == specs.end() || table.replicas_max() == 0) continue;
    const uint32_t wanted =
        demand_.Wanted(now_ns, table, LoadOf(now_ns, tables, spec->second, table));
    if (wanted == table.replicas()) continue;
    wanted_[id] = {table.replicas(), wanted};
    absl::StrAppend(&depends, " ", id, ":", wanted);
  }
  for (const auto& [name, server] : servers_) {
    const v1::ServingReport& report = server.report;
    absl::StrAppend(&depends, ";", name, " ", Alive(now_ns, name), Away(now_ns, name),
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
    const auto joined =
        JoinIsDue(now_ns, id) ? Joined(now_ns, after, spec->second, table) : std::nullopt;
    if (joined.has_value()) SetBeside(*joined, /*leaves=*/false, &placed);
    const bool other = other_number || joined.has_value();
    if (!Place(now_ns, after, spec->second, &placed) && !other) continue;
    table = placed;
    changes.push_back(std::move(placed));
  }
  return changes;
}

}  // namespace hotbed
