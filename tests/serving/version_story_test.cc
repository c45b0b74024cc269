// Stories of versions at the coordinator: published, current, rolled back, pinned, ended.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "planner/coordinator/serving/served_versions.h"
#include "planner/coordinator/state/keys.h"
#include "proto/convert.h"
#include "proto/served_models.h"
#include "tests/coordinator/core_story.h"

namespace hotbed {
namespace version_story_test {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class VersionStory : public CoreStory {
 protected:
  void SetUp() override {
    ASSERT_TRUE(rig_.Register("s1").ok());
    for (const char* name : {"user", "item", "other"}) {
      ASSERT_TRUE(rig_.Create(CoreRig::Table(name)).ok());
    }
    rig_.Tick(1);
    Report("r0");
    Report("r1");
    ASSERT_TRUE(Serve({"user", "item"}).ok());
  }

  absl::Status Serve(const std::vector<std::string>& tables, bool ends = false) {
    v1::ServeTablesRequest request;
    request.set_action(ends ? v1::ServeTablesRequest::REMOVE : v1::ServeTablesRequest::ADD);
    request.set_replicas(2);
    for (const std::string& table : tables) request.add_tables(table);
    return rig_.Call<v1::ServeTablesReply>(request).status();
  }

  // Serving server `name` holds all versions that it was ordered but those of missing_[name].
  v1::ServingOrders Report(const std::string& name) {
    v1::ServingReport report;
    report.set_name(name);
    report.set_run(7);
    report.set_address("127.0.0.1:1");
    report.set_bytes_max(1 << 30);
    std::vector<v1::ServedTable> tables(orders_[name].tables().begin(),
                                        orders_[name].tables().end());
    for (const v1::OrderedCopy& copy : orders_[name].beside()) tables.push_back(copy.table());
    for (const v1::ServedTable& table : tables) {
      v1::ReplicaReport& replica = *report.add_replicas();
      replica.set_table(table.table());
      replica.set_part(ServedPartOn(table, name)->part);
      replica.set_parts(table.parts());
      replica.set_ready(true);
      lookup_rows_[name] += table.table() == orders_[name].tables(0).table() ? rows_asked_ : 0;
      replica.set_lookup_rows_total(lookup_rows_[name]);
      for (const v1::ServedVersion& version : orders_[name].versions()) {
        v1::VersionReport& held = *replica.add_versions();
        held.set_number(version.number());
        held.set_held(!missing_[name].contains(version.name()));
        if (held.held()) {
          failed_ms_[name].erase(version.name());
          continue;
        }
        held.set_trouble("its files are gone");
        held.set_failed_for_ms(failed_ms_[name][version.name()]);
        failed_ms_[name][version.name()] += 500;  // between two reports
      }
    }
    auto orders = rig_.Call<v1::ServingOrders>(report);
    EXPECT_TRUE(orders.ok()) << orders.status();
    return orders_[name] = *orders;
  }

  // Some seconds in which `servers` report.
  void Pass(const std::vector<std::string>& servers = {"r0", "r1"}) {
    for (int i = 0; i < 20; ++i) {
      for (const std::string& server : servers) Report(server);
      rig_.Tick(500);
      rig_.Pump();
    }
  }

  absl::StatusOr<v1::PublishVersionReply> Publish(
      const std::string& name, const std::vector<std::string>& tables = {"user", "item"},
      bool dry_run = false, const std::string& model = "", bool take_over = false,
      bool share = false) {
    v1::PublishVersionRequest request;
    request.set_name(name);
    if (!dry_run) request.set_folder("/versions/" + name);
    for (const std::string& table : tables) request.add_tables(table);
    request.set_dry_run(dry_run);
    request.set_model(model);
    request.set_take_over(take_over);
    request.set_share(share);
    return rig_.Call<v1::PublishVersionReply>(request);
  }

  absl::StatusOr<v1::ChooseVersionReply> Choose(v1::ChooseVersionRequest::Action action,
                                                const std::string& name = "",
                                                const std::string& model = "") {
    v1::ChooseVersionRequest request;
    request.set_model(model);
    request.set_action(action);
    request.set_name(name);
    return rig_.Call<v1::ChooseVersionReply>(request);
  }

  std::string NameOf(uint64_t number) const {
    const auto& versions = rig_.core->state().versions();
    const auto version = versions.find(number);
    return version == versions.end() ? "-" : version->second.name();
  }
  v1::VersionChoice ChoiceFor(const std::string& model) const {
    const v1::ServingMap map = *rig_.core->Serving();
    for (const v1::VersionChoice& choice : map.choices()) {
      if (choice.model() == model) return choice;
    }
    return {};
  }
  std::string Current(const std::string& model = "default") const {
    return NameOf(ChoiceFor(model).current());
  }
  std::string Target(const std::string& model = "default") const {
    return NameOf(ChoiceFor(model).target());
  }
  std::vector<std::string> Kept() const {
    std::vector<std::string> names;
    const v1::ServingMap map = *rig_.core->Serving();
    for (const uint64_t number : map.kept()) names.push_back(NameOf(number));
    return names;
  }

  std::map<std::string, v1::ServingOrders> orders_;
  std::map<std::string, std::set<std::string>> missing_;
  std::map<std::string, std::map<std::string, uint64_t>> failed_ms_;
  uint64_t rows_asked_ = 0;  // between two reports, of each copy of the first table
  std::map<std::string, uint64_t> lookup_rows_;
};

TEST_F(VersionStory, AHotTableGetsAnotherCopyAndAnEventSaysWhy) {
  const auto serve = [&](uint32_t least, uint32_t most) -> absl::StatusOr<v1::ServedTable> {
    v1::ServeTablesRequest request;
    request.set_action(v1::ServeTablesRequest::ADD);
    request.set_replicas(least);
    request.set_replicas_max(most);
    request.add_tables("user");
    const auto reply = rig_.Call<v1::ServeTablesReply>(request);
    if (!reply.ok()) return reply.status();
    return reply->tables(0);
  };
  EXPECT_STATUS(serve(3, 2), kInvalidArgument, "replicas_max is 2, allowed: 0 (as replicas), or 3");
  EXPECT_STATUS(serve(3, 65), kInvalidArgument, "replicas_max is 65");
  const std::vector<std::string> all = {"r0", "r1", "r2"};
  for (const std::string& name : all) Report(name);
  EXPECT_EQ(serve(1, 3)->replicas(), 2u) << "as many as it had";
  for (int i = 0; i < 10; ++i) Pass(all);
  const v1::ServedTable& table = rig_.core->state().served().begin()->second;
  EXPECT_EQ(table.servers_size(), 2);
  rows_asked_ = 750'000;  // 1.5 million per second
  for (int i = 0; i < 6; ++i) Pass(all);
  EXPECT_EQ(table.servers_size(), 3);
  EXPECT_EQ(table.replicas(), 3u);
  const v1::ListEventsReply events = rig_.core->Events({});
  EXPECT_THAT(events.events(events.events_size() - 1).text(),
              AllOf(StartsWith("user is served by r0, r1, r2; 3 copies are wanted, as each of 2"),
                    HasSubstr("rows per second")));
  // In the calm one copy goes after the other, once the others hold all versions.
  ASSERT_TRUE(Publish("v1").ok());
  Pass(all);
  rows_asked_ = 0;
  for (int i = 0; i < 70; ++i) Pass(all);
  EXPECT_EQ(table.replicas(), 2u);
  missing_["r0"] = {"v1"};
  for (int i = 0; i < 70; ++i) Pass(all);
  EXPECT_EQ(table.replicas(), 1u);
  EXPECT_EQ(table.servers_size(), 2) << "r0 cannot answer for r1 yet";
  missing_["r0"].clear();
  Pass(all);
  EXPECT_EQ(table.servers_size(), 1);
  EXPECT_EQ(serve(2, 0)->replicas_max(), 0u) << "a fixed number again";
}

TEST_F(VersionStory, AServedTableKeepsWhatIsNotGiven) {
  v1::ServeTablesRequest request;
  request.add_tables("other");
  request.set_format(v1::SERVED_INT8);
  request.set_replicas(1);
  request.set_replicas_max(2);
  request.set_staleness_ms_max(30'000);
  const auto first = rig_.Call<v1::ServeTablesReply>(request);
  ASSERT_TRUE(first.ok()) << first.status();
  v1::ServeTablesRequest parts;
  parts.add_tables("other");
  parts.set_parts(2);
  const auto cut = rig_.Call<v1::ServeTablesReply>(parts);
  ASSERT_TRUE(cut.ok()) << cut.status();
  v1::ServedTable kept = cut->tables(0);
  EXPECT_EQ(kept.beside().parts(), 2u);
  kept.clear_beside();
  kept.clear_parts_min();
  EXPECT_EQ(kept.ShortDebugString(), first->tables(0).ShortDebugString());
  parts.set_format(v1::SERVED_FP32);
  EXPECT_STATUS(rig_.Call<v1::ServeTablesReply>(parts), kFailedPrecondition, "is served as int8");
  parts.clear_format();
  parts.set_staleness_ms_max(0);
  parts.set_replicas(2);
  const auto given = rig_.Call<v1::ServeTablesReply>(parts);
  ASSERT_TRUE(given.ok()) << given.status();
  EXPECT_EQ(given->tables(0).staleness_ms_max(), 0u);
  EXPECT_EQ(given->tables(0).replicas_max(), 0u) << "a fixed number";
  request.clear_replicas_max();
  request.set_replicas(65);
  EXPECT_STATUS(rig_.Call<v1::ServeTablesReply>(request), kInvalidArgument, "replicas is 65");
}

TEST_F(VersionStory, APersonAsksForOtherPartsAndEventsSayWhatBecomesOfThem) {
  const auto ask = [&](uint32_t parts) -> absl::StatusOr<v1::ServedTable> {
    v1::ServeTablesRequest request;
    request.set_action(v1::ServeTablesRequest::ADD);
    request.add_tables("user");
    request.set_replicas(1);
    request.set_parts(parts);
    const auto reply = rig_.Call<v1::ServeTablesReply>(request);
    if (!reply.ok()) return reply.status();
    return reply->tables(0);
  };
  const auto last_event = [&] { return rig_.core->state().events().rbegin()->second.text(); };
  ASSERT_TRUE(Publish("v1").ok());
  Pass();
  missing_["r1"] = {"v1"};
  const auto asked = ask(2);
  ASSERT_TRUE(asked.ok()) << asked.status();
  EXPECT_EQ(ServedPartsOf(*asked), 1u);
  EXPECT_EQ(asked->beside().servers_size(), 2);
  EXPECT_THAT(last_event(), HasSubstr("2 parts are loaded by r"));
  Pass();
  const auto table = [&] { return rig_.core->Serving()->tables(0); };
  EXPECT_EQ(ServedPartsOf(table()), 1u) << "r1 does not hold the version";
  missing_.clear();
  Report("r0");
  Report("r1");
  rig_.Tick(500);
  rig_.Pump();
  EXPECT_EQ(ServedPartsOf(table()), 2u);
  EXPECT_THAT(last_event(), HasSubstr("it was in 1 part until now"));
  EXPECT_STATUS(ask(1), kFailedPrecondition, "ask again in some seconds");
  Pass();
  EXPECT_FALSE(table().has_beside());
  ASSERT_TRUE(ask(3).ok());
  EXPECT_THAT(last_event(), HasSubstr("until servers have room for 3 parts besides, 1 more, it "
                                      "stays in 2 parts"));
  // Changed again, and back.
  EXPECT_EQ(ask(1)->beside().servers_size(), 1);
  EXPECT_FALSE(ask(2)->has_beside());
}

TEST_F(VersionStory, PartsThatFollowWithoutAVersionSayWhich) {
  for (const char* version : {"v1", "v2"}) {
    ASSERT_TRUE(Publish(version).ok());
    Pass();
    ASSERT_EQ(Current(), version);
  }
  missing_["r1"] = {"v1"};
  v1::ServeTablesRequest request;
  request.set_action(v1::ServeTablesRequest::ADD);
  request.add_tables("user");
  request.set_replicas(1);
  request.set_parts(2);
  ASSERT_TRUE(rig_.Call<v1::ServeTablesReply>(request).ok());
  Pass();
  const auto map = [&] { return *rig_.core->Serving(); };
  ASSERT_EQ(map().awaited_size(), 1);
  EXPECT_EQ(NameOf(map().awaited(0).number()), "v1");
  EXPECT_TRUE(map().awaited(0).has_given_up_in_ms());
  for (int i = 0; i < 31; ++i) Pass();
  EXPECT_EQ(ServedPartsOf(map().tables(0)), 2u);
  EXPECT_THAT(rig_.core->state().events().rbegin()->second.text(),
              AllOf(HasSubstr("it was in 1 part until now; they follow without version v1, which "
                              "part "),
                    HasSubstr(" on r1 has not taken up for 300 s: its files are gone")));
  EXPECT_EQ(Current(), "v2");
}

TEST_F(VersionStory, TheNumbersOfAVocabularyAreServedUnrounded) {
  TableSpec words;
  words.name = "words";
  MakeVocabulary(1000, &words);
  v1::CreateTableRequest create;
  *create.mutable_spec() = ToProto(words);
  const auto created = rig_.Create(create);
  ASSERT_TRUE(created.ok()) << created.status();
  v1::ServeTablesRequest request;
  request.set_action(v1::ServeTablesRequest::ADD);
  request.set_replicas(1);
  request.add_tables("words");
  request.set_format(v1::SERVED_INT8);
  EXPECT_STATUS(rig_.Call<v1::ServeTablesReply>(request), kFailedPrecondition,
                "whose numbers int8 would round");
  request.set_format(v1::SERVED_FP32);
  EXPECT_TRUE(rig_.Call<v1::ServeTablesReply>(request).ok());
}

TEST_F(VersionStory, AVersionIsCurrentWhenAllServersHoldIt) {
  missing_["r1"] = {"v1"};
  const auto published = Publish("v1");
  ASSERT_TRUE(published.ok()) << published.status();
  EXPECT_EQ(published->version().number(), 1u);
  EXPECT_EQ(published->choice().target(), 1u);
  Pass();
  EXPECT_EQ(Current(), "-") << "r1 does not have it";
  EXPECT_EQ(Target(), "v1");
  ASSERT_EQ(orders_["r0"].versions_size(), 1);
  EXPECT_EQ(orders_["r0"].versions(0).folder(), "/versions/v1");
  missing_["r1"].clear();
  Pass();
  EXPECT_EQ(Current(), "v1");
  EXPECT_THAT(orders_["r0"].current(), ElementsAre(1u));
  // A server that is away does not hold it up; one that comes back does not have to be waited for.
  missing_["r1"] = {"v2"};
  ASSERT_TRUE(Publish("v2").ok());
  Pass({"r0"});
  EXPECT_EQ(Current(), "v2");
  Pass();
  EXPECT_EQ(Current(), "v2");
  // The same publication once more: its answer was lost.
  EXPECT_EQ(Publish("v2")->version().number(), 2u);
}

TEST_F(VersionStory, ACoordinatorThatBeginsWaitsForAllReports) {
  missing_["r1"] = {"v1"};
  ASSERT_TRUE(Publish("v1").ok());
  Pass();
  rig_.Start();
  rig_.Tick(1);
  rig_.Pump();
  Report("r0");
  rig_.Tick(600);
  rig_.Pump();
  EXPECT_EQ(Current(), "-") << "r1 may be alive";
  EXPECT_EQ(Target(), "v1") << "the choice is in the store";
}

TEST_F(VersionStory, CopiesOfColumnSlicesFollowThePrimariesAndHaveVersions) {
  v1::CreateTableRequest sliced = CoreRig::Table("sliced");
  sliced.mutable_spec()->set_column_slices(2);
  sliced.mutable_spec()->mutable_optimizer()->set_kind(v1::OPTIMIZER_SGD);
  ASSERT_TRUE(rig_.Create(sliced).ok());
  rig_.Tick(1);
  ASSERT_TRUE(Serve({"sliced"}).ok());
  Pass();
  for (const char* name : {"r0", "r1"}) {
    const v1::ServingOrders& orders = orders_[name];
    ASSERT_EQ(orders.tables_size(), 3);
    for (int i = 0; i < orders.tables_size(); ++i) {
      const std::string& feeder = orders.feeders(i);
      if (orders.specs(i).name() != "sliced") continue;
      EXPECT_EQ(feeder, "") << name;
    }
  }
  for (const char* version : {"v1", "v2"}) {
    EXPECT_STATUS(Publish(version, {"user", "sliced"}), kOk, "");
    Pass();
    EXPECT_EQ(Current(), version);
  }
  EXPECT_STATUS(Choose(v1::ChooseVersionRequest::ROLL_BACK), kOk, "");
  Pass();
  EXPECT_EQ(Current(), "v1");
}

TEST_F(VersionStory, PublicationsThatCannotBeAreRefusedBeforeAnythingIsSaved) {
  for (const bool dry_run : {true, false}) {
    EXPECT_STATUS(Publish("v1", {"other"}, dry_run), kFailedPrecondition,
                  "table other is not served");
    EXPECT_STATUS(Publish("v1", {"nobody"}, dry_run), kNotFound, "nobody");
    EXPECT_STATUS(Publish("v1", {"user", "user"}, dry_run), kInvalidArgument, "twice");
    EXPECT_STATUS(Publish("v1", {}, dry_run), kInvalidArgument, "0 tables");
    for (const char* name : {"", "a/b", ".a", "a b", "latest", "current"}) {
      EXPECT_EQ(Publish(name, {"user"}, dry_run).status().code(),
                absl::StatusCode::kInvalidArgument)
          << name;
    }
  }
  v1::PublishVersionRequest relative;
  relative.set_name("v1");
  relative.add_tables("user");
  relative.set_folder("versions/v1");
  EXPECT_STATUS(rig_.Call<v1::PublishVersionReply>(relative), kInvalidArgument, "absolute path");
  ASSERT_TRUE(Publish("v1", {"user", "item"}, true).ok());
  EXPECT_TRUE(rig_.core->state().versions().empty()) << "a dry run changes nothing";
  ASSERT_TRUE(Publish("v1").ok());
  Pass();
  EXPECT_STATUS(Publish("v1", {"user", "item"}, true), kAlreadyExists, "v1 already");
  EXPECT_STATUS(Publish("v2", {"user"}), kFailedPrecondition, "has table item");
  ASSERT_TRUE(Serve({"item"}, /*ends=*/true).ok());
  ASSERT_TRUE(Publish("v2", {"user"}).ok());
  Pass();
  EXPECT_EQ(Current(), "v2");
}

TEST_F(VersionStory, RolledBackAndPinnedVersionsStayUntilANewOneMayCome) {
  EXPECT_STATUS(Choose(v1::ChooseVersionRequest::ROLL_BACK), kFailedPrecondition, "no version");
  for (const char* name : {"v1", "v2", "v3"}) {
    ASSERT_TRUE(Publish(name).ok());
    Pass();
    ASSERT_EQ(Current(), name);
  }
  EXPECT_THAT(Kept(), ElementsAre("v2", "v3"));
  ASSERT_TRUE(Choose(v1::ChooseVersionRequest::ROLL_BACK).ok());
  EXPECT_STATUS(Choose(v1::ChooseVersionRequest::ROLL_BACK), kFailedPrecondition,
                "v2 is being taken up");
  Pass();
  EXPECT_EQ(Current(), "v2");
  // Once more: the version before, which was dropped, is taken up again.
  ASSERT_TRUE(Choose(v1::ChooseVersionRequest::ROLL_BACK).ok());
  EXPECT_THAT(Kept(), ElementsAre("v1", "v2", "v3"));
  Pass();
  EXPECT_EQ(Current(), "v1");
  EXPECT_STATUS(Choose(v1::ChooseVersionRequest::ROLL_BACK), kFailedPrecondition, "none before it");
  ASSERT_TRUE(Choose(v1::ChooseVersionRequest::PIN, "v2").ok());
  Pass();
  EXPECT_EQ(Current(), "v2");
  ASSERT_TRUE(Publish("v4").ok());
  Pass();
  EXPECT_EQ(Current(), "v2") << "it is pinned";
  EXPECT_THAT(Kept(), ElementsAre("v1", "v2", "v4"));
  ASSERT_TRUE(Choose(v1::ChooseVersionRequest::UNPIN).ok());
  Pass();
  EXPECT_EQ(Current(), "v4");
  EXPECT_STATUS(Choose(v1::ChooseVersionRequest::PIN, "v9"), kNotFound, "there are: v4, v3, v2");
}

TEST_F(VersionStory, TheCurrentVersionCannotEnd) {
  for (const char* name : {"v1", "v2"}) {
    ASSERT_TRUE(Publish(name).ok());
    Pass();
  }
  EXPECT_STATUS(Choose(v1::ChooseVersionRequest::UNPUBLISH, "v2"), kFailedPrecondition,
                "v2 is current");
  ASSERT_TRUE(Choose(v1::ChooseVersionRequest::UNPUBLISH, "v1").ok());
  EXPECT_THAT(Kept(), ElementsAre("v2"));
  // One that is being taken up: the current one stays.
  missing_["r1"] = {"v3"};
  ASSERT_TRUE(Publish("v3").ok());
  Pass();
  ASSERT_TRUE(Choose(v1::ChooseVersionRequest::UNPUBLISH, "v3").ok());
  EXPECT_EQ(Target(), "v2");
  // Its number does not come again.
  EXPECT_EQ(Publish("v3")->version().number(), 4u);
}

TEST_F(VersionStory, OldVersionsAreForgottenButThoseThatAreKept) {
  ASSERT_TRUE(Publish("first").ok());
  Pass();
  ASSERT_TRUE(Choose(v1::ChooseVersionRequest::PIN, "first").ok());
  for (int i = 0; i < 120; ++i) ASSERT_TRUE(Publish(absl::StrCat("v", i)).ok());
  EXPECT_EQ(rig_.core->state().versions().size(), 100u);
  EXPECT_EQ(Current(), "first");
  EXPECT_THAT(Kept(), ElementsAre("first", "v119"));
}

TEST_F(VersionStory, EachModelHasACurrentVersion) {
  ASSERT_TRUE(Serve({"other"}).ok());
  ASSERT_TRUE(Publish("a1", {"user", "item"}, false, "ads").ok());
  ASSERT_TRUE(Publish("b1", {"other"}, false, "shop").ok());
  Pass();
  EXPECT_EQ(Current("ads"), "a1");
  EXPECT_EQ(Current("shop"), "b1");
  // Without a name: the model that the tables belong to. Its version waits for nobody else's.
  missing_["r1"] = {"a2"};
  EXPECT_EQ(Publish("a2")->version().model(), "ads");
  EXPECT_EQ(Publish("b2", {"other"})->version().model(), "shop");
  Pass();
  EXPECT_EQ(Current("ads"), "a1");
  EXPECT_EQ(Target("ads"), "a2");
  EXPECT_EQ(Current("shop"), "b2");
  EXPECT_THAT(orders_["r0"].current(), ElementsAre(1u, 4u));
  missing_.clear();
  Pass();
  EXPECT_THAT(Kept(), ElementsAre("a1", "b1", "a2", "b2"));
  EXPECT_STATUS(Choose(v1::ChooseVersionRequest::ROLL_BACK), kInvalidArgument, "ads, shop");
  EXPECT_STATUS(Choose(v1::ChooseVersionRequest::ROLL_BACK, "", "x"), kNotFound, "ads, shop");
  ASSERT_TRUE(Choose(v1::ChooseVersionRequest::ROLL_BACK, "", "ads").ok());
  Pass();
  EXPECT_EQ(Current("ads"), "a1");
  EXPECT_EQ(Current("shop"), "b2");
  ASSERT_TRUE(Choose(v1::ChooseVersionRequest::PIN, "b1").ok());
  ASSERT_TRUE(Choose(v1::ChooseVersionRequest::UNPIN, "", "ads").ok());
  Pass();
  EXPECT_EQ(Current("ads"), "a2");
  EXPECT_EQ(Current("shop"), "b1");
  rig_.Start();  // the store has it all
  rig_.Tick(1);
  rig_.Pump();
  EXPECT_EQ(Current("ads"), "a2");
  EXPECT_EQ(Current("shop"), "b1");
  EXPECT_EQ(Current(), "-");
}

TEST_F(VersionStory, ATableMayBelongToSeveralModels) {
  const auto share = [&](const std::string& name, const std::vector<std::string>& tables,
                         bool take_over = false) {
    return Publish(name, tables, false, "shop", take_over, /*share=*/true);
  };
  ASSERT_TRUE(Serve({"other"}).ok());
  ASSERT_TRUE(Publish("v1").ok());
  Pass();
  EXPECT_STATUS(Publish("s1", {"item", "other"}, true, "shop"), kFailedPrecondition, "--share");
  EXPECT_STATUS(share("s1", {"item"}, /*take_over=*/true), kInvalidArgument, "share and take_over");
  ASSERT_TRUE(share("s1", {"item", "other"}).ok());
  Pass();
  EXPECT_EQ(Current(), "v1");
  EXPECT_EQ(Current("shop"), "s1");
  // Each is published and rolled back by itself from then on, and keeps its tables.
  EXPECT_STATUS(Publish("v2"), kInvalidArgument, "default, shop");
  ASSERT_TRUE(Publish("v2", {"user", "item"}, false, "default").ok());
  ASSERT_TRUE(Publish("s2", {"item", "other"}, false, "shop").ok());
  Pass();
  ASSERT_TRUE(Choose(v1::ChooseVersionRequest::ROLL_BACK, "", "shop").ok());
  Pass();
  EXPECT_EQ(Current(), "v2");
  EXPECT_EQ(Current("shop"), "s1");
  for (const auto& [number, version] : rig_.core->state().versions()) {
    EXPECT_EQ(version.tables_size(), 2) << version.name();
  }
  // The table's copies have the versions of both.
  EXPECT_THAT(Kept(), ElementsAre("v1", "s1", "v2", "s2"));
  EXPECT_EQ(orders_["r0"].current_size(), 2);
  // A third one takes it from both, and a model that loses a table goes on with the others.
  ASSERT_TRUE(Publish("w1", {"item"}, false, "web", /*take_over=*/true).ok());
  Pass();
  for (const auto& [number, version] : rig_.core->state().versions()) {
    EXPECT_EQ(version.tables_size(), 1) << version.name();
  }
  EXPECT_EQ(Current("shop"), "s1");
}

TEST_F(VersionStory, ASharedTableIsTakenOnce) {
  ASSERT_TRUE(Publish("v1").ok());
  Pass();
  ASSERT_TRUE(Publish("s1", {"item"}, false, "shop", false, /*share=*/true).ok());
  Pass();
  ASSERT_TRUE(Publish("v2", {"user", "item"}, false, "default", /*take_over=*/true).ok());
  Pass();
  EXPECT_EQ(Current("shop"), "-") << "it had no other table";
  ASSERT_TRUE(Publish("v3").ok());
  ASSERT_TRUE(Publish("s2", {"item"}, false, "shop", false, /*share=*/true).ok());
  Pass();
  for (const char* const name : {"v2", "v1"}) {
    ASSERT_TRUE(Choose(v1::ChooseVersionRequest::PIN, name).ok());
    Pass();
    EXPECT_EQ(Current(), name);
    EXPECT_EQ(Current("shop"), "s2");
  }
}

TEST_F(VersionStory, ATakeOverHappensOnceAndEndsAShare) {
  const auto sizes = [&] {
    std::map<std::string, int> sizes;
    for (const auto& [number, version] : rig_.core->state().versions()) {
      sizes[version.name()] = version.tables_size();
    }
    return sizes;
  };
  using Sizes = std::map<std::string, int>;
  ASSERT_TRUE(Serve({"other"}).ok());
  ASSERT_TRUE(Publish("d1", {"item"}).ok());
  Pass();
  ASSERT_TRUE(Publish("d2", {"user", "item"}, false, "default", /*take_over=*/true).ok());
  Pass();
  ASSERT_TRUE(Publish("s1", {"user", "other"}, false, "shop", false, /*share=*/true).ok());
  // Also before the one that shares is current.
  ASSERT_TRUE(Publish("s2", {"user", "other"}, false, "shop").ok());
  Pass();
  // The default model goes back to a version without the table, and forth: shop keeps it.
  ASSERT_TRUE(Choose(v1::ChooseVersionRequest::ROLL_BACK, "", "default").ok());
  Pass();
  EXPECT_EQ(Current(), "d1");
  ASSERT_TRUE(Choose(v1::ChooseVersionRequest::PIN, "d2").ok());
  Pass();
  EXPECT_EQ(Current(), "d2");
  EXPECT_EQ(Current("shop"), "s2");
  EXPECT_EQ(sizes(), (Sizes{{"d1", 1}, {"d2", 2}, {"s1", 2}, {"s2", 2}}));
  // Shop has the table already, and takes it from the other one now.
  missing_["r1"] = {"s3"};
  ASSERT_TRUE(Publish("s3", {"user", "other"}, false, "shop", /*take_over=*/true).ok());
  Pass();
  EXPECT_EQ(sizes()["d2"], 2) << "it is not current yet";
  missing_.clear();
  Pass();
  EXPECT_EQ(Current("shop"), "s3");
  EXPECT_EQ(sizes(), (Sizes{{"d1", 1}, {"d2", 1}, {"s1", 2}, {"s2", 2}, {"s3", 2}}));
  EXPECT_STATUS(Publish("d3", {"user", "item"}, true, "default"), kFailedPrecondition,
                "belongs to model shop");
}

TEST_F(VersionStory, ATableBelongsToOneModelUnlessItIsShared) {
  ASSERT_TRUE(Publish("v1").ok());
  ASSERT_TRUE(Publish("v2").ok());
  Pass();
  EXPECT_STATUS(Publish("s1", {"item"}, true, "shop"), kFailedPrecondition,
                "item belongs to model default");
  EXPECT_STATUS(Publish("s1", {"item"}, true, "a b"), kInvalidArgument, "of a model");
  EXPECT_STATUS(Publish("v3", {"user"}), kFailedPrecondition, "has table item");
  missing_["r1"] = {"s1"};
  ASSERT_TRUE(Publish("s1", {"item"}, false, "shop", /*take_over=*/true).ok());
  Pass();
  // Until the new version is current, the table stays where it is.
  EXPECT_STATUS(Publish("v3", {"user", "item"}), kInvalidArgument, "default, shop");
  ASSERT_TRUE(Publish("v3", {"user", "item"}, false, "default").ok());
  Pass();
  EXPECT_EQ(Current(), "v3");
  EXPECT_EQ(Current("shop"), "-");
  missing_.clear();
  Pass();
  EXPECT_EQ(Current("shop"), "s1");
  const auto& versions = rig_.core->state().versions();
  for (const auto& [number, version] : versions) {
    EXPECT_EQ(version.tables_size(), 1) << version.name();
  }
  ASSERT_TRUE(Publish("v4", {"user"}).ok());
  // All tables of a model that has no other: it is no more.
  ASSERT_TRUE(Publish("v5", {"user", "item"}, false, "default", /*take_over=*/true).ok());
  Pass();
  EXPECT_EQ(Current(), "v5");
  EXPECT_EQ(rig_.core->state().version_choices().size(), 1u);
  EXPECT_EQ(Publish("v6")->version().model(), "default");
}

TEST(NarrowCurrentTest, ALookupGetsOneModelOrMustNameIt) {
  const auto version = [](const std::string& model, const std::vector<uint32_t>& tables) {
    v1::ServedVersion one;
    one.set_model(model);
    one.mutable_tables()->Assign(tables.begin(), tables.end());
    return one;
  };
  const v1::ServedVersion ads = version("ads", {1, 2}), shop = version("shop", {2, 3});
  const auto narrow = [&](const std::string& model, uint32_t table,
                          const std::vector<uint32_t>& tables) -> std::string {
    std::vector<const v1::ServedVersion*> current = {&ads, &shop};
    const absl::Status status = NarrowCurrent(model, table, "t", tables, &current);
    if (!status.ok()) return std::string(status.message());
    return current.empty() ? "none" : current[0]->model();
  };
  EXPECT_EQ(narrow("", 1, {1}), "ads");
  EXPECT_EQ(narrow("", 2, {1, 2}), "ads");
  EXPECT_EQ(narrow("", 2, {3, 2}), "shop");
  EXPECT_EQ(narrow("shop", 2, {1, 2}), "shop");
  EXPECT_EQ(narrow("shop", 1, {1, 2}), "none");
  EXPECT_EQ(narrow("", 4, {4}), "none");
  EXPECT_EQ(narrow("x", 2, {2}), "none");
  EXPECT_THAT(narrow("", 2, {2}), HasSubstr("the models ads, shop: name one, as \"current/ads\""));
  EXPECT_THAT(narrow("", 2, {1, 2, 3}), HasSubstr("name one"));
  EXPECT_EQ(ModelOfCurrent("current"), "");
  EXPECT_EQ(ModelOfCurrent("current/shop"), "shop");
  EXPECT_EQ(ModelOfCurrent("currently"), std::nullopt);
  EXPECT_EQ(ModelOfCurrent("v1"), std::nullopt);
}

TEST_F(VersionStory, AModelWhoseTablesAreNotServedCanEnd) {
  ASSERT_TRUE(Publish("s1", {"item"}, false, "shop").ok());
  Pass();
  EXPECT_STATUS(Choose(v1::ChooseVersionRequest::UNPUBLISH, "s1"), kFailedPrecondition,
                "s1 is current");
  ASSERT_TRUE(Serve({"item"}, /*ends=*/true).ok());
  ASSERT_TRUE(Choose(v1::ChooseVersionRequest::UNPUBLISH, "s1").ok());
  EXPECT_FALSE(rig_.core->state().version_choices().contains("shop"));
  EXPECT_EQ(Publish("v1", {"user"})->version().number(), 2u) << "its number does not come again";
}

TEST_F(VersionStory, ModelsAreLimited) {
  for (int i = 0; i < 16; ++i) {
    ASSERT_TRUE(Publish(absl::StrCat("v", i), {"user"}, false, absl::StrCat("m", i), true).ok());
  }
  EXPECT_STATUS(Publish("v16", {"user"}, false, "m16", true), kResourceExhausted, "limit is 16");
}

// Records of a release that had one line of versions.
TEST_F(VersionStory, VersionsWithoutAModelAreOfTheDefaultOne) {
  ASSERT_TRUE(Publish("v1").ok());
  Pass();
  ClusterState state;
  v1::ServedVersion version = rig_.core->state().versions().at(1);
  version.clear_model();
  v1::VersionChoice choice = ChoiceFor("default");
  choice.clear_model();
  state.Apply({{Op::Kind::kPut, keys::Version(1), version.SerializeAsString()},
               {Op::Kind::kPut, keys::kVersionChoiceKey, choice.SerializeAsString()}},
              1);
  EXPECT_EQ(state.versions().at(1).model(), "default");
  ASSERT_NE(CurrentOf(state.versions(), state.version_choices(), "default"), nullptr);
  EXPECT_EQ(CurrentOf(state.versions(), state.version_choices(), "default")->name(), "v1");
}

}  // namespace version_story_test
}  // namespace hotbed
