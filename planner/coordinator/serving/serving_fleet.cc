#include "planner/coordinator/serving/serving_fleet.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/host_port.h"
#include "common/status_macros.h"
#include "proto/served_format.h"
#include "row_math/row_formats.h"

namespace hotbed {
namespace {

constexpr size_t kNameBytesMax = 200;
constexpr size_t kTroubleBytesMax = 500;
constexpr uint64_t kOverheadBytes = 12;  // of a row: its key and its part of the index

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

void ServingFleet::Begin(int64_t now_ns) {
  began_ns_ = now_ns;
  for (auto& [name, server] : servers_) server.heard_ns = now_ns;
}

absl::Status ServingFleet::OnReport(int64_t now_ns, const v1::ServingReport& report) {
  HOTBED_RETURN_IF_ERROR(CheckReport(report));
  const auto known = servers_.find(report.name());
  if (known != servers_.end() && known->second.report.run() != report.run() &&
      !known->second.report.stopping() && Alive(now_ns, report.name())) {
    return absl::AlreadyExistsError(
        absl::StrCat("another process reports as serving server \"", report.name(), "\", at ",
                     known->second.report.address(),
                     ": give each its own --name; one that was killed is "
                     "forgotten ",
                     options_.alive_ns / kMillisecondNs, " ms after its last report"));
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
  server.rates.Note(now_ns, options_.rate_ns, report);
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

bool ServingFleet::Alive(int64_t now_ns, const std::string& name) const {
  const auto server = servers_.find(name);
  return server != servers_.end() && now_ns - server->second.heard_ns < options_.alive_ns;
}

bool ServingFleet::Works(int64_t now_ns, const std::string& name) const {
  return Alive(now_ns, name) && !servers_.at(name).report.stopping();
}

bool ServingFleet::Away(int64_t now_ns, const std::string& name) const {
  const auto server = servers_.find(name);
  const int64_t since_ns = server == servers_.end() ? began_ns_ : server->second.heard_ns;
  return now_ns - std::max(since_ns, began_ns_) >= options_.away_ns;
}

bool ServingFleet::IsQuiet(int64_t now_ns, const std::string& name) const {
  if (Away(now_ns, name)) return false;
  return !Works(now_ns, name);
}

std::string ServingFleet::DomainOf(const std::string& name) const {
  const auto server = servers_.find(name);
  return server == servers_.end() ? "" : server->second.report.failure_domain();
}

ServingFleet::Crowds ServingFleet::CrowdsOf(int64_t now_ns, const v1::ServedTable& table,
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

const v1::ReplicaReport* ServingFleet::FindReplica(const std::string& name, TableId table,
                                                   const ServedPart& part) const {
  const auto server = servers_.find(name);
  if (server == servers_.end()) return nullptr;
  for (const v1::ReplicaReport& replica : server->second.report.replicas()) {
    if (replica.table() == table && ServedPartOf(replica) == part) return &replica;
  }
  return nullptr;
}

bool ServingFleet::Holds(const std::string& name, TableId table, const ServedPart& part,
                         uint64_t version) const {
  const v1::ReplicaReport* const replica = FindReplica(name, table, part);
  return replica != nullptr && std::any_of(replica->versions().begin(), replica->versions().end(),
                                           [version](const v1::VersionReport& one) {
                                             return one.number() == version && one.held();
                                           });
}

bool ServingFleet::Follows(int64_t now_ns, const std::string& name,
                           const v1::ReplicaReport& replica) const {
  return replica.ready() && replica.full_bytes() == 0 && Works(now_ns, name);
}

bool ServingFleet::CanStandIn(int64_t now_ns, const std::string& name,
                              const v1::ReplicaReport& leaving) const {
  const ServedPart part = ServedPartOf(leaving);
  const v1::ReplicaReport* const replica = FindReplica(name, leaving.table(), part);
  if (replica == nullptr || !Follows(now_ns, name, *replica)) return false;
  return std::all_of(
      leaving.versions().begin(), leaving.versions().end(), [&](const v1::VersionReport& version) {
        return !version.held() || Holds(name, leaving.table(), part, version.number());
      });
}

bool ServingFleet::AllHold(int64_t now_ns, const v1::ServedVersion& version,
                           const ServedTables& tables) const {
  // Servers that have not reported since it began to lead may be alive.
  if (!AllHeard(now_ns)) return false;
  bool any_table = false;
  for (const uint32_t id : version.tables()) {
    const auto table = tables.find(id);
    if (table == tables.end()) continue;  // it is not served any more
    any_table = true;
    std::set<uint32_t> parts;
    for (int i = 0; i < table->second.servers_size(); ++i) {
      const std::string& name = table->second.servers(i);
      if (!Works(now_ns, name)) continue;
      const ServedPart part = ServedPartAt(table->second, i);
      if (!Holds(name, id, part, version.number())) return false;
      parts.insert(part.part);
    }
    if (parts.size() < std::max<uint32_t>(table->second.parts(), 1)) return false;
  }
  return any_table;
}

double ServingFleet::LookupRowsPerS(int64_t now_ns, const v1::ServedTable& table) const {
  std::vector<double> parts(std::max<uint32_t>(table.parts(), 1));
  for (int i = 0; i < table.servers_size(); ++i) {
    const std::string& name = table.servers(i);
    const ServedPart part = ServedPartAt(table, i);
    if (part.part >= parts.size() || !Alive(now_ns, name)) continue;
    parts[part.part] += servers_.at(name).rates.RowsPerS(table.table(), part);
  }
  return *std::max_element(parts.begin(), parts.end());
}

uint64_t ServingFleet::BytesOf(const v1::TableSpec& spec, const v1::ServedTable& table) const {
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

uint64_t ServingFleet::FilledBytes(const std::string& name, const ServedTables& tables) const {
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

void ServingFleet::AddTo(int64_t now_ns, v1::ServingMap* map) const {
  for (const auto& [name, server] : servers_) {
    v1::ServingServerInfo& info = *map->add_servers();
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
    info.set_silent_ms(static_cast<uint64_t>((now_ns - server.heard_ns) / kMillisecondNs));
    *info.mutable_replicas() = server.report.replicas();
    for (v1::ReplicaReport& replica : *info.mutable_replicas()) {
      const double rows_per_s = server.rates.RowsPerS(replica.table(), ServedPartOf(replica));
      replica.set_lookup_rows_per_s(static_cast<uint64_t>(std::llround(rows_per_s)));
    }
  }
}

}  // namespace hotbed
