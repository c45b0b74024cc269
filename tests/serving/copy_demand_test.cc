#include "planner/coordinator/serving/copy_demand.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/coordinator/serving/serving_servers.h"

namespace hotbed {
namespace copy_demand_test {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kTick = kSecond / 2;
constexpr TableId kTable = 1;

// Serving servers that load what they are ordered to have in five seconds, and share the lookups of
// one table among the copies that are ready.
class CopyDemandTest : public testing::Test {
 protected:
  struct Copy {
    int64_t since_ns = 0;
    double lookup_rows = 0;
  };
  struct Server {
    std::string domain;
    bool up = true;
    std::map<uint32_t, Copy> copies;  // by part
  };

  CopyDemandTest() : servers_({.demand = {.rows_per_s_max = 1000}}) { servers_.Begin(0); }

  void Serve(uint32_t least, uint32_t most, int servers, uint32_t parts = 1) {
    for (int i = 0; i < servers; ++i) fleet_[absl::StrCat("r", i)].domain = absl::StrCat("z", i);
    v1::TableSpec& spec = specs_[kTable];
    spec.set_id(kTable);
    spec.set_rows(1000);
    spec.set_dim(8);
    v1::ServedTable& table = tables_[kTable];
    table.set_table(kTable);
    table.set_replicas(least);
    table.set_replicas_min(most > least ? least : 0);
    table.set_replicas_max(most > least ? most : 0);
    table.set_parts(parts);
    Run(20, 0);
    ASSERT_EQ(Ready(), least);
  }

  // As long as that, with lookups that ask all copies of a part for so many rows per second.
  void Run(int seconds, double rows_per_s) {
    for (int64_t left = seconds * kSecond; left > 0; left -= kTick) Tick(rows_per_s);
  }
  // Until the number of copies that are wanted changes; -1: it does not.
  int RunUntilChange(int seconds_max, double rows_per_s) {
    const uint32_t before = Wanted();
    for (int half = 0; half < 2 * seconds_max; ++half) {
      if (Wanted() != before) return half / 2;
      Tick(rows_per_s);
    }
    return -1;
  }

  void Tick(double rows_per_s) {
    now_ns_ += kTick;
    for (auto& [name, server] : fleet_) {
      if (server.up) Report(name, rows_per_s, &server);
    }
    if (servers_.NeedsPlacing(now_ns_, absl::StrCat(revision_), tables_, specs_)) {
      for (const v1::ServedTable& change : servers_.Changes(now_ns_, tables_, specs_)) {
        ++revision_;
        numbers_.push_back(change.replicas());
        tables_[change.table()] = change;
      }
    }
    if (least_ready_ > 0) {
      ASSERT_GE(Ready(), least_ready_) << "a copy left before others were ready";
    }
  }

  void Report(const std::string& name, double rows_per_s, Server* server) {
    v1::ServingReport report;
    report.set_name(name);
    report.set_run(1);
    report.set_address("127.0.0.1:1");
    report.set_failure_domain(server->domain);
    report.set_bytes_max(1 << 30);
    std::map<uint32_t, Copy> next;
    const v1::ServedTable& table = tables_[kTable];
    if (const auto part = ServedPartOn(table, name)) {
      const auto known = server->copies.find(part->part);
      Copy copy = known == server->copies.end() ? Copy{now_ns_} : known->second;
      const bool ready = IsReady(copy);
      if (ready) copy.lookup_rows += rows_per_s * 0.5 / std::max<double>(ReadyOf(part->part), 1);
      v1::ReplicaReport& replica = *report.add_replicas();
      replica.set_table(kTable);
      replica.set_part(part->part);
      replica.set_parts(part->parts);
      replica.set_ready(ready);
      replica.set_bytes(1000);
      replica.set_lookup_rows_total(static_cast<uint64_t>(copy.lookup_rows));
      next[part->part] = copy;
    }
    server->copies = next;
    ASSERT_TRUE(servers_.OnReport(now_ns_, report).ok());
  }

  bool IsReady(const Copy& copy) const { return now_ns_ - copy.since_ns >= 5 * kSecond; }
  uint32_t ReadyOf(uint32_t part) const {
    return static_cast<uint32_t>(std::count_if(fleet_.begin(), fleet_.end(), [&](const auto& one) {
      const auto copy = one.second.copies.find(part);
      return one.second.up && copy != one.second.copies.end() && IsReady(copy->second);
    }));
  }
  uint32_t Ready() {  // of the part with the fewest
    uint32_t ready = ReadyOf(0);
    for (uint32_t part = 1; part < tables_[kTable].parts(); ++part)
      ready = std::min(ready, ReadyOf(part));
    return ready;
  }
  uint32_t Wanted() { return tables_[kTable].replicas(); }

  int64_t now_ns_ = 0;
  int revision_ = 0;
  uint32_t least_ready_ = 0;  // checked at each tick; 0: not
  ServingServers servers_;
  std::map<std::string, Server> fleet_;
  ServedTables tables_;
  TableSpecs specs_;
  std::vector<uint32_t> numbers_;  // of copies, as they were placed
};

TEST_F(CopyDemandTest, AHotTableGetsCopiesOneByOneAndLosesThemInACalm) {
  Serve(2, 4, 6);
  least_ready_ = 2;
  const int first = RunUntilChange(100, 3500);
  EXPECT_GE(first, 30) << "a short burst is none";
  EXPECT_LE(first, 60);
  EXPECT_EQ(Wanted(), 3u);
  const int second = RunUntilChange(100, 3500);
  EXPECT_GE(second, 35) << "the copy is loaded first, and its share of the lookups is measured";
  EXPECT_EQ(Wanted(), 4u);
  EXPECT_EQ(RunUntilChange(3600, 9000), -1) << "4 is the most";
  EXPECT_EQ(Ready(), 4u);
  EXPECT_EQ(servers_.Map(now_ns_, tables_, specs_).servers(0).replicas(0).lookup_rows_per_s(),
            2250u);
  const int third = RunUntilChange(1000, 500);
  EXPECT_GE(third, 600);
  EXPECT_EQ(Wanted(), 3u);
  EXPECT_GE(RunUntilChange(1000, 500), 600) << "one at a time";
  EXPECT_EQ(Wanted(), 2u);
  EXPECT_EQ(RunUntilChange(3600, 0), -1) << "2 is the least";
  EXPECT_EQ(Ready(), 2u);
}

TEST_F(CopyDemandTest, ALoadThatStaysOrSwingsChangesTheNumberOnce) {
  Serve(2, 6, 6);
  EXPECT_GE(RunUntilChange(100, 2100), 30);
  EXPECT_EQ(RunUntilChange(7200, 2100), -1) << "without the third copy there would be two again";
  // On the average of a few seconds this is the same load.
  for (int i = 0; i < 300; ++i) {
    Run(3, 4200);
    Run(3, 0);
  }
  EXPECT_EQ(Wanted(), 3u);
  // A quiet hour that is interrupted by bursts is no calm.
  for (int i = 0; i < 12; ++i) {
    Run(280, 0);
    Run(20, 2500);
  }
  EXPECT_EQ(Wanted(), 3u);
}

TEST_F(CopyDemandTest, AFixedNumberStays) {
  Serve(2, 2, 4);
  EXPECT_EQ(RunUntilChange(3600, 100'000), -1);
}

TEST_F(CopyDemandTest, WithoutAServerForItNoCopyIsWanted) {
  Serve(2, 4, 2);
  EXPECT_EQ(RunUntilChange(600, 100'000), -1);
  fleet_["r2"].domain = "z2";
  EXPECT_NE(RunUntilChange(100, 100'000), -1);
  EXPECT_EQ(Wanted(), 3u);
}

TEST_F(CopyDemandTest, ALostServerIsReplacedAndTheNumberStays) {
  Serve(2, 4, 5);
  EXPECT_NE(RunUntilChange(100, 2500), -1);
  Run(60, 2500);
  ASSERT_EQ(Ready(), 3u);
  const std::string lost = tables_[kTable].servers(0);
  fleet_[lost].up = false;
  EXPECT_EQ(RunUntilChange(120, 2500), -1);
  EXPECT_EQ(Ready(), 3u);
  EXPECT_FALSE(ServedPartOn(tables_[kTable], lost).has_value());
  // Where nobody can take its place, the number still falls with the lookups.
  for (auto& [name, server] : fleet_) {
    if (!ServedPartOn(tables_[kTable], name).has_value()) server.up = false;
  }
  fleet_[tables_[kTable].servers(0)].up = false;
  least_ready_ = 2;
  EXPECT_GE(RunUntilChange(1000, 100), 600);
  EXPECT_EQ(Wanted(), 2u);
  EXPECT_EQ(tables_[kTable].servers_size(), 2);
}

TEST_F(CopyDemandTest, TheNumberFallsAlthoughTwoCopiesWereLost) {
  Serve(2, 4, 4);
  EXPECT_NE(RunUntilChange(100, 3500), -1);
  EXPECT_NE(RunUntilChange(100, 3500), -1);
  Run(60, 3500);
  ASSERT_EQ(Ready(), 4u);
  for (const int i : {0, 1}) fleet_[tables_[kTable].servers(i)].up = false;
  least_ready_ = 2;
  EXPECT_NE(RunUntilChange(1000, 100), -1);
  EXPECT_NE(RunUntilChange(1000, 100), -1);
  EXPECT_EQ(Wanted(), 2u);
  EXPECT_EQ(tables_[kTable].servers_size(), 2);
}

// "c" has room for one further copy, and a disk; each of two tables is to have one.
TEST(HotTablesTest, TwoThatAreRaisedAtOnceStayWithinMemory) {
  ServingServers servers({.demand = {.rows_per_s_max = 1000}});
  servers.Begin(0);
  ServedTables tables;
  TableSpecs specs;
  for (const TableId id : {1, 2}) {
    specs[id].set_id(id);
    specs[id].set_hashed(true);
    specs[id].set_dim(8);
    v1::ServedTable& table = tables[id];
    table.set_table(id);
    table.set_replicas(1);
    table.set_replicas_min(1);
    table.set_replicas_max(2);
    table.add_servers(id == 1 ? "a" : "b");
  }
  const auto report = [&](int64_t now_ns, const std::string& name, TableId id) {
    v1::ServingReport one;
    one.set_name(name);
    one.set_run(1);
    one.set_address("127.0.0.1:1");
    one.set_bytes_max(15'000);
    one.set_has_disk(true);
    if (id != 0) {
      v1::ReplicaReport& replica = *one.add_replicas();
      replica.set_table(id);
      replica.set_ready(true);
      replica.set_bytes(10'000);
      replica.set_lookup_rows_total(static_cast<uint64_t>(now_ns / kSecond) * 5000);
    }
    ASSERT_TRUE(servers.OnReport(now_ns, one).ok());
  };
  size_t raised = 0;
  for (int64_t now_ns = 0; now_ns < 100 * kSecond; now_ns += kTick) {
    report(now_ns, "a", 1);
    report(now_ns, "b", 2);
    report(now_ns, "c", 0);
    if (!servers.NeedsPlacing(now_ns, absl::StrCat(raised), tables, specs)) continue;
    for (const v1::ServedTable& change : servers.Changes(now_ns, tables, specs)) {
      tables[change.table()] = change;
      ++raised;
    }
  }
  EXPECT_EQ(raised, 1u) << "only one finds room";
  EXPECT_EQ(tables[1].replicas() + tables[2].replicas(), 3u);
}

TEST_F(CopyDemandTest, ThePartThatIsAskedMostDecidesForAll) {
  Serve(1, 3, 6, /*parts=*/2);
  least_ready_ = 1;
  EXPECT_NE(RunUntilChange(100, 1500), -1);
  Run(60, 1500);
  EXPECT_EQ(tables_[kTable].servers_size(), 4) << "two of each part";
  EXPECT_EQ(Ready(), 2u);
}

TEST_F(CopyDemandTest, NoCopyLeavesWhileCopiesAreSpread) {
  Serve(2, 4, 4);
  for (auto& [name, server] : fleet_) server.domain = "z0";
  EXPECT_NE(RunUntilChange(100, 2900), -1);
  Run(60, 2900);
  ASSERT_EQ(Ready(), 3u);
  Run(595, 100);
  // Another domain comes a moment before the calm has lasted long enough.
  for (auto& [name, server] : fleet_) {
    if (!ServedPartOn(tables_[kTable], name).has_value()) server.domain = "z1";
  }
  least_ready_ = 3;
  Run(60, 100);
  EXPECT_EQ(Wanted(), 3u) << "the calm begins again when the copies are spread";
  least_ready_ = 2;
  EXPECT_NE(RunUntilChange(1000, 100), -1);
  Run(10, 100);
  EXPECT_EQ(tables_[kTable].servers_size(), 2);
  EXPECT_EQ(servers_.Map(now_ns_, tables_, specs_).tables(0).replicas(), 2u);
}

TEST_F(CopyDemandTest, ACoordinatorThatBeginsToLeadMeasuresFirst) {
  Serve(2, 4, 4);
  Run(28, 5000);
  servers_.Begin(now_ns_);
  EXPECT_GE(RunUntilChange(100, 5000), 30);
}

TEST(CopyRatesTest, ACounterThatBeginsAgainIsNoBurst) {
  CopyRates rates;
  v1::ServingReport report;
  report.set_run(1);
  v1::ReplicaReport& replica = *report.add_replicas();
  replica.set_table(kTable);
  const auto note = [&](int64_t now_ns, uint64_t total) {
    replica.set_lookup_rows_total(total);
    rates.Note(now_ns, kSecond, report);
    return rates.RowsPerS(kTable, {});
  };
  EXPECT_EQ(note(0, 1'000'000), 0) << "asked for before anybody counted";
  EXPECT_EQ(note(0, 1'000'100), 0) << "no time has passed";
  EXPECT_NEAR(note(10 * kSecond, 1'010'000), 1000, 1);
  EXPECT_EQ(note(20 * kSecond, 5), 0) << "the copy was made again";
  report.set_run(2);
  EXPECT_EQ(note(21 * kSecond, 1'000'000'000), 0) << "of another process";
  report.clear_replicas();
  rates.Note(22 * kSecond, kSecond, report);
  EXPECT_EQ(rates.RowsPerS(kTable, {}), 0);
}

}  // namespace copy_demand_test
}  // namespace hotbed
