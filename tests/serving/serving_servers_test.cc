#include "planner/coordinator/serving/serving_servers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>

namespace hotbed {
namespace serving_servers_test {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kSecond = 1'000'000'000;

v1::ServingReport ReportOf(const std::string& name, uint64_t run, uint64_t bytes_max = 1 << 30) {
  v1::ServingReport report;
  report.set_name(name);
  report.set_run(run);
  report.set_address("127.0.0.1:1");
  report.set_bytes_max(bytes_max);
  return report;
}

v1::TableSpec SpecOf(TableId id, uint64_t rows) {
  v1::TableSpec spec;
  spec.set_id(id);
  spec.set_name(absl::StrCat("t", id));
  spec.set_rows(rows);
  spec.set_dim(64);
  return spec;
}

v1::ServedTable ServedOf(TableId id, uint32_t replicas) {
  v1::ServedTable table;
  table.set_table(id);
  table.set_format(v1::SERVED_INT8);
  table.set_replicas(replicas);
  return table;
}

TEST(ServingServersTest, TablesGoToTheLeastFilledServersWithRoom) {
  ServingServers servers({});
  servers.Begin(0);
  ASSERT_TRUE(servers.OnReport(0, ReportOf("a", 1, 100 << 20)).ok());
  ASSERT_TRUE(servers.OnReport(0, ReportOf("b", 2, 100 << 20)).ok());
  ASSERT_TRUE(servers.OnReport(0, ReportOf("small", 3, 1 << 20)).ok());
  ServedTables tables;
  TableSpecs specs;
  for (TableId id = 1; id <= 2; ++id) {
    specs[id] = SpecOf(id, 500'000);  // 40 MB
    v1::ServedTable table = ServedOf(id, 1);
    EXPECT_TRUE(servers.Place(0, tables, specs[id], &table));
    tables[id] = table;
  }
  EXPECT_THAT(tables[1].servers(), ElementsAre("a"));
  EXPECT_THAT(tables[2].servers(), ElementsAre("b"));
  // Two replicas are never on one server, and none goes where there is no room.
  v1::ServedTable large = ServedOf(3, 3);
  servers.Place(0, tables, SpecOf(3, 500'000), &large);
  EXPECT_THAT(large.servers(), testing::UnorderedElementsAre("a", "b"));
  EXPECT_THAT(servers.OrdersFor(0, "a", tables, specs).tables(),
              ElementsAre(testing::Property(&v1::ServedTable::table, 1)));
}

// The first ready copy of a part feeds the others; while none is ready, the first that may be.
TEST(ServingServersTest, OneCopyOfEachPartFeedsTheOthers) {
  ServingServers servers({.alive_ns = 10});
  servers.Begin(0);
  ServedTables tables;
  const TableSpecs specs = {{1, SpecOf(1, 1000)}};
  tables[1] = ServedOf(1, 3);
  for (const char* name : {"a", "b", "c"}) tables[1].add_servers(name);
  const auto report = [&](int64_t now_ns, const std::string& name, bool ready, uint64_t full = 0) {
    v1::ServingReport one = ReportOf(name, 1);
    one.set_address(absl::StrCat("127.0.0.1:", static_cast<int>(name[0])));
    v1::ReplicaReport& copy = *one.add_replicas();
    copy.set_table(1);
    copy.set_format(v1::SERVED_INT8);
    copy.set_ready(ready);
    copy.set_full_bytes(full);
    EXPECT_TRUE(servers.OnReport(now_ns, one).ok());
  };
  const auto feeder = [&](int64_t now_ns, const std::string& name) {
    const v1::ServingOrders orders = servers.OrdersFor(now_ns, name, tables, specs);
    EXPECT_EQ(orders.feeders_size(), 1);
    return orders.feeders(0);
  };
  EXPECT_EQ(feeder(0, "b"), "");  // none has reported
  for (const char* name : {"a", "b", "c"}) report(0, name, false, *name == 'a' ? 5 : 0);
  EXPECT_EQ(feeder(0, "a"), "127.0.0.1:98");  // a is too small for its copy
  EXPECT_EQ(feeder(0, "b"), "");
  EXPECT_EQ(feeder(0, "c"), "127.0.0.1:98");
  report(0, "c", true);
  EXPECT_EQ(feeder(0, "a"), "127.0.0.1:99");
  EXPECT_EQ(feeder(0, "b"), "127.0.0.1:99");
  EXPECT_EQ(feeder(0, "c"), "");
  report(1, "b", true);
  EXPECT_EQ(feeder(1, "c"), "127.0.0.1:98");
  EXPECT_EQ(feeder(1, "b"), "");
  report(9, "c", true);
  EXPECT_EQ(feeder(12, "c"), "");  // b is silent
  tables[1].set_parts(2);          // no copy has been reported of a part
  for (const uint32_t part : {0, 1, 1}) tables[1].add_server_parts(part);
  report(20, "b", true);
  report(20, "c", true);
  EXPECT_EQ(feeder(20, "b"), "");
  EXPECT_EQ(feeder(20, "c"), "127.0.0.1:98");
}

// So that as few copies as possible read from another failure domain.
TEST(ServingServersTest, TheFeederIsInTheDomainWithTheMostCopies) {
  ServingServers servers({});
  servers.Begin(0);
  ServedTables tables = {{1, ServedOf(1, 3)}};
  const TableSpecs specs = {{1, SpecOf(1, 1000)}};
  const auto report = [&](const std::string& name, const std::string& domain) {
    v1::ServingReport one = ReportOf(name, 1);
    one.set_address(absl::StrCat("127.0.0.1:", static_cast<int>(name[0])));
    one.set_failure_domain(domain);
    v1::ReplicaReport& copy = *one.add_replicas();
    copy.set_table(1);
    copy.set_format(v1::SERVED_INT8);
    copy.set_ready(true);
    ASSERT_TRUE(servers.OnReport(0, one).ok());
    tables[1].add_servers(name);
  };
  const auto feeder = [&](const std::string& name) {
    return servers.OrdersFor(0, name, tables, specs).feeders(0);
  };
  report("a", "z1");
  report("b", "z2");
  EXPECT_EQ(feeder("b"), "127.0.0.1:97");
  report("c", "z2");
  EXPECT_EQ(feeder("a"), "127.0.0.1:98");
  EXPECT_EQ(feeder("b"), "");
  EXPECT_EQ(feeder("c"), "127.0.0.1:98");
}

TEST(ServingServersTest, AServerThatIsAwayForGoodIsReplacedIfAnotherHasRoom) {
  ServingServers servers({});
  servers.Begin(0);
  ASSERT_TRUE(servers.OnReport(0, ReportOf("a", 1)).ok());
  const v1::TableSpec spec = SpecOf(1, 1000);
  v1::ServedTable table = ServedOf(1, 1);
  ASSERT_TRUE(servers.Place(0, {}, spec, &table));
  ServedTables tables = {{1, table}};
  const TableSpecs specs = {{1, spec}};
  // Nobody could take it.
  EXPECT_TRUE(servers.Changes(20 * kSecond, tables, specs).empty());
  ASSERT_TRUE(servers.OnReport(20 * kSecond, ReportOf("b", 2)).ok());
  const auto changes = servers.Changes(20 * kSecond, tables, specs);
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_THAT(changes[0].servers(), ElementsAre("b"));
  // A coordinator that begins to lead waits for reports.
  servers.Begin(21 * kSecond);
  EXPECT_TRUE(servers.Changes(21 * kSecond, tables, specs).empty());
  // Within the time it may come back.
  ASSERT_TRUE(servers.OnReport(22 * kSecond, ReportOf("a", 1)).ok());
  EXPECT_TRUE(servers.Changes(31 * kSecond, tables, specs).empty());
}

TEST(ServingServersTest, CopiesAreSpreadOverFailureDomains) {
  ServingServers servers({});
  servers.Begin(0);
  // By memory alone, "a" and "b" would come first.
  for (const auto& [name, domain, room] :
       {std::tuple("a", "z1", 90 << 20), std::tuple("b", "z1", 80 << 20),
        std::tuple("c", "z2", 50 << 20), std::tuple("d", "z3", 1 << 20)}) {
    v1::ServingReport report = ReportOf(name, 1, room);
    report.set_failure_domain(domain);
    ASSERT_TRUE(servers.OnReport(0, report).ok());
  }
  const v1::TableSpec spec = SpecOf(1, 500'000);  // 40 MB: none for "d"
  v1::ServedTable table = ServedOf(1, 2);
  ASSERT_TRUE(servers.Place(0, {}, spec, &table));
  EXPECT_THAT(table.servers(), ElementsAre("a", "c"));
  // Where no other is left, two copies are in one.
  table.set_replicas(3);
  ASSERT_TRUE(servers.Place(0, {{1, table}}, spec, &table));
  EXPECT_THAT(table.servers(), ElementsAre("a", "c", "b"));
  EXPECT_EQ(servers.Map(0, {}, {}).servers(2).failure_domain(), "z2");
  v1::ServingReport report = ReportOf("e", 1);
  report.set_failure_domain(std::string(201, 'z'));
  EXPECT_EQ(servers.OnReport(0, report).code(), absl::StatusCode::kInvalidArgument);
}

// A server in `domain` that has table 1, ready or not, and holds version 7 or not.
v1::ServingReport ReportOfCopy(const std::string& name, const std::string& domain, bool ready,
                               bool holds) {
  v1::ServingReport report = ReportOf(name, 1);
  report.set_failure_domain(domain);
  v1::ReplicaReport& replica = *report.add_replicas();
  replica.set_table(1);
  replica.set_format(v1::SERVED_INT8);
  replica.set_bytes(1000);
  replica.set_ready(ready);
  if (!ready) return report;
  v1::VersionReport& version = *replica.add_versions();
  version.set_number(7);
  version.set_held(holds);
  return report;
}

TEST(ServingServersTest, CopiesOfOneDomainAreSpreadWhenAnotherComes) {
  ServingServers servers({});
  servers.Begin(0);
  const v1::TableSpec spec = SpecOf(1, 1000);
  v1::ServedTable table = ServedOf(1, 2);
  const auto report = [&](const std::string& name, const std::string& domain, bool ready,
                          bool holds) {
    ASSERT_TRUE(servers.OnReport(0, ReportOfCopy(name, domain, ready, holds)).ok());
  };
  const auto place = [&] { return servers.Place(0, {{1, table}}, spec, &table); };
  report("a", "z1", true, true);
  report("b", "z1", false, false);
  ASSERT_TRUE(place());
  ASSERT_THAT(table.servers(), testing::UnorderedElementsAre("a", "b"));
  v1::ServingReport other = ReportOf("c", 1);
  other.set_failure_domain("z2");
  ASSERT_TRUE(servers.OnReport(0, other).ok());
  EXPECT_FALSE(place()) << "while a copy loads, it is waited for";
  report("b", "z1", true, true);
  ASSERT_TRUE(place());
  EXPECT_EQ(table.servers_size(), 3);
  report("c", "z2", false, false);
  EXPECT_FALSE(place()) << "the further copy loads";
  report("c", "z2", true, false);
  EXPECT_FALSE(place()) << "the further copy lacks a version";
  report("c", "z2", true, true);
  ASSERT_TRUE(place());
  EXPECT_THAT(table.servers(), testing::UnorderedElementsAre(testing::AnyOf("a", "b"), "c"));
  EXPECT_FALSE(place()) << "nothing is left to do";
}

TEST(ServingServersTest, AFurtherCopyThatDoesNotFitOrIsLostGoesAgain) {
  ServingServers servers({});
  servers.Begin(0);
  const v1::TableSpec spec = SpecOf(1, 1000);
  v1::ServedTable spread = ServedOf(1, 2);
  for (const char* name : {"a", "b", "c"}) spread.add_servers(name);
  // The leader has heard of one server only: the others may be ready.
  ASSERT_TRUE(servers.OnReport(0, ReportOfCopy("a", "z1", true, true)).ok());
  v1::ServedTable table = spread;
  EXPECT_FALSE(servers.Place(0, {}, spec, &table));
  ASSERT_TRUE(servers.OnReport(0, ReportOfCopy("b", "z1", true, true)).ok());
  v1::ServingReport full = ReportOfCopy("c", "z2", false, false);
  full.set_bytes_max(900);
  full.mutable_replicas(0)->set_full_bytes(1000);
  ASSERT_TRUE(servers.OnReport(0, full).ok());
  ASSERT_TRUE(servers.Place(0, {}, spec, &table));
  EXPECT_THAT(table.servers(), ElementsAre("a", "b"));
  EXPECT_FALSE(servers.Place(0, {}, spec, &table)) << "it does not fit there";
  // It dies while it loads.
  for (const char* name : {"a", "b"}) {
    ASSERT_TRUE(servers.OnReport(20 * kSecond, ReportOfCopy(name, "z1", true, true)).ok());
  }
  table = spread;
  ASSERT_TRUE(servers.Place(20 * kSecond, {}, spec, &table));
  EXPECT_THAT(table.servers(), ElementsAre("a", "b"));
}

TEST(ServingServersTest, ATableThatFitsNoServerIsCutOverSeveral) {
  ServingServers servers({});
  servers.Begin(0);
  for (const char* name : {"a", "b", "c", "d", "e"}) {
    ASSERT_TRUE(servers.OnReport(0, ReportOf(name, 1, 20 << 20)).ok());
  }
  const v1::TableSpec spec = SpecOf(1, 500'000);  // 40 MB
  v1::ServedTable table = ServedOf(1, 2);
  ASSERT_TRUE(servers.Place(0, {}, spec, &table));
  EXPECT_EQ(table.parts(), 2u);
  // A first copy of each part, then the second ones; a server has one part at most.
  EXPECT_THAT(table.server_parts(), ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(table.servers(), ElementsAre("a", "b", "c", "d"));
  EXPECT_FALSE(servers.Place(0, {{1, table}}, spec, &table));
  // One more copy of each part, as far as there are servers; then one of each.
  table.set_replicas(3);
  ASSERT_TRUE(servers.Place(0, {{1, table}}, spec, &table));
  EXPECT_THAT(table.server_parts(), ElementsAre(0, 1, 0, 1, 0));
  table.set_replicas(1);
  ASSERT_TRUE(servers.Place(0, {{1, table}}, spec, &table));
  EXPECT_THAT(table.servers(), ElementsAre("a", "b"));
  EXPECT_THAT(table.server_parts(), ElementsAre(0, 1));
}

TEST(ServingServersTest, ATableOfUnknownSizeIsCutFurtherUntilItsPartsFit) {
  ServingServers servers({});
  servers.Begin(0);
  const auto report = [&](const std::string& name, const v1::ServedTable& table, bool full) {
    v1::ServingReport said = ReportOf(name, 1, 20 << 20);
    if (const auto part = ServedPartOn(table, name)) {
      v1::ReplicaReport& replica = *said.add_replicas();
      replica.set_table(1);
      replica.set_format(table.format());
      replica.set_part(part->part);
      replica.set_parts(part->parts);
      replica.set_full_bytes(full ? 20 << 20 : 0);
    }
    ASSERT_TRUE(servers.OnReport(0, said).ok());
  };
  v1::TableSpec spec = SpecOf(1, 0);
  spec.set_hashed(true);
  v1::ServedTable table = ServedOf(1, 1);
  for (const char* name : {"a", "b", "c"}) report(name, table, false);
  ASSERT_TRUE(servers.Place(0, {}, spec, &table));
  EXPECT_THAT(table.servers(), ElementsAre("a"));
  for (const uint32_t parts : {2, 3}) {
    EXPECT_FALSE(servers.Place(0, {{1, table}}, spec, &table)) << "it loads still";
    report(table.servers(0), table, true);
    ASSERT_TRUE(servers.Place(0, {{1, table}}, spec, &table));
    EXPECT_EQ(table.parts(), parts);
    EXPECT_EQ(table.servers_size(), static_cast<int>(parts));
    for (const char* name : {"a", "b", "c"}) report(name, table, false);
  }
  // There are no more servers.
  report("b", table, true);
  EXPECT_FALSE(servers.Place(0, {{1, table}}, spec, &table));
}

TEST(ServingServersTest, ServersWithADiskTakeWhatFitsNoMemory) {
  ServingServers servers({});
  servers.Begin(0);
  ASSERT_TRUE(servers.OnReport(0, ReportOf("a", 1, 20 << 20)).ok());
  const v1::TableSpec spec = SpecOf(1, 500'000);  // 40 MB
  v1::ServedTable table = ServedOf(1, 1);
  EXPECT_FALSE(servers.Place(0, {}, spec, &table));
  v1::ServingReport disk = ReportOf("b", 1, 10 << 20);
  disk.set_has_disk(true);
  ASSERT_TRUE(servers.OnReport(0, disk).ok());
  // The memory of both together would not suffice for two parts.
  ASSERT_TRUE(servers.Place(0, {}, spec, &table));
  EXPECT_THAT(table.servers(), ElementsAre("b"));
  EXPECT_LE(table.parts(), 1u);
  // Where it does, the table is cut.
  disk.set_bytes_max(21 << 20);
  ASSERT_TRUE(servers.OnReport(0, disk).ok());
  v1::ServedTable cut = ServedOf(1, 1);
  ASSERT_TRUE(servers.Place(0, {}, spec, &cut));
  EXPECT_THAT(cut.servers(), testing::UnorderedElementsAre("a", "b"));
  EXPECT_EQ(cut.parts(), 2u);
}

TEST(ServingServersTest, AVersionNeedsAllParts) {
  ServingServers servers({});
  servers.Begin(0);
  v1::ServedTable table = ServedOf(1, 1);
  table.set_parts(2);
  v1::ServedVersion version;
  version.set_number(5);
  version.add_tables(1);
  const auto report = [&](const std::string& name, uint32_t part, uint32_t parts) {
    v1::ServingReport said = ReportOf(name, 1);
    v1::ReplicaReport& replica = *said.add_replicas();
    replica.set_table(1);
    replica.set_part(part);
    replica.set_parts(parts);
    v1::VersionReport& held = *replica.add_versions();
    held.set_number(5);
    held.set_held(true);
    ASSERT_TRUE(servers.OnReport(3 * kSecond, said).ok());
  };
  table.add_servers("a");
  table.add_server_parts(0);
  report("a", 0, 2);
  EXPECT_FALSE(servers.AllHold(4 * kSecond, version, {{1, table}})) << "part 2 is nowhere";
  table.add_servers("b");
  table.add_server_parts(1);
  report("b", 0, 1);
  EXPECT_FALSE(servers.AllHold(4 * kSecond, version, {{1, table}})) << "of another cut";
  report("b", 1, 2);
  EXPECT_TRUE(servers.AllHold(4 * kSecond, version, {{1, table}}));
}

TEST(ServingServersTest, ReplicasFollowTheNumberThatIsWanted) {
  ServingServers servers({});
  servers.Begin(0);
  for (const char* name : {"a", "b", "c"}) {
    ASSERT_TRUE(servers.OnReport(0, ReportOf(name, 1)).ok());
  }
  const v1::TableSpec spec = SpecOf(1, 1000);
  v1::ServedTable table = ServedOf(1, 3);
  ASSERT_TRUE(servers.Place(0, {}, spec, &table));
  EXPECT_EQ(table.servers_size(), 3);
  table.set_replicas(1);
  ASSERT_TRUE(servers.Place(0, {{1, table}}, spec, &table));
  EXPECT_EQ(table.servers_size(), 1);
  EXPECT_FALSE(servers.Place(0, {{1, table}}, spec, &table));
  // A table that was dropped is served no more.
  const auto changes = servers.Changes(0, {{1, table}}, {});
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].replicas(), 0u);
}

TEST(ServingServersTest, ANameIsOfOneProcess) {
  ServingServers servers({});
  ASSERT_TRUE(servers.OnReport(0, ReportOf("a", 1)).ok());
  const absl::Status second = servers.OnReport(kSecond, ReportOf("a", 2));
  EXPECT_EQ(second.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(second.message(), HasSubstr("--name"));
  EXPECT_TRUE(servers.OnReport(5 * kSecond, ReportOf("a", 2)).ok());
  v1::ServingReport stopping = ReportOf("a", 2);
  stopping.set_stopping(true);
  EXPECT_TRUE(servers.OnReport(5 * kSecond, stopping).ok());
  EXPECT_TRUE(servers.OnReport(5 * kSecond, ReportOf("a", 3)).ok());
  EXPECT_EQ(servers.OnReport(0, ReportOf("a b", 1)).code(), absl::StatusCode::kInvalidArgument);
  v1::ServingReport nowhere = ReportOf("c", 1);
  nowhere.set_address("127.0.0.1");
  EXPECT_EQ(servers.OnReport(0, nowhere).code(), absl::StatusCode::kInvalidArgument);
}

TEST(ServingServersTest, ATableThatFindsNoServerIsPlacedWhenSomethingHasChanged) {
  ServingServers servers({});
  servers.Begin(0);
  ServedTables tables = {{1, ServedOf(1, 1)}};
  const TableSpecs specs = {{1, SpecOf(1, 500'000)}, {2, SpecOf(2, 1000)}};
  const auto report = [&](int64_t now_ns, uint64_t bytes_max, uint64_t bytes) {
    v1::ServingReport said = ReportOf("a", 1, bytes_max);
    v1::ReplicaReport& other = *said.add_replicas();
    other.set_table(2);
    other.set_ready(true);
    other.set_bytes(bytes);
    ASSERT_TRUE(servers.OnReport(now_ns, said).ok());
  };
  const auto needs = [&](int64_t now_ns, const std::string& revision = "7") {
    return servers.NeedsPlacing(now_ns, revision, tables, specs);
  };
  tables[2] = ServedOf(2, 1);
  tables[2].add_servers("a");
  report(0, 100 << 20, 90 << 20);
  EXPECT_FALSE(needs(0)) << "it does not fit beside table 2";
  report(kSecond, 100 << 20, 1 << 20);
  EXPECT_FALSE(needs(kSecond)) << "bytes of rows change all the time";
  EXPECT_TRUE(needs(kSecond, "8")) << "other tables are served";
  EXPECT_TRUE(needs(kSecond, "8")) << "until it is done";
  report(2 * kSecond, 100 << 20, 90 << 20);
  EXPECT_FALSE(needs(2 * kSecond));
  report(3 * kSecond, 200 << 20, 90 << 20);
  EXPECT_TRUE(needs(3 * kSecond)) << "the server has more memory";
  report(4 * kSecond, 100 << 20, 90 << 20);
  EXPECT_FALSE(needs(4 * kSecond));
  report(14 * kSecond, 100 << 20, 1 << 20);
  EXPECT_TRUE(needs(14 * kSecond)) << "after some seconds";
}

}  // namespace serving_servers_test
}  // namespace hotbed
