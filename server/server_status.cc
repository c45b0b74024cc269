// Every number that a server shows stands once in one of two tables below, kHostNumbers and
// kShardNumbers: /metrics and /api/status are generated from them. To add a number, add a line.
#include "server/server_status.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "config/units.h"
#include "nlohmann/json.hpp"

namespace hotbed {
namespace {

constexpr auto kCounter = MetricSample::Type::kCounter;
constexpr auto kGauge = MetricSample::Type::kGauge;

// A number of `Status`. Without `metric` it is in /api/status only, without `key` in /metrics only.
template <typename Status>
struct StatusNumber {
  const char* key;
  const char* metric;
  MetricSample::Type type;
  const char* help;
  uint64_t (*read)(const Status& status);
};

// StatusNumber::read of a field.
template <auto kField, typename Status>
uint64_t Field(const Status& status) {
  return static_cast<uint64_t>(status.*kField);
}

uint64_t RefusedShards(const HostStatus& host) {
  uint64_t refused = 0;
  for (const ShardStatus& shard : host.shards) refused += shard.refused;
  return refused;
}

uint64_t CommitLag(const HostStatus& host) {
  uint64_t lag = 0;
  for (const ShardStatus& shard : host.shards) {
    lag = std::max(lag, shard.commit_lsn - std::min(shard.commit_lsn, shard.applied_lsn));
  }
  return lag;
}

uint64_t Followers(const HostStatus& host) {
  uint64_t followers = 0;
  for (const ShardStatus& shard : host.shards) followers += shard.copies;
  return followers;
}

using HostNumber = StatusNumber<HostStatus>;
using ShardNumber = StatusNumber<ShardStatus>;

constexpr HostNumber kHostNumbers[] = {
    // clang-format off
    {"host_bytes_limit", "hotbed_server_host_limit_bytes", kGauge, "The memory budget.",
     &Field<&HostStatus::host_bytes_limit>},
    {"hot_bytes_limit", "hotbed_server_hot_limit_bytes", kGauge, "Memory limit of the hot tier.",
     &Field<&HostStatus::hot_bytes_limit>},
    {"hot_bytes", "hotbed_server_hot_bytes", kGauge, "Memory of the hot tier.",
     &Field<&HostStatus::hot_bytes>},
    {"block_cache_bytes", nullptr, kGauge, nullptr, &Field<&HostStatus::block_cache_bytes>},
    {"memtable_bytes", nullptr, kGauge, nullptr, &Field<&HostStatus::memtable_bytes>},
    {"spill_bytes", "hotbed_server_spill_bytes", kGauge, "Disk taken by spilled rows.",
     &Field<&HostStatus::spill_bytes>},
    {"spill_renewals", "hotbed_server_spill_renewals_total", kCounter,
     "Times that a damaged spill tier was emptied; its rows come back from other replicas.",
     &Field<&HostStatus::spill_renewals>},
    {"log_bytes", "hotbed_server_log_bytes", kGauge, "Disk taken by the log.",
     &Field<&HostStatus::log_bytes>},
    {"log_refused_bytes", "hotbed_server_log_refused_bytes", kGauge,
     "Disk of the log kept only for refused shards, in addition to --log-bytes-max.",
     &Field<&HostStatus::log_refused_bytes>},
    {"log_torn_bytes", "hotbed_server_log_torn_bytes", kGauge,
     "Bytes that were missing or torn at the end of the log when the server started.",
     &Field<&HostStatus::log_torn_bytes>},
    {"data_given_up", "hotbed_server_data_given_up", kGauge,
     "1 if this start gave up the server's data, by --adopt-incomplete.",
     &Field<&HostStatus::data_given_up>},
    {"shards_refused", "hotbed_server_shards_refused", kGauge,
     "Shards that are not served until a restart, because damage was found.", &RefusedShards},
    {"staged_bytes", "hotbed_server_staged_bytes", kGauge,
     "Pushes to synchronous tables that wait for their step's commit.",
     &Field<&HostStatus::staged_bytes>},
    {"checkpoints", "hotbed_server_checkpoints_total", kCounter,
     "Checkpoints made of the tables of class checkpoint.", &Field<&HostStatus::checkpoints>},
    {"log_appends", "hotbed_server_log_appends_total", kCounter, "Records appended to the log.",
     &Field<&HostStatus::log_appends>},
    {"log_writes", "hotbed_server_log_writes_total", kCounter, "Group writes of the log.",
     &Field<&HostStatus::log_writes>},
    {"log_syncs", "hotbed_server_log_syncs_total", kCounter, "Syncs of the log.",
     &Field<&HostStatus::log_syncs>},
    {"records_sent", "hotbed_server_records_sent_total", kCounter,
     "Log records sent to other replicas.", &Field<&HostStatus::records_sent>},
    {"records_taken", "hotbed_server_records_taken_total", kCounter,
     "Log records taken from primaries.", &Field<&HostStatus::records_taken>},
    {"replica_messages_refused", "hotbed_server_replica_messages_refused_total", kCounter,
     "Records of other replicas that were damaged or not of the shard; requested again.",
     &Field<&HostStatus::replica_messages_refused>},
    {"replicas_diverged", "hotbed_server_replicas_diverged_total", kCounter,
     "Shards whose rolling hash was found to differ from their primary's.",
     &Field<&HostStatus::replicas_diverged>},
    {"copies_sent", "hotbed_server_copies_sent_total", kCounter,
     "Snapshot transfers of shards completed to other servers.", &Field<&HostStatus::copies_sent>},
    {"copies_received", "hotbed_server_copies_received_total", kCounter,
     "Snapshot transfers of shards completed from other servers.",
     &Field<&HostStatus::copies_received>},
    {"copies_failed", "hotbed_server_copies_failed_total", kCounter,
     "Snapshot transfers of shards that were broken off.", &Field<&HostStatus::copies_failed>},
    {"copied_bytes_sent", "hotbed_server_copied_sent_bytes_total", kCounter,
     "Bytes of snapshot transfers to other servers.", &Field<&HostStatus::copied_bytes_sent>},
    {"copied_bytes_received", "hotbed_server_copied_received_bytes_total", kCounter,
     "Bytes of snapshot transfers from other servers.",
     &Field<&HostStatus::copied_bytes_received>},
    {"copy_rate_limit", "hotbed_server_copy_rate_limit_bytes", kGauge,
     "Bytes per second that snapshot transfers may take now; 0: no limit.",
     &Field<&HostStatus::copy_rate_now>},
    {"commit_lag_records", "hotbed_server_commit_lag_records", kGauge,
     "Records committed and not yet applied, of the shard that is furthest behind.", &CommitLag},
    {"followers", "hotbed_server_followers", kGauge,
     "Replicas whose acknowledgements the shards here wait for.", &Followers},
    {"replica_tail_bytes_limit", "hotbed_server_replica_tail_limit_bytes", kGauge,
     "Limit of hotbed_server_replica_tail_bytes.", &Field<&HostStatus::replica_tail_bytes_limit>},
    {"replica_tail_bytes", "hotbed_server_replica_tail_bytes", kGauge,
     "Log records kept in memory for other replicas.", &Field<&HostStatus::replica_tail_bytes>},
    {nullptr, "hotbed_server_read_only", kGauge, "1 while no push is acknowledged.",
     &Field<&HostStatus::read_only>},
    // clang-format on
};

// Metrics only where there is a device, labelled with its name.
constexpr HostNumber kDeviceNumbers[] = {
    // clang-format off
    {"device_bytes_limit", "hotbed_server_device_limit_bytes", kGauge,
     "Device memory that the server has.", &Field<&HostStatus::device_bytes_limit>},
    {"device_bytes", "hotbed_server_device_bytes", kGauge,
     "Device memory taken, for rows, index and messages.", &Field<&HostStatus::device_bytes>},
    {"device_pinned_bytes", "hotbed_server_device_pinned_bytes", kGauge,
     "Memory of answers that the device copies into.", &Field<&HostStatus::device_pinned_bytes>},
    {"device_rows_direct_bytes", "hotbed_server_device_rows_direct_bytes_total", kCounter,
     "Bytes of rows that the device copied straight into answers.",
     &Field<&HostStatus::device_rows_direct_bytes>},
    {"device_rows_copied_bytes", "hotbed_server_device_rows_copied_bytes_total", kCounter,
     "Bytes of rows from the device that were copied once more on the host.",
     &Field<&HostStatus::device_rows_copied_bytes>},
    {nullptr, "hotbed_server_device_failed", kGauge,
     "1 once the device has failed: restart the server.",
     [](const HostStatus& host) { return uint64_t{!host.device_error.empty()}; }},
    // clang-format on
};

// /api/status has them per shard; the metrics are sums over the shards of a table, which is the
// label.
constexpr ShardNumber kShardNumbers[] = {
    // clang-format off
    {nullptr, "hotbed_table_shards", kGauge, "Shards held.",
     [](const ShardStatus&) { return uint64_t{1}; }},
    {"epoch", nullptr, kGauge, nullptr, &Field<&ShardStatus::epoch>},
    {"copies", nullptr, kGauge, nullptr, &Field<&ShardStatus::copies>},
    {"commit_lsn", nullptr, kGauge, nullptr, &Field<&ShardStatus::commit_lsn>},
    {"applied_lsn", nullptr, kGauge, nullptr, &Field<&ShardStatus::applied_lsn>},
    {"durable_row_lsn", nullptr, kGauge, nullptr, &Field<&ShardStatus::durable_row_lsn>},
    {"sessions", nullptr, kGauge, nullptr, &Field<&ShardStatus::sessions>},
    {"bytes", nullptr, kGauge, nullptr, &Field<&ShardStatus::bytes>},
    {"rows_resident", "hotbed_table_resident_rows", kGauge,
     "Rows in the hot tier, including those on the device.", &Field<&ShardStatus::rows_resident>},
    {"device_rows", "hotbed_table_device_rows", kGauge,
     "Resident rows that are in device memory.", &Field<&ShardStatus::device_rows>},
    {"device_bytes", nullptr, kGauge, nullptr, &Field<&ShardStatus::device_bytes>},
    {"hot_bytes", "hotbed_table_hot_bytes", kGauge,
     "Host memory of resident rows, with their overhead.", &Field<&ShardStatus::hot_bytes>},
    {"rows_pulled", "hotbed_table_pulled_rows_total", kCounter, "Rows read.",
     &Field<&ShardStatus::rows_pulled>},
    {"rows_pushed", "hotbed_table_pushed_rows_total", kCounter, "Gradient rows applied.",
     &Field<&ShardStatus::rows_pushed>},
    {"hot_hits", "hotbed_table_hot_hits_total", kCounter, "Row accesses served from memory.",
     &Field<&ShardStatus::hot_hits>},
    {"device_hits", "hotbed_table_device_hits_total", kCounter,
     "Row accesses served from device memory; included in the hot hits.",
     &Field<&ShardStatus::device_hits>},
    {"hot_misses", "hotbed_table_hot_misses_total", kCounter,
     "Row accesses that went below the hot tier.", &Field<&ShardStatus::hot_misses>},
    {"evictions", "hotbed_table_evictions_total", kCounter, "Rows evicted from memory.",
     &Field<&ShardStatus::evictions>},
    {"writebacks", "hotbed_table_writebacks_total", kCounter, "Rows written to the spill tier.",
     &Field<&ShardStatus::writebacks>},
    // clang-format on
};

template <typename Status>
void AddSample(const StatusNumber<Status>& number, const Labels& labels, uint64_t value,
               std::vector<MetricSample>* samples) {
  if (number.metric == nullptr) return;
  MetricSample sample;
  sample.name = number.metric;
  sample.help = number.help;
  sample.type = number.type;
  sample.labels = labels;
  sample.value = static_cast<double>(value);
  samples->push_back(std::move(sample));
}

template <typename Status>
void AddToJson(const StatusNumber<Status>& number, const Status& status,
               nlohmann::ordered_json* json) {
  if (number.key != nullptr) (*json)[number.key] = number.read(status);
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
  for (const ShardNumber& number : kShardNumbers) AddToJson(number, shard, &json);
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
      {"device", s.host.device},
      {"device_error", s.host.device_error},
      {"pull_bytes_in_flight", s.pull_bytes_in_flight},
      {"pull_bytes_in_flight_max", s.pull_bytes_in_flight_max},
      {"push_bytes_in_flight", s.push_bytes_in_flight},
      {"push_bytes_in_flight_max", s.push_bytes_in_flight_max},
      {"streams", s.streams},
  };
  for (const HostNumber& number : kHostNumbers) AddToJson(number, s.host, &json);
  for (const HostNumber& number : kDeviceNumbers) AddToJson(number, s.host, &json);
  nlohmann::ordered_json shards = nlohmann::ordered_json::array();
  for (const ShardStatus& shard : s.host.shards) shards.push_back(JsonOfShard(shard));
  json["shards"] = std::move(shards);
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string OfLimit(uint64_t bytes, uint64_t limit) {
  return limit == 0 ? FormatBytes(bytes)
                    : absl::StrCat(FormatBytes(bytes), " of ", FormatBytes(limit));
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
  const std::string name =
      absl::StrCat(host.device, ", ", OfLimit(host.device_bytes, host.device_bytes_limit));
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
                          absl::StrCat(s.durable_row_lsn), absl::StrCat(s.rows_resident),
                          absl::StrCat(s.device_rows), FormatBytes(s.hot_bytes),
                          absl::StrCat(s.rows_pulled), absl::StrCat(s.rows_pushed),
                          Percent(s.hot_hits, s.hot_hits + s.hot_misses)});
  }
  return table;
}

}  // namespace

StatusPage RenderStatus(const ServerSnapshot& s) {
  StatusPage page;
  page.title = absl::StrCat("hotbed-server ", s.name);
  page.subtitle = absl::StrCat(s.data_address, ", ",
                               s.host.read_only ? "read-only" : (s.ready ? "ready" : "not ready"));
  const std::string heard =
      s.link.heard_ns == 0
          ? "never heard"
          : absl::StrFormat("heard %.1f s ago", (s.now_ns - s.link.heard_ns) / 1e9);
  page.facts = {
      {"cluster", s.link.cluster_id},
      {"server", absl::StrCat(s.link.server, ", incarnation ", s.link.incarnation)},
      {"coordinator", absl::StrCat(s.link.registered ? "lease held" : "no lease", ", ", heard)},
      {"plan revision", absl::StrCat(s.link.plan_revision)},
      {"device", DeviceOf(s.host)},
      {"hot rows", OfLimit(s.host.hot_bytes, s.host.hot_bytes_limit)},
      {"host memory limit", FormatBytes(s.host.host_bytes_limit)},
      {"spill on disk", FormatBytes(s.host.spill_bytes)},
      {"log on disk", FormatBytes(s.host.log_bytes)},
      {"log appends, writes, syncs",
       absl::StrCat(s.host.log_appends, ", ", s.host.log_writes, ", ", s.host.log_syncs)},
      {"pulls in flight", OfLimit(s.pull_bytes_in_flight, s.pull_bytes_in_flight_max)},
      {"pushes in flight", OfLimit(s.push_bytes_in_flight, s.push_bytes_in_flight_max)},
      {"streams", absl::StrCat(s.streams)},
  };
  if (!s.link.error.empty()) page.facts.emplace_back("coordinator says", s.link.error);
  if (s.host.read_only) page.facts.emplace_back("read-only", s.host.read_only_reason);
  if (s.host.log_refused_bytes > 0) {
    page.facts.emplace_back(
        "log kept for refused shards",
        absl::StrCat(FormatBytes(s.host.log_refused_bytes),
                     ", in addition to --log-bytes-max; see their state below"));
  }
  page.tables.push_back(ShardTable(s.host));
  page.json = JsonOf(s);
  return page;
}

void CollectHostMetrics(const HostStatus& host, std::vector<MetricSample>* samples) {
  for (const HostNumber& number : kHostNumbers) {
    AddSample(number, {}, number.read(host), samples);
  }
  if (!host.device.empty()) {
    for (const HostNumber& number : kDeviceNumbers) {
      AddSample(number, {{"device", host.device}}, number.read(host), samples);
    }
  }
  std::map<std::string, std::vector<const ShardStatus*>> tables;
  for (const ShardStatus& shard : host.shards) tables[shard.table].push_back(&shard);
  for (const auto& [table, shards] : tables) {
    for (const ShardNumber& number : kShardNumbers) {
      uint64_t sum = 0;
      for (const ShardStatus* shard : shards) sum += number.read(*shard);
      AddSample(number, {{"table", table}}, sum, samples);
    }
  }
}

}  // namespace hotbed
