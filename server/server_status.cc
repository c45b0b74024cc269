#include "server/server_status.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/json.h"
#include "config/units.h"

namespace hotbed {
namespace {

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

// JSON: an object written member by member.
class JsonObject {
 public:
  JsonObject& Add(absl::string_view key, absl::string_view text) {
    return AddRaw(key, JsonString(text));
  }
  JsonObject& Add(absl::string_view key, uint64_t number) {
    return AddRaw(key, absl::StrCat(number));
  }
  JsonObject& AddFlag(absl::string_view key, bool flag) {
    return AddRaw(key, flag ? "true" : "false");
  }
  JsonObject& AddRaw(absl::string_view key, absl::string_view json) {
    absl::StrAppend(&text_, text_.empty() ? "" : ",", JsonString(key), ":", json);
    return *this;
  }
  std::string Take() const { return absl::StrCat("{", text_, "}"); }

 private:
  std::string text_;
};

std::string JsonOfShard(const ShardStatus& s) {
  return JsonObject()
      .Add("shard", absl::StrCat(s.shard.table, "/", s.shard.index))
      .Add("table", s.table)
      .Add("epoch", s.epoch)
      .AddFlag("active", s.active)
      .AddFlag("primary", s.primary)
      .Add("copies", s.copies)
      .Add("commit_lsn", s.commit_lsn)
      .Add("bytes", s.bytes)
      .AddFlag("read_only", s.read_only)
      .Add("error", s.error)
      .AddFlag("refused", s.refused)
      .Add("applied_lsn", s.applied_lsn)
      .Add("durable_row_lsn", s.durable_row_lsn)
      .Add("sessions", s.sessions)
      .Add("rows_resident", s.rows_resident)
      .Add("device_rows", s.device_rows)
      .Add("device_bytes", s.device_bytes)
      .Add("device_hits", s.device_hits)
      .Add("hot_bytes", s.hot_bytes)
      .Add("rows_pulled", s.rows_pulled)
      .Add("rows_pushed", s.rows_pushed)
      .Add("hot_hits", s.hot_hits)
      .Add("hot_misses", s.hot_misses)
      .Add("evictions", s.evictions)
      .Add("writebacks", s.writebacks)
      .Take();
}

std::string JsonOf(const ServerSnapshot& s) {
  const HostStatus& h = s.host;
  const std::string shards =
      absl::StrCat("[",
                   absl::StrJoin(h.shards, ",",
                                 [](std::string* out, const ShardStatus& shard) {
                                   absl::StrAppend(out, JsonOfShard(shard));
                                 }),
                   "]");
  return JsonObject()
      .Add("name", s.name)
      .Add("data_address", s.data_address)
      .Add("admin_address", s.admin_address)
      .AddFlag("ready", s.ready)
      .Add("server", absl::StrCat(s.link.server))  // 64 bits do not fit a JSON number everywhere
      .Add("incarnation", s.link.incarnation)
      .Add("cluster_id", s.link.cluster_id)
      .AddFlag("registered", s.link.registered)
      .Add("plan_revision", s.link.plan_revision)
      .Add("registrations", s.link.registrations)
      .Add("coordinator_error", s.link.error)
      .Add("host_bytes_limit", h.host_bytes_limit)
      .Add("hot_bytes_limit", h.hot_bytes_limit)
      .Add("hot_bytes", h.hot_bytes)
      .Add("device", h.device)
      .Add("device_bytes_limit", h.device_bytes_limit)
      .Add("device_bytes", h.device_bytes)
      .Add("device_pinned_bytes", h.device_pinned_bytes)
      .Add("device_rows_direct_bytes", h.device_rows_direct_bytes)
      .Add("device_rows_copied_bytes", h.device_rows_copied_bytes)
      .Add("device_error", h.device_error)
      .Add("block_cache_bytes", h.block_cache_bytes)
      .Add("memtable_bytes", h.memtable_bytes)
      .Add("spill_bytes", h.spill_bytes)
      .Add("log_bytes", h.log_bytes)
      .Add("staged_bytes", h.staged_bytes)
      .Add("log_refused_bytes", h.log_refused_bytes)
      .Add("checkpoints", h.checkpoints)
      .Add("log_appends", h.log_appends)
      .Add("log_writes", h.log_writes)
      .Add("log_syncs", h.log_syncs)
      .AddFlag("read_only", h.read_only)
      .Add("read_only_reason", h.read_only_reason)
      .Add("pull_bytes_in_flight", s.pull_bytes_in_flight)
      .Add("pull_bytes_in_flight_max", s.pull_bytes_in_flight_max)
      .Add("push_bytes_in_flight", s.push_bytes_in_flight)
      .Add("push_bytes_in_flight_max", s.push_bytes_in_flight_max)
      .Add("streams", s.streams)
      .AddRaw("shards", shards)
      .Take();
}

void AddSample(const char* name, const char* help, MetricSample::Type type, Labels labels,
               double value, std::vector<MetricSample>* samples) {
  MetricSample sample;
  sample.name = name;
  sample.help = help;
  sample.type = type;
  sample.labels = std::move(labels);
  sample.value = value;
  samples->push_back(std::move(sample));
}

void CollectLogMetrics(const HostStatus& host, std::vector<MetricSample>* samples) {
  const auto gauge = MetricSample::Type::kGauge;
  const auto counter = MetricSample::Type::kCounter;
  AddSample("hotbed_server_staged_bytes",
            "Pushes to synchronous tables that wait for their step's commit.", gauge, {},
            host.staged_bytes, samples);
  AddSample("hotbed_server_log_appends_total", "Records appended to the log.", counter, {},
            host.log_appends, samples);
  AddSample("hotbed_server_log_writes_total", "Group writes of the log.", counter, {},
            host.log_writes, samples);
  AddSample("hotbed_server_log_syncs_total", "Syncs of the log.", counter, {}, host.log_syncs,
            samples);
}

void CollectDeviceMetrics(const HostStatus& host, std::vector<MetricSample>* samples) {
  if (host.device.empty()) return;
  const auto gauge = MetricSample::Type::kGauge;
  const Labels labels = {{"device", host.device}};
  AddSample("hotbed_server_device_bytes", "Device memory taken, for rows, index and messages.",
            gauge, labels, host.device_bytes, samples);
  AddSample("hotbed_server_device_limit_bytes", "Device memory that the server has.", gauge, labels,
            host.device_bytes_limit, samples);
  AddSample("hotbed_server_device_pinned_bytes", "Memory of answers that the device copies into.",
            gauge, labels, host.device_pinned_bytes, samples);
  const auto counter = MetricSample::Type::kCounter;
  AddSample("hotbed_server_device_rows_direct_bytes_total",
            "Bytes of rows that the device copied straight into answers.", counter, labels,
            host.device_rows_direct_bytes, samples);
  AddSample("hotbed_server_device_rows_copied_bytes_total",
            "Bytes of rows from the device that were copied once more on the host.", counter,
            labels, host.device_rows_copied_bytes, samples);
  AddSample("hotbed_server_device_failed", "1 once the device has failed: start the server anew.",
            gauge, labels, host.device_error.empty() ? 0 : 1, samples);
}

// Of copies on other servers, and of those held for them.
void CollectCopyMetrics(const HostStatus& host, std::vector<MetricSample>* samples) {
  const auto counter = MetricSample::Type::kCounter;
  const auto gauge = MetricSample::Type::kGauge;
  AddSample("hotbed_server_records_sent_total", "Log records sent to other copies.", counter, {},
            host.records_sent, samples);
  AddSample("hotbed_server_records_taken_total", "Log records taken from primaries.", counter, {},
            host.records_taken, samples);
  AddSample("hotbed_server_copies_sent_total", "Whole shards copied to other servers.", counter, {},
            host.copies_sent, samples);
  AddSample("hotbed_server_copies_received_total", "Whole shards copied from other servers.",
            counter, {}, host.copies_received, samples);
  AddSample("hotbed_server_copies_failed_total", "Copies of whole shards that were broken off.",
            counter, {}, host.copies_failed, samples);
  AddSample("hotbed_server_copied_sent_bytes_total", "Of whole shards, to other servers.", counter,
            {}, host.copied_bytes_sent, samples);
  AddSample("hotbed_server_replicas_diverged_total",
            "Shards whose rolling hash was found to differ from their primary's.", counter, {},
            host.replicas_diverged, samples);
  AddSample("hotbed_server_copied_received_bytes_total", "Of whole shards, from other servers.",
            counter, {}, host.copied_bytes_received, samples);
  AddSample("hotbed_server_replica_messages_refused_total",
            "Records of other copies that were damaged or not of the shard; asked for again.",
            counter, {}, host.replica_messages_refused, samples);
  uint64_t lag = 0;
  uint64_t followers = 0;
  for (const ShardStatus& s : host.shards) {
    lag = std::max(lag, s.commit_lsn - std::min(s.commit_lsn, s.applied_lsn));
    followers += s.copies;
  }
  AddSample("hotbed_server_commit_lag_records",
            "Committed and not yet applied, of the shard that is furthest behind.", gauge, {}, lag,
            samples);
  AddSample("hotbed_server_followers", "Copies that acknowledgements of shards here wait for.",
            gauge, {}, followers, samples);
  AddSample("hotbed_server_copy_rate_limit_bytes",
            "Bytes a second that copies of whole shards may take now; 0: no limit.", gauge, {},
            host.copy_rate_now, samples);
  AddSample("hotbed_server_replica_tail_limit_bytes", "What these may take.", gauge, {},
            host.replica_tail_bytes_limit, samples);
  AddSample("hotbed_server_replica_tail_bytes", "Records kept in memory for other copies.", gauge,
            {}, host.replica_tail_bytes, samples);
}

void CollectTableMetrics(const HostStatus& host, std::vector<MetricSample>* samples) {
  struct Sums {
    uint64_t shards = 0, resident = 0, hot_bytes = 0, pulled = 0, pushed = 0;
    uint64_t hits = 0, misses = 0, evictions = 0, writebacks = 0;
    uint64_t device_rows = 0, device_hits = 0;
  };
  std::map<std::string, Sums> tables;
  for (const ShardStatus& s : host.shards) {
    Sums& sums = tables[s.table];
    ++sums.shards;
    sums.resident += s.rows_resident;
    sums.hot_bytes += s.hot_bytes;
    sums.pulled += s.rows_pulled;
    sums.pushed += s.rows_pushed;
    sums.device_rows += s.device_rows;
    sums.device_hits += s.device_hits;
    sums.hits += s.hot_hits;
    sums.misses += s.hot_misses;
    sums.evictions += s.evictions;
    sums.writebacks += s.writebacks;
  }
  const auto gauge = MetricSample::Type::kGauge;
  const auto counter = MetricSample::Type::kCounter;
  for (const auto& [name, sums] : tables) {
    const Labels labels = {{"table", name}};
    AddSample("hotbed_table_shards", "Shards held.", gauge, labels, sums.shards, samples);
    AddSample("hotbed_table_resident_rows", "Rows in the hot tier, the device's too.", gauge,
              labels, sums.resident, samples);
    AddSample("hotbed_table_device_rows", "Of these, rows in device memory.", gauge, labels,
              sums.device_rows, samples);
    AddSample("hotbed_table_hot_bytes",
              "Memory of resident rows with their overhead, without the device's.", gauge, labels,
              sums.hot_bytes, samples);
    AddSample("hotbed_table_pulled_rows_total", "Rows read.", counter, labels, sums.pulled,
              samples);
    AddSample("hotbed_table_pushed_rows_total", "Gradient rows applied.", counter, labels,
              sums.pushed, samples);
    AddSample("hotbed_table_hot_hits_total", "Row accesses served from memory.", counter, labels,
              sums.hits, samples);
    AddSample("hotbed_table_device_hits_total", "Of these, served from device memory.", counter,
              labels, sums.device_hits, samples);
    AddSample("hotbed_table_hot_misses_total", "Row accesses that went below the hot tier.",
              counter, labels, sums.misses, samples);
    AddSample("hotbed_table_evictions_total", "Rows evicted from memory.", counter, labels,
              sums.evictions, samples);
    AddSample("hotbed_table_writebacks_total", "Rows written to the spill tier.", counter, labels,
              sums.writebacks, samples);
  }
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
    page.facts.emplace_back("log kept for refused shards",
                            absl::StrCat(FormatBytes(s.host.log_refused_bytes),
                                         ", beside --log-bytes-max; see their state below"));
  }
  page.tables.push_back(ShardTable(s.host));
  page.json = JsonOf(s);
  return page;
}

void CollectHostMetrics(const HostStatus& host, std::vector<MetricSample>* samples) {
  CollectTableMetrics(host, samples);
  uint64_t refused = 0;
  for (const ShardStatus& s : host.shards) refused += s.refused;
  const auto gauge = MetricSample::Type::kGauge;
  const auto counter = MetricSample::Type::kCounter;
  AddSample("hotbed_server_host_limit_bytes", "The memory budget.", gauge, {},
            host.host_bytes_limit, samples);
  AddSample("hotbed_server_hot_bytes", "Memory of the hot tier.", gauge, {}, host.hot_bytes,
            samples);
  AddSample("hotbed_server_hot_limit_bytes", "What the hot tier may take.", gauge, {},
            host.hot_bytes_limit, samples);
  AddSample("hotbed_server_spill_bytes", "Disk taken by spilled rows.", gauge, {}, host.spill_bytes,
            samples);
  AddSample("hotbed_server_spill_renewals_total",
            "Times that a damaged spill tier began anew, its copies to come from others.", counter,
            {}, host.spill_renewals, samples);
  AddSample("hotbed_server_log_bytes", "Disk taken by the log.", gauge, {}, host.log_bytes,
            samples);
  AddSample("hotbed_server_log_refused_bytes",
            "Disk of the log that is kept for refused shards alone, beside --log-bytes-max.", gauge,
            {}, host.log_refused_bytes, samples);
  AddSample("hotbed_server_shards_refused",
            "Shards that are not served until a restart: damage was found.", gauge, {}, refused,
            samples);
  AddSample("hotbed_server_checkpoints_total", "Copies kept of the tables of class checkpoint.",
            counter, {}, host.checkpoints, samples);
  CollectLogMetrics(host, samples);
  CollectDeviceMetrics(host, samples);
  CollectCopyMetrics(host, samples);
  AddSample("hotbed_server_read_only", "1 while no push is acknowledged.", gauge, {},
            host.read_only ? 1 : 0, samples);
}

}  // namespace hotbed
