// Stories of served tables that are cut into more parts, and joined, while lookups go on: a fleet
// of serving servers with little memory obeys the coordinator's core, and readers whose map is a
// second old must always find each part.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "planner/coordinator/operations/operations.h"
#include "planner/coordinator/serving/remembered_serving.h"
#include "planner/coordinator/serving/serving_servers.h"
#include "planner/coordinator/state/cluster_state.h"
#include "planner/coordinator/state/keys.h"

namespace hotbed {
namespace served_cuts_test {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kTick = kSecond / 2;
constexpr int kLoadTicks = 6;
constexpr int kMapTicks = 2;  // by which a reader's map is old
constexpr TableId kTable = 1;

class ServedCutsTest : public testing::Test {
 protected:
  struct Copy {
    int ticks = 0;
    uint64_t bytes = 0;
    uint64_t full_bytes = 0;
    bool ready = false;
    double lookup_rows = 0;
  };
  struct Server {
    uint64_t bytes_max = 0;
    bool up = true;
    std::map<std::pair<uint32_t, uint32_t>, Copy> copies;  // by part, and of how many
    std::set<uint64_t> versions;                           // that it cannot take up
    // By part and version.
    std::map<std::pair<std::pair<uint32_t, uint32_t>, uint64_t>, uint64_t> failed_ms;
  };

  ServedCutsTest() { NewLeader(); }

  // It knows what the metadata store has, and has heard of no server.
  void NewLeader() {
    servers_ =
        std::make_unique<ServingServers>(ServingServers::Options{.join_after_ns = 60 * kSecond});
    servers_->Begin(now_ns_);
  }

  void Start(const std::vector<uint64_t>& bytes_max, uint64_t table_bytes, uint32_t replicas = 1) {
    table_bytes_ = table_bytes;
    for (size_t i = 0; i < bytes_max.size(); ++i) {
      fleet_[absl::StrCat("r", i)].bytes_max = bytes_max[i];
    }
    v1::TableSpec& spec = specs_[kTable];
    spec.set_id(kTable);
    spec.set_hashed(true);
    spec.set_dim(8);
    v1::ServedTable& table = tables_[kTable];
    table.set_table(kTable);
    table.set_replicas(replicas);
    Run(15);
    ASSERT_TRUE(Answered(tables_[kTable]));
    unanswered_ = 0;
  }
  // As a person asks for it: 'hotbed serve add TABLE --parts N'.
  void AskFor(uint32_t parts) {
    v1::ServedTable& table = tables_[kTable];
    table.set_parts_min(parts);
    table.clear_beside();
    table.mutable_beside()->set_parts(parts);
    table.mutable_beside()->set_asked(true);
    ++revision_;
  }
  void Run(int seconds) {
    for (int i = 0; i < 2 * seconds; ++i) Tick();
  }
  // Until the table is in so many parts, and the former ones are gone; fails after `seconds_max`.
  void RunUntil(uint32_t parts, int seconds_max) {
    for (int i = 0; i < 2 * seconds_max && (Parts() != parts || Beside() != ""); ++i) Tick();
    EXPECT_EQ(Parts(), parts) << Text();
    EXPECT_EQ(Beside(), "") << Text();
  }

  void Tick() {
    now_ns_ += kTick;
    for (auto& [name, server] : fleet_) {
      if (server.up) Report(name, &server);
    }
    if (servers_->NeedsPlacing(now_ns_, absl::StrCat(revision_), tables_, specs_)) {
      for (const v1::ServedTable& change : servers_->Changes(now_ns_, tables_, specs_)) {
        tables_[change.table()] = change;
        ++revision_;
      }
    }
    maps_.push_back(tables_[kTable]);
    const size_t at = maps_.size() > kMapTicks ? maps_.size() - 1 - kMapTicks : 0;
    if (!Answered(maps_[at])) ++unanswered_;
  }

  // Whether readers who know this cut find a copy of each part.
  bool Answered(const v1::ServedTable& cut) const {
    std::set<uint32_t> parts;
    for (int i = 0; i < cut.servers_size(); ++i) {
      const ServedPart part = ServedPartAt(cut, i);
      const Server& server = fleet_.at(cut.servers(i));
      const auto copy = server.copies.find({part.part, part.parts});
      if (server.up && copy != server.copies.end() && copy->second.ready) parts.insert(part.part);
    }
    return parts.size() == ServedPartsOf(cut);
  }

  void Report(const std::string& name, Server* server) {
    Obey(servers_->OrdersFor(now_ns_, name, tables_, specs_), name, server);
    v1::ServingReport report;
    report.set_name(name);
    report.set_run(1);
    report.set_address(absl::StrCat("127.0.0.1:", 1 + name[1] - '0'));
    report.set_bytes_max(server->bytes_max);
    for (const auto& [part, copy] : server->copies) {
      v1::ReplicaReport& replica = *report.add_replicas();
      replica.set_table(kTable);
      replica.set_part(part.first);
      replica.set_parts(part.second);
      replica.set_ready(copy.ready);
      replica.set_bytes(copy.bytes);
      replica.set_full_bytes(copy.full_bytes);
      if (half_on_disk_) {
        replica.set_on_disk(true);
        replica.set_rows(10);
        replica.set_memory_rows(5);
      }
      replica.set_lookup_rows_total(static_cast<uint64_t>(copy.lookup_rows));
      for (const uint64_t number : versions_) {
        v1::VersionReport& version = *replica.add_versions();
        version.set_number(number);
        version.set_bytes(version_bytes_ / part.second);
        version.set_held(copy.ready && !server->versions.contains(number));
        uint64_t& failed_ms = server->failed_ms[{part, number}];
        if (version.held() || !copy.ready || !says_why_) {
          failed_ms = 0;
          continue;
        }
        // A copy that has failed keeps its trouble while its next attempt goes on.
        version.set_trouble("its files are gone");
        version.set_failed_for_ms(failed_ms);
        if (!next_attempt_lasts_) failed_ms += kTick / 1'000'000;
      }
    }
    ASSERT_TRUE(servers_->OnReport(now_ns_, report).ok());
  }

  // As serving servers do: a copy grows with its part while memory suffices; the last one of its
  // part that has no more room stays as it is, and others give their rows up.
  void Obey(const v1::ServingOrders& orders, const std::string& name, Server* server) {
    std::map<std::pair<uint32_t, uint32_t>, Copy> next;
    const auto keep = [&](const v1::ServedTable& table) {
      const ServedPart part = *ServedPartOn(table, name);
      next[{part.part, part.parts}] = server->copies[{part.part, part.parts}];
    };
    for (const v1::ServedTable& table : orders.tables()) keep(table);
    for (const v1::OrderedCopy& copy : orders.beside()) keep(copy.table());
    server->copies = std::move(next);
    uint64_t used = 0;
    for (auto& [part, copy] : server->copies) used += copy.bytes;
    for (auto& [part, copy] : server->copies) {
      const uint64_t wanted = table_bytes_ / part.second;
      if (wanted > copy.bytes && used + wanted - copy.bytes > server->bytes_max) {
        copy.full_bytes = std::max<uint64_t>(server->bytes_max - (used - copy.bytes), 1);
        if (orders.alone_size() > 0 && copy.ready) continue;
        used -= copy.bytes;
        copy = {.full_bytes = copy.full_bytes};
        continue;
      }
      used += wanted - copy.bytes;
      copy.bytes = wanted;
      copy.full_bytes = 0;
      copy.ready = copy.ready || ++copy.ticks >= kLoadTicks;
      if (copy.ready) copy.lookup_rows += rows_per_s_ / 2;
    }
    EXPECT_LE(used, server->bytes_max) << name;
  }

  uint32_t Parts() { return ServedPartsOf(tables_[kTable]); }
  std::string Beside() {
    const v1::ServedTable& table = tables_[kTable];
    if (!table.has_beside()) return "";
    return absl::StrCat(ServedPartsOf(BesideOf(table)), table.beside().leaves() ? " leave" : "");
  }
  // The version that coming parts wait for, its trouble, and the seconds left; empty: none.
  std::string Awaited() {
    const v1::ServingMap map = servers_->Map(now_ns_, tables_, specs_);
    if (map.awaited_size() != 1) return absl::StrCat(map.awaited_size() == 0 ? "" : "several");
    const v1::AwaitedVersion& one = map.awaited(0);
    return absl::StrCat(
        one.number(), " on ", one.server(), ": ", one.trouble(), ", ",
        one.has_given_up_in_ms() ? absl::StrCat(one.given_up_in_ms() / 1000, " s") : "for good");
  }
  std::string Text() { return tables_[kTable].ShortDebugString(); }

  std::unique_ptr<ServingServers> servers_;
  std::map<std::string, Server> fleet_;
  ServedTables tables_;
  TableSpecs specs_;
  uint64_t table_bytes_ = 0;
  double rows_per_s_ = 0;        // that lookups ask of each copy
  std::set<uint64_t> versions_;  // that servers are to hold
  uint64_t version_bytes_ = 0;   // of all parts of each
  bool half_on_disk_ = false;    // all copies
  bool says_why_ = true;         // a copy that does not hold a version
  bool next_attempt_lasts_ = false;
  std::vector<v1::ServedTable> maps_;
  int unanswered_ = 0;  // ticks in which readers missed a part
  int64_t now_ns_ = 0;
  int revision_ = 0;
};

TEST_F(ServedCutsTest, AskedPartsAnswerOnceAllAreLoadedAndTheOldOnesStayAWhile) {
  Start({100, 100}, 40);
  AskFor(2);
  Run(2);
  EXPECT_EQ(Parts(), 1u) << "the parts are loaded still: " << Text();
  EXPECT_EQ(Beside(), "2");
  for (int i = 0; i < 20 && Parts() == 1; ++i) Tick();
  EXPECT_EQ(Parts(), 2u);
  EXPECT_EQ(Beside(), "1 leave");
  Run(4);
  EXPECT_EQ(Beside(), "1 leave") << "readers may have an old map";
  RunUntil(2, 10);
  EXPECT_EQ(unanswered_, 0);
}

TEST_F(ServedCutsTest, AskedPartsWaitForServersWithRoom) {
  Start({100, 50}, 60);
  AskFor(3);
  Run(60);
  EXPECT_EQ(Parts(), 1u);
  EXPECT_EQ(Beside(), "3") << "r0 and r1 take one part each, nobody the third: " << Text();
  fleet_["r2"].bytes_max = 30;
  RunUntil(3, 30);
  EXPECT_EQ(unanswered_, 0);
}

TEST_F(ServedCutsTest, ATableThatOutgrowsItsServerIsAnsweredUntilItsPartsAreReady) {
  Start({100, 70, 70}, 50);
  table_bytes_ = 120;
  RunUntil(2, 60);
  EXPECT_EQ(unanswered_, 0);
  table_bytes_ = 190;
  RunUntil(3, 60);
}

TEST_F(ServedCutsTest, WithoutRoomForBothATableIsCutAfterAWhile) {
  Start({100, 60}, 50);
  table_bytes_ = 110;
  Run(15);
  EXPECT_EQ(Parts(), 1u) << "there may be room soon";
  EXPECT_EQ(unanswered_, 0);
  RunUntil(2, 60);
  Run(20);
  EXPECT_GT(unanswered_, 0) << "r0 cannot have 50 and 55, nor r1 twice 55";
  EXPECT_TRUE(Answered(tables_[kTable]));
}

TEST_F(ServedCutsTest, ANewLeaderHearsAllServersBeforeItGivesPartsUp) {
  Start({100, 70, 70}, 50);
  table_bytes_ = 120;
  NewLeader();
  fleet_["r2"].up = false;
  Run(1);
  fleet_["r2"].up = true;
  RunUntil(2, 60);
  EXPECT_EQ(unanswered_, 0) << "r1 and r2 have room for the parts";
}

TEST_F(ServedCutsTest, AServerThatRestartsIsWaitedForBeforePartsAreGivenUp) {
  Start({100, 70, 70}, 50);
  fleet_["r2"].up = false;
  Run(4);
  table_bytes_ = 120;
  Run(2);
  fleet_["r2"].up = true;
  RunUntil(2, 60);
  EXPECT_EQ(unanswered_, 0);
}

TEST_F(ServedCutsTest, ATableWithALostServerIsCutWhenItOutgrowsTheOther) {
  Start({100, 100, 70, 70}, 50, 2);
  fleet_["r1"].up = false;
  fleet_["r1"].copies.clear();
  Run(4);
  table_bytes_ = 120;
  RunUntil(2, 60);
  EXPECT_EQ(unanswered_, 0);
}

TEST_F(ServedCutsTest, ACopyThatIsTooSmallGoesOnAnsweringUntilThereAreServers) {
  Start({100}, 50);
  table_bytes_ = 300;
  Run(60);
  EXPECT_EQ(Parts(), 1u) << "there are too few servers for that";
  EXPECT_EQ(unanswered_, 0);
  for (const auto& [name, bytes] : {std::pair("r2", 160), std::pair("r3", 160)}) {
    fleet_[name].bytes_max = bytes;
  }
  RunUntil(2, 60);
  EXPECT_EQ(unanswered_, 0);
}

TEST_F(ServedCutsTest, PartsAreJoinedOnceTheTableHasFittedFewerServersForAWhile) {
  Start({100, 100, 100}, 180);
  EXPECT_EQ(Parts(), 2u) << Text();
  Run(120);
  EXPECT_EQ(Parts(), 2u);
  table_bytes_ = 90;
  Run(120);
  EXPECT_EQ(Parts(), 2u) << "it would fit, but not grow by a quarter";
  table_bytes_ = 60;
  Run(50);
  table_bytes_ = 180;
  Run(50);
  EXPECT_EQ(Beside(), "") << "it was small for a shorter time";
  table_bytes_ = 60;
  Run(50);
  EXPECT_EQ(Beside(), "");
  RunUntil(1, 45);
  EXPECT_EQ(unanswered_, 0);
  Run(200);
  EXPECT_EQ(Parts(), 1u);
}

TEST_F(ServedCutsTest, PartsThatAPersonAskedForOrThatAreAskedMuchAreNotJoined) {
  Start({100, 100, 100}, 40);
  AskFor(2);
  RunUntil(2, 30);
  Run(300);
  EXPECT_EQ(Parts(), 2u) << "a person has asked for them";
  tables_[kTable].set_parts_min(0);
  rows_per_s_ = 400'000;
  Run(300);
  EXPECT_EQ(Parts(), 2u) << "one copy would be asked for 800,000 rows per second";
  rows_per_s_ = 100'000;
  RunUntil(1, 200);
  EXPECT_EQ(unanswered_, 0);
}

TEST_F(ServedCutsTest, PartsAreJoinedByHandIfTheyFit) {
  Start({100, 100, 100}, 180);
  ASSERT_EQ(Parts(), 2u);
  // The server is believed to have room, but the table grows meanwhile.
  table_bytes_ = 80;
  Run(2);
  AskFor(1);
  Run(1);
  EXPECT_EQ(Beside(), "1");
  table_bytes_ = 150;
  Run(20);
  EXPECT_EQ(Parts(), 2u);
  table_bytes_ = 80;
  RunUntil(2, 10);
  AskFor(1);
  RunUntil(1, 30);
  EXPECT_EQ(unanswered_, 0);
}

TEST_F(ServedCutsTest, PartsFollowWhenTheyHoldTheVersionsToo) {
  Start({100, 100}, 40);
  versions_ = {5, 6};
  fleet_["r1"].versions = {6};
  Run(5);
  ASSERT_EQ(tables_[kTable].servers(0), "r0");
  AskFor(2);
  Run(60);
  EXPECT_EQ(Parts(), 1u) << "r1 has not taken up version 6";
  fleet_["r1"].versions.clear();
  RunUntil(2, 20);
}

TEST_F(ServedCutsTest, AVersionThatPartsFailToTakeUpIsGivenUpAfterFiveMinutes) {
  Start({100, 100}, 40);
  versions_ = {5, 6};
  fleet_["r1"].versions = {6};
  Run(5);
  AskFor(2);
  says_why_ = false;
  Run(400);
  EXPECT_EQ(Parts(), 1u) << "it is being taken up";
  EXPECT_EQ(Awaited(), "");
  says_why_ = true;
  Run(1);
  EXPECT_EQ(Awaited(), "6 on r1: its files are gone, 299 s");
  next_attempt_lasts_ = true;
  Run(400);
  EXPECT_EQ(Parts(), 1u) << "it has failed once, and is being taken up again";
  next_attempt_lasts_ = false;
  Run(280);
  NewLeader();
  Run(10);
  EXPECT_EQ(Parts(), 1u);
  EXPECT_FALSE(Awaited().empty());
  RunUntil(2, 30);
  EXPECT_EQ(Awaited(), "");
  EXPECT_EQ(unanswered_, 0);
}

TEST_F(ServedCutsTest, PartsThatWouldFitAreNotJoinedAtTheCostOfAVersion) {
  Start({100, 100, 100}, 180);
  ASSERT_EQ(Parts(), 2u);
  versions_ = {5};
  Run(3);
  table_bytes_ = 60;
  for (int i = 0; i < 400 && Beside() == ""; ++i) Tick();
  ASSERT_EQ(Beside(), "1");
  fleet_[BesideOf(tables_[kTable]).servers(0)].versions = {5};
  servers_->SetCurrent({5});         // the join ends, whether or not it is current
  tables_[kTable].set_parts_min(1);  // somebody asked for that once
  Run(200);
  EXPECT_EQ(Beside(), "1");
  for (int i = 0; i < 300 && Beside() != ""; ++i) Tick();
  EXPECT_EQ(Beside(), "");
  EXPECT_EQ(Parts(), 2u) << Text();
  EXPECT_EQ(unanswered_, 0);
}

TEST_F(ServedCutsTest, AVersionThatFailsForAWhileIsWaitedForAgain) {
  Start({100, 100}, 40);
  versions_ = {5, 6};
  fleet_["r1"].versions = {5, 6};
  Run(5);
  AskFor(2);
  Run(200);
  fleet_["r1"].versions = {5};
  Run(1);
  fleet_["r1"].versions = {6};
  Run(200);
  EXPECT_EQ(Parts(), 1u) << "neither has failed for five minutes";
  RunUntil(2, 120);
}

TEST_F(ServedCutsTest, APartThatFailsLaterHasFiveMinutesOfItsOwn) {
  Start({100, 100, 100}, 40);
  versions_ = {6};
  fleet_["r1"].versions = {6};
  Run(5);
  AskFor(2);
  Run(1);
  ASSERT_EQ(tables_[kTable].servers(0), "r0");
  ASSERT_EQ(absl::StrJoin(BesideOf(tables_[kTable]).servers(), " "), "r1 r2");
  Run(290);
  fleet_["r2"].versions = {6};
  fleet_["r1"].versions.clear();
  Run(60);
  EXPECT_EQ(Parts(), 1u) << Text();
}

TEST_F(ServedCutsTest, ACurrentVersionIsNotGivenUp) {
  Start({100, 100}, 40);
  versions_ = {5, 6};
  fleet_["r1"].versions = {6};
  servers_->SetCurrent({6});
  Run(5);
  AskFor(2);
  Run(900);
  EXPECT_EQ(Parts(), 1u) << "readers of the current version find it there alone";
  EXPECT_EQ(Awaited(), "6 on r1: its files are gone, for good");
  servers_->SetCurrent({5});
  RunUntil(2, 20);
  EXPECT_EQ(unanswered_, 0);
}

// A flip may have come between the look of the coordinator and the operation that it has begun.
TEST_F(ServedCutsTest, AnOperationLooksAtTheVersionThatIsCurrentInItsState) {
  Start({100, 100}, 40);
  versions_ = {5, 6};
  fleet_["r1"].versions = {6};
  servers_->SetCurrent({6});
  Run(5);
  AskFor(2);
  Run(400);
  ASSERT_EQ(Parts(), 1u);
  OperationContext context;
  context.serving = servers_.get();
  context.now_ns = now_ns_;
  ClusterState state;
  v1::TableSpec spec = specs_[kTable];
  spec.set_name("t");
  const auto have = [&](uint64_t current) {
    v1::VersionChoice choice;
    choice.set_current(current);
    state.Apply({{Op::Kind::kPut, keys::Table(kTable), spec.SerializeAsString()},
                 {Op::Kind::kPut, keys::Name("t"), absl::StrCat(kTable)},
                 {Op::Kind::kPut, keys::Served(kTable), tables_[kTable].SerializeAsString()},
                 {Op::Kind::kPut, keys::kVersionChoiceKey, choice.SerializeAsString()}},
                ++revision_);
  };
  v1::ServeTablesRequest request;
  request.set_action(v1::ServeTablesRequest::ADD);
  request.add_tables("t");
  const auto parts_of = [](const Next& next) -> uint32_t {
    const auto* const txn = std::get_if<Transaction>(&next);
    v1::ServedTable table;
    if (txn == nullptr || !table.ParseFromString(txn->ops()[0].value)) return 0;
    return ServedPartsOf(table);
  };
  have(6);
  servers_->SetCurrent({5});
  EXPECT_EQ(parts_of(MakePlaceServing(context)(state)), 0u) << "there is nothing to change";
  servers_->SetCurrent({5});
  EXPECT_EQ(parts_of(MakeOperation(request, context)(state)), 1u);
  have(5);
  servers_->SetCurrent({6});
  EXPECT_EQ(parts_of(MakePlaceServing(context)(state)), 2u);
  servers_->SetCurrent({6});
  EXPECT_EQ(parts_of(MakeOperation(request, context)(state)), 2u);
}

TEST_F(ServedCutsTest, AVersionThatAnotherCopyOfThePartHoldsIsWaitedForFiveMinutesAtMost) {
  Start({100, 100, 30, 30}, 40, 2);
  versions_ = {6};
  servers_->SetCurrent({6});
  fleet_["r2"].versions = {6};
  Run(5);
  AskFor(2);
  Run(250);
  ASSERT_EQ(tables_[kTable].servers_size(), 2);
  ASSERT_EQ(BesideOf(tables_[kTable]).servers_size(), 4) << Text();
  EXPECT_EQ(Parts(), 1u) << "lookups of the version are to be spread over all copies";
  EXPECT_EQ(Awaited().substr(0, 65),
            "6 on r2: its files are gone (another copy of the part holds it), ");
  EXPECT_NE(Awaited().substr(65), "for good");
  RunUntil(2, 90);
  EXPECT_EQ(unanswered_, 0);
}

TEST_F(ServedCutsTest, ACurrentVersionThatNoCopyOfAPartHoldsIsWaitedFor) {
  Start({100, 100, 30, 30}, 40, 2);
  versions_ = {6};
  servers_->SetCurrent({6});
  Run(5);
  AskFor(2);
  Run(1);
  const v1::ServedTable cut = BesideOf(tables_[kTable]);
  std::vector<std::string> having;  // part 0
  for (int i = 0; i < cut.servers_size(); ++i) {
    if (ServedPartAt(cut, i).part == 0) having.push_back(cut.servers(i));
  }
  ASSERT_EQ(having.size(), 2u) << Text();
  for (const std::string& name : having) fleet_[name].versions = {6};
  Run(600);
  EXPECT_EQ(Parts(), 1u) << Text();
  EXPECT_TRUE(absl::EndsWith(Awaited(), "its files are gone, for good")) << Awaited();
  fleet_[having[0]].versions.clear();
  RunUntil(2, 20);
  EXPECT_EQ(unanswered_, 0);
}

TEST_F(ServedCutsTest, VersionsThatALostServerHeldAreNotWaitedFor) {
  Start({100, 100, 30, 30}, 40, 2);
  versions_ = {1};
  Run(3);
  fleet_["r1"].up = false;
  Run(1);
  versions_ = {2, 3};
  Run(15);
  ASSERT_EQ(tables_[kTable].servers(1), "r1") << "nobody has room for its copy: " << Text();
  AskFor(2);
  RunUntil(2, 60);
  EXPECT_EQ(unanswered_, 0);
}

TEST_F(ServedCutsTest, PartsNeedRoomForTheirVersionsToo) {
  Start({100, 60, 40}, 50);
  versions_ = {1};
  version_bytes_ = 40;
  Run(3);
  AskFor(2);
  Run(30);
  EXPECT_EQ(Parts(), 1u) << "r2 has room for 25 of rows, but not for 20 of a version besides";
  fleet_["r2"].bytes_max = 50;
  RunUntil(2, 40);
}

TEST_F(ServedCutsTest, PartsOnDiskAreNotJoined) {
  Start({100, 100, 100}, 180);
  ASSERT_EQ(Parts(), 2u);
  table_bytes_ = 60;
  half_on_disk_ = true;
  Run(200);
  EXPECT_EQ(Parts(), 2u) << "nobody knows if the whole table fits memory";
  half_on_disk_ = false;
  RunUntil(1, 150);
}

TEST(AdoptedCutsTest, ANumberOfPartsThatCannotBeIsNotAdopted) {
  TableSpecs specs;
  specs[kTable].set_id(kTable);
  specs[kTable].set_hashed(true);
  v1::ServingRecords records;
  v1::ServedTable& table = *records.add_tables();
  table.set_table(kTable);
  table.set_replicas(1);
  const auto adopted = [&](uint32_t parts_min) {
    table.set_parts_min(parts_min);
    const std::vector<Op> ops = OpsToAdopt(records, specs);
    return std::any_of(ops.begin(), ops.end(),
                       [](const Op& op) { return op.key == keys::Served(kTable); });
  };
  EXPECT_TRUE(adopted(kServedPartsMax));
  EXPECT_FALSE(adopted(kServedPartsMax + 1));
  EXPECT_FALSE(adopted(4'000'000'000));
}

TEST_F(ServedCutsTest, ALostServerOrCoordinatorOnlyDelaysACut) {
  Start({100, 100, 100}, 40);
  AskFor(2);
  Run(1);
  const v1::ServedTable cut = BesideOf(tables_[kTable]);
  ASSERT_EQ(cut.servers_size(), 2);
  for (const std::string& name : cut.servers()) {
    if (name == tables_[kTable].servers(0)) continue;
    fleet_[name].up = false;
    fleet_[name].copies.clear();
    break;
  }
  NewLeader();
  RunUntil(2, 60);
  EXPECT_EQ(unanswered_, 0);
}

}  // namespace served_cuts_test
}  // namespace hotbed
