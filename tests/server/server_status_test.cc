#include "server/server_status.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "nlohmann/json.hpp"

namespace hotbed {
namespace server_status_test {

ShardStatus StatusOfShard(ShardId id, const std::string& table, uint64_t rows_pulled) {
  ShardStatus shard;
  shard.shard = id;
  shard.table = table;
  shard.rows_pulled = rows_pulled;
  shard.followers = 2;
  shard.commit_lsn = 10;
  shard.applied_lsn = 7;
  return shard;
}

const MetricSample* Find(const std::vector<MetricSample>& samples, const std::string& name,
                         const Labels& labels) {
  for (const MetricSample& sample : samples) {
    if (sample.name == name && sample.labels == labels) return &sample;
  }
  return nullptr;
}

HostStatus TwoTables() {
  HostStatus host;
  for (const char* key : {"hot_bytes", "hot_bytes_limit", "host_bytes_limit", "spill_bytes",
                          "log_refused_bytes", "log_appends", "log_writes", "log_syncs"}) {
    host.numbers.Add(key, "", "", 1);
  }
  host.numbers.Add("log_bytes", "hotbed_server_log_bytes", "Disk taken by the log.", 77);
  host.read_only = true;
  host.shards = {StatusOfShard({1, 0}, "a", 3), StatusOfShard({1, 1}, "a", 4),
                 StatusOfShard({2, 0}, "b", 5)};
  return host;
}

TEST(ServerStatusTest, MetricsSumShardsPerTable) {
  std::vector<MetricSample> samples;
  CollectHostMetrics(TwoTables(), &samples);
  const auto value = [&](const std::string& name, const Labels& labels) {
    const MetricSample* const sample = Find(samples, name, labels);
    return sample == nullptr ? -1.0 : sample->value;
  };
  EXPECT_EQ(value("hotbed_table_pulled_rows_total", {{"table", "a"}}), 7);
  EXPECT_EQ(value("hotbed_table_pulled_rows_total", {{"table", "b"}}), 5);
  EXPECT_EQ(value("hotbed_table_shards", {{"table", "a"}}), 2);
  EXPECT_EQ(value("hotbed_server_log_bytes", {}), 77);
  EXPECT_EQ(value("hotbed_server_read_only", {}), 1);
  EXPECT_EQ(value("hotbed_server_followers", {}), 6);
  EXPECT_EQ(value("hotbed_server_commit_lag_records", {}), 3);
  EXPECT_EQ(Find(samples, "hotbed_table_pulled_rows_total", {{"table", "a"}})->type,
            MetricSample::Type::kCounter);
}

TEST(ServerStatusTest, JsonHasTheNumbersOfHostAndShards) {
  ServerSnapshot snapshot;
  snapshot.name = "s1\xff";  // not UTF-8: replaced, not refused
  snapshot.host = TwoTables();
  snapshot.link.server = 18446744073709551615u;
  const auto json = nlohmann::json::parse(RenderStatus(snapshot).json);
  EXPECT_EQ(json["server"], "18446744073709551615");
  EXPECT_EQ(json["log_bytes"], 77);
  EXPECT_EQ(json["read_only"], true);
  EXPECT_EQ(json["kernels"], KernelsText());
  ASSERT_EQ(json["shards"].size(), 3u);
  EXPECT_EQ(json["shards"][1]["shard"], "1/1");
  EXPECT_EQ(json["shards"][1]["rows_pulled"], 4);
  EXPECT_EQ(json["shards"][1]["refused"], false);
}

// "name: found" of the conditions that do not hold.
std::string WhatIsBroken(const ReadyFacts& facts) {
  std::string broken;
  for (const ReadyCondition& condition : ReadyConditions(facts)) {
    if (!condition.holds) broken += condition.name + ": " + condition.found + "\n";
  }
  return broken;
}

TEST(ServerStatusTest, ReadyIsWhatAClientWouldFind) {
  ReadyFacts facts;
  facts.now_ns = 5'000'000'000;
  EXPECT_EQ(WhatIsBroken(facts), "lease: not registered at the coordinator yet\n");
  facts.link.registrations = 1;
  EXPECT_EQ(WhatIsBroken(facts), "lease: the coordinator has given none yet, or ended it\n");
  facts.link.lease_until_ns = 7'000'000'000;
  EXPECT_EQ(WhatIsBroken(facts), "");
  facts.link.lease_until_ns = 2'000'000'000;
  facts.link.error = "connection refused";
  EXPECT_EQ(WhatIsBroken(facts), "lease: ran out 3.0 s ago: connection refused\n");
  facts.link.lease_until_ns = 7'000'000'000;
  facts.primaries = {4, 1, 0, ""};
  EXPECT_EQ(WhatIsBroken(facts),
            "shards: 4 with the primary here, 1 are being recovered or wait for activation\n");
  facts.primaries = {4, 0, 3, "block 7 fails its checksum"};
  EXPECT_EQ(WhatIsBroken(facts), "") << "one of them serves";
  facts.primaries.refused = 4;
  EXPECT_EQ(WhatIsBroken(facts),
            "shards: 4 with the primary here, 4 refused, the first: block 7 fails its checksum\n");
  facts.primaries = {};
  facts.device_error = "the device is lost";
  facts.stopping = true;
  EXPECT_EQ(WhatIsBroken(facts), "server: stopping\ndevice: the device is lost\n");
}

}  // namespace server_status_test
}  // namespace hotbed
