#include "server/server_status.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "config/units.h"
#include "nlohmann/json.hpp"
#include "server/kernels/cpu_kernels.h"

namespace hotbed {
namespace {

// Numbers over all shards of the host.
StatusNumbers OverShards(const HostStatus& host) {
  uint64_t refused = 0, lag = 0, followers = 0;
  for (const ShardStatus& shard : host.shards) {
    refused += shard.refused;
    lag = std::max(lag, shard.commit_lsn - std::min(shard.commit_lsn, shard.applied_lsn));
    followers += shard.followers;
  }
  StatusNumbers numbers;
  numbers.Add("shards_refused", "hotbed_server_shards_refused",
              "Shards that are not served until a restart, because damage was found.", refused);
  numbers.Add("commit_lag_records", "hotbed_server_commit_lag_records",
              "Records committed and not yet applied, of the shard that is furthest behind.", lag);
  numbers.Add("followers", "hotbed_server_followers",
              "Replicas whose acknowledgements the shards here wait for.", followers);
  numbers.Add("", "hotbed_server_read_only", "1 while no push is acknowledged.", host.read_only);
  return numbers;
}

void AddToJson(const StatusNumbers& numbers, nlohmann::ordered_json* json) {
  for (const StatusNumbers::Number& number : numbers.all()) {
    if (!number.key.empty()) (*json)[std::string(number.key)] = number.value;
  }
}

nlohmann::ordered_json JsonOfShard(const ShardStatus& shard) {
  nlohmann::ordered_json json = {
      {"shard", absl::StrCat(shard.shard.table, "/", shard.shard.index)},
      {"table", shard.table},
      {"active", shard.active},
      {"primary", shard.primary},
      {"read_only", shard.read_only},
      {"error", shard.error},
      {"refused", shard.refused},
  };
  AddToJson(shard.Numbers(), &json);
  return json;
}

std::string JsonOf(const ServerSnapshot& s) {
  nlohmann::ordered_json json = {
      {"name", s.name},
      {"data_address", s.data_address},
      {"admin_address", s.admin_address},
      {"ready", s.ready},
      {"server", absl::StrCat(s.link.server)},  // 64 bits do not fit a JSON number everywhere
      {"incarnation", s.link.incarnation},
      {"cluster_id", s.link.cluster_id},
      {"registered", s.link.registered},
      {"plan_revision", s.link.plan_revision},
      {"registrations", s.link.registrations},
      {"coordinator_error", s.link.error},
      {"read_only", s.host.read_only},
      {"read_only_reason", s.host.read_only_reason},
      {"kernels", KernelsText()},
      {"device", s.host.device},
      {"device_error", s.host.device_error},
      {"pull_bytes_in_flight", s.pull_bytes_in_flight},
      {"pull_bytes_in_flight_max", s.pull_bytes_in_flight_max},
      {"push_bytes_in_flight", s.push_bytes_in_flight},
      {"push_bytes_in_flight_max", s.push_bytes_in_flight_max},
      {"streams", s.streams},
  };
  AddToJson(s.host.numbers, &json);
  AddToJson(OverShards(s.host), &json);
  AddToJson(s.host.device_numbers, &json);
  nlohmann::ordered_json shards = nlohmann::ordered_json::array();
  for (const ShardStatus& shard : s.host.shards) shards.push_back(JsonOfShard(shard));
  json["shards"] = std::move(shards);
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string OfLimit(uint64_t bytes, uint64_t limit) {
  return limit == 0 ? FormatBytes(bytes)
                    : absl::StrCat(FormatBytes(bytes), " of ", FormatBytes(limit));
}

std::string OfLimit(const StatusNumbers& numbers, absl::string_view key, absl::string_view limit) {
  return OfLimit(numbers[key], numbers[limit]);
}

std::string Percent(uint64_t part, uint64_t whole) {
  return whole == 0 ? "-" : absl::StrFormat("%.1f %%", 100.0 * part / whole);
}

std::string StateOf(const ShardStatus& shard) {
  if (!shard.error.empty()) return shard.error;
  if (shard.read_only) return "read-only";
  if (!shard.primary) return "follows";
  return shard.active ? "active" : "waits for activation";
}

std::string DeviceOf(const HostStatus& host) {
  if (host.device.empty()) return "host memory";
  const std::string name = absl::StrCat(
      host.device, ", ", OfLimit(host.device_numbers, "device_bytes", "device_bytes_limit"));
  return host.device_error.empty() ? name : absl::StrCat(name, ", failed: ", host.device_error);
}

StatusTable ShardTable(const HostStatus& host) {
  StatusTable table;
  table.title = "Shards";
  table.columns = {"shard",    "table",     "state",     "epoch",  "applied LSN", "durable LSN",
                   "resident", "on device", "hot bytes", "pulled", "pushed",      "hit"};
  for (const ShardStatus& s : host.shards) {
    table.rows.push_back({absl::StrCat(s.shard.table, "/", s.shard.index), s.table, StateOf(s),
                          absl::StrCat(s.epoch), absl::StrCat(s.applied_lsn),
                          absl::StrCat(s.durable_row_lsn), absl::StrCat(s.store.rows_resident),
                          absl::StrCat(s.store.device_rows), FormatBytes(s.store.hot_bytes),
                          absl::StrCat(s.rows_pulled), absl::StrCat(s.rows_pushed),
                          Percent(s.store.hits, s.store.hits + s.store.misses)});
  }
  return table;
}

}  // namespace

std::vector<ReadyCondition> ReadyConditions(const ReadyFacts& facts) {
  const LinkStatus& link = facts.link;
  std::vector<ReadyCondition> conditions;
  if (facts.stopping) conditions.push_back({"server", false, "stopping"});
  const int64_t left_ns = link.lease_until_ns - facts.now_ns;
  const std::string error = link.error.empty() ? "" : absl::StrCat(": ", link.error);
  ReadyCondition lease = {"lease", false, ""};
  if (link.registrations == 0) {
    lease.found = absl::StrCat("not registered at the coordinator yet", error);
  } else if (link.lease_until_ns == 0) {
    lease.found = absl::StrCat("the coordinator has given none yet, or ended it", error);
  } else if (left_ns <= 0) {
    lease.found =
        absl::StrFormat("ran out %.1f s ago%s", static_cast<double>(-left_ns) * 1e-9, error);
  } else {
    lease.holds = true;
    lease.found = absl::StrFormat("holds for %.1f s", static_cast<double>(left_ns) * 1e-9);
  }
  conditions.push_back(std::move(lease));
  if (!facts.device_error.empty()) conditions.push_back({"device", false, facts.device_error});
  const ShardHost::Primaries& primaries = facts.primaries;
  const bool none_served = primaries.shards > 0 && primaries.refused == primaries.shards;
  std::string shards = absl::StrCat(primaries.shards, " with the primary here");
  if (primaries.waiting > 0) {
    absl::StrAppend(&shards, ", ", primaries.waiting,
                    " are being recovered or wait for activation");
  }
  if (primaries.refused > 0) {
    absl::StrAppend(&shards, ", ", primaries.refused,
                    " refused, the first: ", primaries.first_error);
  }
  conditions.push_back({"shards", primaries.waiting == 0 && !none_served, std::move(shards)});
  return conditions;
}

std::string KernelsText() {
  return absl::StrCat(CpuKernels().name, ", rows are fetched ", kFetchWay.name);
}

StatusPage RenderStatus(const ServerSnapshot& s) {
  StatusPage page;
  page.title = absl::StrCat("hotbed-server ", s.name);
  page.subtitle = absl::StrCat(s.data_address, ", ",
                               s.host.read_only ? "read-only" : (s.ready ? "ready" : "not ready"));
  const std::string heard =
      s.link.heard_ns == 0
          ? "never heard"
          : absl::StrFormat("heard %.1f s ago", (s.now_ns - s.link.heard_ns) / 1e9);
  const StatusNumbers& numbers = s.host.numbers;
  page.facts = {
      {"cluster", s.link.cluster_id},
      {"server", absl::StrCat(s.link.server, ", incarnation ", s.link.incarnation)},
      {"coordinator", absl::StrCat(s.link.registered ? "lease held" : "no lease", ", ", heard)},
      {"plan revision", absl::StrCat(s.link.plan_revision)},
      {"row kernels", KernelsText()},
      {"device", DeviceOf(s.host)},
      {"hot rows", OfLimit(numbers, "hot_bytes", "hot_bytes_limit")},
      {"host memory limit", FormatBytes(numbers["host_bytes_limit"])},
      {"spill on disk", FormatBytes(numbers["spill_bytes"])},
      {"log on disk", FormatBytes(numbers["log_bytes"])},
      {"log appends, writes, syncs",
       absl::StrCat(numbers["log_appends"], ", ", numbers["log_writes"], ", ",
                    numbers["log_syncs"])},
      {"pulls in flight", OfLimit(s.pull_bytes_in_flight, s.pull_bytes_in_flight_max)},
      {"pushes in flight", OfLimit(s.push_bytes_in_flight, s.push_bytes_in_flight_max)},
      {"streams", absl::StrCat(s.streams)},
  };
  if (!s.link.error.empty()) page.facts.emplace_back("coordinator says", s.link.error);
  if (s.host.read_only) page.facts.emplace_back("read-only", s.host.read_only_reason);
  if (const uint64_t bytes = numbers["log_refused_bytes"]; bytes > 0) {
    page.facts.emplace_back(
        "log kept for refused shards",
        absl::StrCat(FormatBytes(bytes),
                     ", in addition to --log-bytes-max; see their state below"));
  }
  page.tables.push_back(ShardTable(s.host));
  page.json = JsonOf(s);
  return page;
}

void CollectHostMetrics(const HostStatus& host, std::vector<MetricSample>* samples) {
  host.numbers.AddSamplesTo(samples);
  OverShards(host).AddSamplesTo(samples);
  host.device_numbers.AddSamplesTo(samples, {{"device", host.device}});
  std::map<std::string, StatusNumbers> tables;
  for (const ShardStatus& shard : host.shards) tables[shard.table].AddValues(shard.Numbers());
  for (const auto& [table, numbers] : tables) numbers.AddSamplesTo(samples, {{"table", table}});
}

}  // namespace hotbed
