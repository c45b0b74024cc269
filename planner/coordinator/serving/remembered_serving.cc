#include "planner/coordinator/serving/remembered_serving.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "planner/coordinator/serving/served_versions.h"
#include "planner/coordinator/state/keys.h"
#include "proto/served_part.h"

namespace hotbed {
namespace {

constexpr uint64_t kVersionNumberMax = uint64_t{1} << 48;  // a million per second for nine years

}  // namespace

v1::ServingRecords RecordsOf(const ClusterState& state) {
  v1::ServingRecords records;
  records.set_cluster_id(state.cluster_id());
  records.set_revision(state.serving_revision());
  for (const auto& [id, table] : state.served()) *records.add_tables() = table;
  for (const auto& [number, version] : state.versions()) *records.add_versions() = version;
  for (const auto& [model, choice] : state.version_choices()) *records.add_choices() = choice;
  return records;
}

void RememberedServing::Note(int64_t now_ns, const v1::ServingReport& report) {
  const auto known = servers_.find(report.name());
  if (known == servers_.end() && servers_.size() >= kServersMax) return;
  Server& server = servers_[report.name()];
  const v1::ServingRecords before = std::move(*server.report.mutable_records());
  const bool same = server.report.records_cluster() == report.records_cluster() &&
                    server.report.records_revision() == report.records_revision();
  server.report = report;
  server.report.clear_replicas();
  // A server that was answered by another coordinator in between says its records no second time.
  if (!report.has_records() && same) *server.report.mutable_records() = before;
  server.heard_ns = now_ns;
}

bool RememberedServing::Awaited(int64_t now_ns) const {
  return now_ns - began_ns_ < kLatelyNs ||
         std::any_of(servers_.begin(), servers_.end(), [now_ns](const auto& one) {
           return now_ns - one.second.heard_ns < kLatelyNs;
         });
}

std::vector<std::string> RememberedServing::Unheard(int64_t now_ns,
                                                    const std::string& cluster) const {
  std::vector<std::string> unheard;
  for (const auto& [name, server] : servers_) {
    if (server.report.records_cluster() == cluster && now_ns - server.heard_ns < kLatelyNs &&
        server.report.records().cluster_id() != cluster) {
      unheard.push_back(name);
    }
  }
  return unheard;
}

std::vector<std::string> RememberedServing::Missing(int64_t now_ns,
                                                    const std::string& cluster) const {
  const v1::ServingRecords* const records = Newest(cluster);
  if (records == nullptr) {
    const int64_t left_ns = began_ns_ + kLatelyNs - now_ns;
    if (left_ns <= 0) return {};
    return {absl::StrCat("serving servers, which report within ",
                         (left_ns + kSecondNs - 1) / kSecondNs, " s if there are any")};
  }
  std::set<std::string> silent;
  for (const v1::ServedTable& table : records->tables()) {
    for (const std::string& name : table.servers()) {
      const auto server = servers_.find(name);
      if (server == servers_.end() || now_ns - server->second.heard_ns >= kLatelyNs) {
        silent.insert("serving server " + name);
      }
    }
  }
  return {silent.begin(), silent.end()};
}

const v1::ServingRecords* RememberedServing::Newest(const std::string& cluster) const {
  const v1::ServingRecords* newest = nullptr;
  for (const auto& [name, server] : servers_) {
    const v1::ServingRecords& records = server.report.records();
    if (records.cluster_id() != cluster) continue;
    if (newest == nullptr || records.revision() > newest->revision()) newest = &records;
  }
  return newest;
}

namespace {

bool MayBeServed(const v1::ServedTable& table, const v1::TableSpec& spec) {
  const uint32_t parts = std::max<uint32_t>(table.parts(), 1);
  const auto& of = table.server_parts();
  const std::set<std::string> servers(table.servers().begin(), table.servers().end());
  const bool within = table.replicas_max() == 0 ||
                      (table.replicas_min() >= 1 && table.replicas() >= table.replicas_min() &&
                       table.replicas() <= table.replicas_max());
  return table.replicas() != 0 && within && v1::ServedFormat_IsValid(table.format()) &&
         std::max(parts, table.parts_min()) <=
             std::min<uint64_t>(kServedPartsMax, ServedPlaces::Of(spec).places) &&
         (of.empty() ? parts == 1 || servers.empty() : of.size() == table.servers_size()) &&
         std::all_of(of.begin(), of.end(), [parts](uint32_t part) { return part < parts; }) &&
         static_cast<int>(servers.size()) == table.servers_size();
}

}  // namespace

std::vector<Op> OpsToAdopt(const v1::ServingRecords& records,
                           const absl::btree_map<TableId, v1::TableSpec>& tables) {
  std::vector<Op> ops;
  const auto put = [&ops](std::string key, std::string value) {
    ops.push_back({Op::Kind::kPut, std::move(key), std::move(value)});
  };
  for (const v1::ServedTable& table : records.tables()) {
    const auto spec = tables.find(table.table());
    if (spec == tables.end() || !MayBeServed(table, spec->second)) continue;
    // Servers begin with another cut again.
    v1::ServedTable adopted = table;
    adopted.clear_beside();
    put(keys::Served(table.table()), adopted.SerializeAsString());
  }
  ServedVersions versions;
  for (const v1::ServedVersion& version : records.versions()) {
    const bool named =
        CheckVersionName(version.name()).ok() && CheckModelName(version.model()).ok();
    const bool numbered = version.number() != 0 && version.number() <= kVersionNumberMax;
    if (!numbered || !named || version.tables().empty()) continue;
    versions[version.number()] = version;
    put(keys::Version(version.number()), version.SerializeAsString());
  }
  VersionChoices choices;
  uint64_t newest = versions.empty() ? 0 : versions.rbegin()->first;
  for (const v1::VersionChoice& choice : records.choices()) {
    if (!CheckModelName(choice.model()).ok() || choice.newest() > kVersionNumberMax) continue;
    choices[choice.model()] = choice;
    newest = std::max(newest, choice.newest());
  }
  DropChoices(versions, &choices);
  if (newest != 0) {
    v1::VersionChoice& numbers = choices[keys::kDefaultModel];
    numbers.set_model(keys::kDefaultModel);
    numbers.set_newest(newest);
  }
  for (const auto& [model, choice] : choices) {
    put(keys::VersionChoice(model), choice.SerializeAsString());
  }
  return ops;
}

}  // namespace hotbed
