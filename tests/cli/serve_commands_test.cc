#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/base/command.h"
#include "tests/cli/cli_fixture.h"

namespace hotbed {
namespace {

using ::testing::HasSubstr;
using ServeCommandsTest = RunCliTest;

v1::ServedTable Served(std::initializer_list<const char*> servers) {
  v1::ServedTable table;
  table.set_table(1);
  table.set_format(v1::SERVED_INT8);
  table.set_replicas(2);
  table.set_staleness_ms_max(30'000);
  for (const char* server : servers) table.add_servers(server);
  return table;
}

TEST_F(ServeCommandsTest, AddAsksForWhatTheFlagsSay) {
  *fake_.serving.reply.add_tables() = Served({"r0", "r1"});
  Answer answer =
      RunAt({"serve", "add", "user", "--format=int8", "--replicas=2", "--staleness-max=30s"});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_EQ(answer.out, "user is served as int8 by r0, r1; copies older than 30s refuse lookups\n");
  ASSERT_EQ(fake_.serving.served.size(), 1u);
  const v1::ServeTablesRequest asked = fake_.serving.served[0];
  EXPECT_EQ(asked.action(), v1::ServeTablesRequest::ADD);
  ASSERT_EQ(asked.tables_size(), 1);
  EXPECT_EQ(asked.tables(0), "user");
  EXPECT_EQ(asked.format(), v1::SERVED_INT8);
  EXPECT_EQ(asked.replicas(), 2u);
  EXPECT_EQ(asked.staleness_ms_max(), 30'000u);
  EXPECT_FALSE(asked.dry_run());

  answer = RunAt({"serve", "add", "user", "--dry-run", "-o", "json"});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_EQ(answer.json()["dry_run"], true);
  EXPECT_EQ(answer.json()["tables"][0]["servers"], (std::vector<std::string>{"r0", "r1"}));
  EXPECT_TRUE(fake_.serving.served[1].dry_run());
  // A table that is served keeps what is not given.
  EXPECT_FALSE(fake_.serving.served[1].has_format());
  EXPECT_EQ(fake_.serving.served[1].replicas(), 0u);
  EXPECT_FALSE(fake_.serving.served[1].has_staleness_ms_max());
  EXPECT_EQ(RunAt({"serve", "add", "user", "--staleness-max=0", "--format=fp32"}).code, 0);
  EXPECT_TRUE(fake_.serving.served[2].has_staleness_ms_max());
  EXPECT_TRUE(fake_.serving.served[2].has_format());
}

TEST_F(ServeCommandsTest, ANumberOfCopiesMayHaveLimits) {
  v1::ServedTable table = Served({"r0", "r1"});
  table.set_replicas_min(1);
  table.set_replicas_max(6);
  *fake_.serving.reply.add_tables() = table;
  EXPECT_EQ(RunAt({"serve", "add", "user", "--format=int8", "--replicas=1..6"}).code, 0);
  EXPECT_EQ(fake_.serving.served[0].replicas(), 1u);
  EXPECT_EQ(fake_.serving.served[0].replicas_max(), 6u);
  EXPECT_EQ(RunAt({"serve", "add", "user", "--format=int8", "--replicas=3..3"}).code, 0);
  EXPECT_EQ(fake_.serving.served[1].replicas(), 3u);
  EXPECT_EQ(fake_.serving.served[1].replicas_max(), 0u) << "a fixed number";
  *fake_.serving.map.add_tables() = table;
  fake_.serving.map.add_specs()->set_name("user");
  v1::ServingServerInfo& server = *fake_.serving.map.add_servers();
  server.set_name("r0");
  server.set_alive(true);
  v1::ReplicaReport& replica = *server.add_replicas();
  replica.set_table(1);
  replica.set_lookup_rows_per_s(1'234'567);
  const nlohmann::json json = RunAt({"serve", "status", "-o", "json"}).json()["tables"][0];
  EXPECT_EQ(json["replicas"], 2);
  EXPECT_EQ(json["replicas_min"], 1);
  EXPECT_EQ(json["replicas_max"], 6);
  EXPECT_EQ(json["copies"][0]["lookup_rows_per_s"], 1'234'567);
  const Answer text = RunAt({"serve", "status"});
  EXPECT_THAT(text.out, HasSubstr("2 (1..6)"));
  EXPECT_THAT(text.out, HasSubstr("1,234,567"));
}

TEST_F(ServeCommandsTest, PartsAreAskedForAndShown) {
  v1::ServedTable table = Served({"r0", "r1", "r2"});
  table.set_parts(2);
  for (const uint32_t part : {0, 1, 0}) table.add_server_parts(part);
  *fake_.serving.reply.add_tables() = table;
  Answer answer = RunAt({"serve", "add", "user", "--format=int8", "--parts=2", "--replicas=2"});
  EXPECT_EQ(
      answer.out,
      "user is served as int8 in 2 parts by r0, r1, r2; 1 copy waits for a serving server with "
      "room; copies older than 30s refuse lookups\n")
      << answer.err;
  EXPECT_EQ(fake_.serving.served[0].parts(), 2u);
  *fake_.serving.map.add_tables() = table;
  fake_.serving.map.add_specs()->set_name("user");
  for (const char* name : {"r0", "r1"}) {
    v1::ServingServerInfo& server = *fake_.serving.map.add_servers();
    server.set_name(name);
    server.set_alive(true);
    v1::ReplicaReport& replica = *server.add_replicas();
    replica.set_table(1);
    replica.set_part(1);
    replica.set_parts(2);
    replica.set_ready(true);
  }
  const nlohmann::json copies =
      RunAt({"serve", "status", "-o", "json"}).json()["tables"][0]["copies"];
  ASSERT_EQ(copies.size(), 3u);
  EXPECT_EQ(copies[0]["state"], "ordered") << "it reports another part than is ordered";
  EXPECT_EQ(copies[1]["state"], "ready");
  EXPECT_EQ(copies[2]["part"], 0);
  answer = RunAt({"serve", "status"});
  EXPECT_THAT(answer.out, HasSubstr("2 of 2"));
  EXPECT_THAT(answer.out, HasSubstr("waits for a server with room"));
}

TEST_F(ServeCommandsTest, PartsThatAreToFollowAreShown) {
  v1::ServedTable table = Served({"r0"});
  table.mutable_beside()->set_parts(2);
  *fake_.serving.reply.add_tables() = table;
  EXPECT_THAT(
      RunAt({"serve", "add", "user", "--format=int8", "--parts=2"}).out,
      HasSubstr("; it is to be in 2 parts, which wait for servers with room for them besides"));
  table.mutable_beside()->add_servers("r1");
  table.mutable_beside()->add_server_parts(1);
  *fake_.serving.reply.mutable_tables(0) = table;
  EXPECT_THAT(RunAt({"serve", "add", "user", "--format=int8", "--parts=2"}).out,
              HasSubstr("it is to be in 2 parts, which are loaded first, by r1"));
  *fake_.serving.map.add_tables() = table;
  fake_.serving.map.add_specs()->set_name("user");
  const nlohmann::json json = RunAt({"serve", "status", "-o", "json"}).json()["tables"][0];
  EXPECT_EQ(json["copies"].size(), 1u);
  EXPECT_EQ(json["beside"]["parts"], 2);
  EXPECT_EQ(json["beside"]["copies"][0]["server"], "r1");
  const std::string text = RunAt({"serve", "status"}).out;
  EXPECT_THAT(text, HasSubstr("1 of 2, to follow"));
  EXPECT_THAT(text, HasSubstr("waits for a server with room"));
  v1::ServedVersion& version = *fake_.serving.map.add_versions();
  version.set_number(4);
  version.set_name("v4");
  v1::AwaitedVersion& awaited = *fake_.serving.map.add_awaited();
  awaited.set_table(table.table());
  awaited.set_number(4);
  awaited.set_server("r1");
  awaited.set_part(1);
  awaited.set_parts(2);
  awaited.set_trouble("its files are gone");
  EXPECT_THAT(
      RunAt({"serve", "status"}).out,
      HasSubstr("user waits with its new parts for version v4, which part 2 of 2 on r1 does "
                "not hold: its files are gone; it is current, so they wait"));
  awaited.set_given_up_in_ms(61'500);
  EXPECT_THAT(RunAt({"serve", "status"}).out, HasSubstr("they follow without it in 61 s\n"));
  const nlohmann::json beside =
      RunAt({"serve", "status", "-o", "json"}).json()["tables"][0]["beside"];
  EXPECT_EQ(beside["awaited_versions"][0]["version"], "v4");
  EXPECT_EQ(beside["awaited_versions"][0]["given_up_in_ms"], 61'500);
  awaited.set_joins(true);
  EXPECT_THAT(RunAt({"serve", "status"}).out,
              HasSubstr("if that goes on for 61 s, the table stays in the parts that it has\n"));
  fake_.serving.map.clear_awaited();
  table.mutable_beside()->set_leaves(true);
  *fake_.serving.map.mutable_tables(0) = table;
  EXPECT_THAT(RunAt({"serve", "status"}).out, HasSubstr("2 of 2, goes"));
}

TEST_F(ServeCommandsTest, WithoutRoomAddSaysSo) {
  *fake_.serving.reply.add_tables() = Served({});
  const Answer answer = RunAt({"serve", "add", "user", "--format=int8"});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_EQ(answer.out,
            "user is served as int8 by no server yet: none has room for it; copies older than 30s "
            "refuse lookups\n");
}

TEST_F(ServeCommandsTest, WrongFlagsAreRefusedBeforeTheCall) {
  for (const char* flag :
       {"--format=int3", "--replicas=0", "--replicas=65", "--replicas=3..2", "--replicas=2..65",
        "--replicas=2..", "--parts=65", "--staleness-max=3x", "--staleness-max=5"}) {
    EXPECT_EQ(RunAt({"serve", "add", "user", flag}).code, kExitUsage) << flag;
  }
  EXPECT_THAT(RunAt({"serve", "add", "user", "--staleness-max=5"}).err,
              HasSubstr("\"5\" has no unit; write 5s or 5ms"));
  EXPECT_NE(RunAt({"serve", "add"}).code, 0);
  EXPECT_TRUE(fake_.serving.served.empty());
}

TEST_F(ServeCommandsTest, ALimitThatCopiesOftenExceedIsTold) {
  v1::ServedTable table = Served({"r0", "r1"});
  table.set_staleness_ms_max(200);
  *fake_.serving.reply.add_tables() = table;
  EXPECT_THAT(
      RunAt({"serve", "add", "user", "--staleness-max=200ms"}).out,
      HasSubstr("copies older than 200ms refuse lookups, and they are up to half a second"));
  *fake_.serving.map.add_tables() = table;
  fake_.serving.map.add_specs()->set_name("user");
  EXPECT_THAT(RunAt({"serve", "status"}).out, HasSubstr("200ms"));
}

TEST_F(ServeCommandsTest, CopiesForWhichThereIsNoServerAreTold) {
  v1::ServedTable table = Served({"r0", "r1"});
  table.set_replicas(4);
  *fake_.serving.reply.add_tables() = table;
  EXPECT_THAT(RunAt({"serve", "add", "user", "--replicas=4"}).out,
              HasSubstr("by r0, r1; 2 copies wait for a serving server with room"));
}

TEST_F(ServeCommandsTest, RemoveEndsServing) {
  *fake_.serving.reply.add_tables() = Served({"r0"});
  Answer answer = RunAt({"serve", "remove", "user"});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_EQ(answer.out, "user is not served any more\n");
  EXPECT_EQ(fake_.serving.served[0].action(), v1::ServeTablesRequest::REMOVE);
  fake_.serving.status = {grpc::StatusCode::NOT_FOUND, "table user is not served"};
  answer = RunAt({"serve", "remove", "user"});
  EXPECT_NE(answer.code, 0);
  EXPECT_THAT(answer.err, HasSubstr("table user is not served"));
}

TEST_F(ServeCommandsTest, StatusShowsEachCopy) {
  Answer answer = RunAt({"serve", "status"});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_THAT(answer.out, HasSubstr("No serving server reports"));
  EXPECT_THAT(answer.out, HasSubstr("No table is served"));

  v1::ServedTable& table = *fake_.serving.map.add_tables() = Served({"r0", "r1", "r2"});
  table.set_replicas(4);
  v1::TableSpec& spec = *fake_.serving.map.add_specs();
  spec.set_id(1);
  spec.set_name("user");
  for (const char* name : {"r0", "r1", "r2"}) {
    v1::ServingServerInfo& server = *fake_.serving.map.add_servers();
    server.set_name(name);
    server.set_http_address("127.0.0.1:7480");
    server.set_alive(std::string(name) != "r2");
    if (std::string(name) == "r1") continue;  // it was ordered a moment ago
    v1::ReplicaReport& replica = *server.add_replicas();
    replica.set_table(1);
    replica.set_ready(true);
    replica.set_rows(123'456);
    replica.set_memory_rows(100'000);
    replica.set_device_rows(20'000);
    replica.set_on_disk(true);
    replica.set_disk_bytes(7 << 20);
    replica.set_age_ms(250);
    server.set_silent_ms(10);
  }
  answer = RunAt({"serve", "status"});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_THAT(answer.out, HasSubstr("123,456"));
  EXPECT_THAT(answer.out, HasSubstr("260 ms"));
  EXPECT_THAT(answer.out, HasSubstr("7 MiB"));
  EXPECT_THAT(answer.out, HasSubstr("127.0.0.1:7480"));
  EXPECT_THAT(answer.out, HasSubstr("waits for a server with room"));
  const nlohmann::json copies =
      RunAt({"serve", "status", "-o", "json"}).json()["tables"][0]["copies"];
  ASSERT_EQ(copies.size(), 3u);
  EXPECT_EQ(copies[0]["state"], "ready");
  EXPECT_EQ(copies[0]["age_ms"], 260);
  EXPECT_EQ(copies[0]["memory_rows"], 100'000);
  EXPECT_EQ(copies[0]["device_rows"], 20'000);
  EXPECT_EQ(copies[1]["state"], "ordered");
  EXPECT_TRUE(copies[1]["age_ms"].is_null());
  EXPECT_EQ(copies[2]["state"], "away");
}

TEST_F(ServeCommandsTest, PublishAsksBeforeItSaves) {
  fake_.serving.status = {grpc::StatusCode::FAILED_PRECONDITION, "table item is not served"};
  const Answer refused = RunAt({"publish", "user", "item", "/nowhere/versions", "--name=v1"});
  EXPECT_EQ(refused.code, kExitFailed);
  EXPECT_THAT(refused.err, HasSubstr("table item is not served"));
  ASSERT_EQ(fake_.serving.published.size(), 1u);
  const v1::PublishVersionRequest& asked = fake_.serving.published[0];
  EXPECT_TRUE(asked.dry_run());
  EXPECT_EQ(asked.name(), "v1");
  EXPECT_THAT(asked.tables(), ::testing::ElementsAre("user", "item"));
  fake_.serving.status = grpc::Status::OK;
  const Answer dry = RunAt({"publish", "user", "/nowhere/versions", "--name=v1", "--dry-run"});
  EXPECT_EQ(dry.code, kExitOk) << dry.err;
  EXPECT_EQ(dry.out, "version v1 of user would be published\n");
  EXPECT_EQ(fake_.serving.published.back().model(), "");
  RunAt({"publish", "user", "/nowhere/versions", "--model=ads", "--take-over", "--dry-run"});
  EXPECT_EQ(fake_.serving.published.back().model(), "ads");
  EXPECT_TRUE(fake_.serving.published.back().take_over());
  EXPECT_FALSE(fake_.serving.published.back().share());
  RunAt({"publish", "user", "/nowhere/versions", "--model=ads", "--share", "--dry-run"});
  EXPECT_TRUE(fake_.serving.published.back().share());
  EXPECT_EQ(RunAt({"publish", "user", "/v", "--share", "--take-over", "--dry-run"}).code,
            kExitUsage);
}

TEST_F(ServeCommandsTest, WithoutAPlaceThatOfTheNewestVersionIsTaken) {
  const Answer none = RunAt({"publish", "user", "item", "--model=ads", "--name=v1"});
  EXPECT_EQ(none.code, kExitFailed);
  EXPECT_THAT(none.err, HasSubstr("no PLACE is given, and model ads has no version yet"));
  for (const char* folder : {"/versions/v1", "/newer/v2", "/others/v3"}) {
    v1::ServedVersion& version = *fake_.serving.map.add_versions();
    version.set_folder(folder);
    version.set_model(folder == std::string("/others/v3") ? "search" : "ads");
  }
  // The checkpoint is looked for there.
  const auto publish = [&](const char* last) {
    return RunAt({"publish", "user", last, "--model=ads", "--from-checkpoint=v0", "--dry-run"}).err;
  };
  EXPECT_THAT(publish("item"), HasSubstr("/newer/v0"));
  // A word with a slash is a place, unless there is such a table.
  EXPECT_THAT(publish("ads/item"), HasSubstr("/ads/item/v0"));
  fake_.map.add_tables()->set_name("ads/item");
  EXPECT_THAT(publish("ads/item"), HasSubstr("/newer/v0"));
  ASSERT_EQ(fake_.serving.published.size(), 4u);
  const auto tables = [this](size_t call) { return fake_.serving.published[call].tables(); };
  EXPECT_THAT(tables(1), ::testing::ElementsAre("user", "item"));
  EXPECT_THAT(tables(2), ::testing::ElementsAre("user"));
  EXPECT_THAT(tables(3), ::testing::ElementsAre("user", "ads/item"));
  EXPECT_TRUE(fake_.serving.published[0].dry_run()) << "it is refused before it saves";
  fake_.serving.status = {grpc::StatusCode::NOT_FOUND, "table \"versions\" does not exist"};
  EXPECT_THAT(RunAt({"publish", "user", "versions"}).err,
              HasSubstr("does not exist; a PLACE has a '/' in it, such as ./versions"));
}

TEST_F(ServeCommandsTest, WrongPublicationsAreRefusedBeforeAnyCall) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"publish"},
        {"publish", "/v"},
        {"publish", "user", "/v", "--name", ""},
        {"publish", "user", "/v", "--at-step=x"},
        {"publish", "user", "/v", "--group=g"},
        {"publish", "user", "/v", "--from-checkpoint=v1", "--at-step=3"},
        {"publish", "user", "/v", "--from-checkpoint", ""},
        {"publish", "user", "/v", "--from-checkpoint=../v1"},
        {"publish", "user", "/v", "--compress=lz4"},
        {"publish", "user", "s3:///x"},
        {"publish", "user", "server:x"},
        {"serve", "pin"},
        {"serve", "pin", "v1", "--off"},
        {"serve", "pin", "v1", "--model=ads"},
        {"serve", "unpublish"}}) {
    EXPECT_EQ(RunAt(words).code, kExitUsage) << words.back();
  }
  EXPECT_TRUE(fake_.serving.published.empty());
  EXPECT_TRUE(fake_.serving.chosen.empty());
  EXPECT_THAT(RunAt({"serve", "pin", "v1", "--off"}).err, HasSubstr("leave out one of them"));
  for (const std::vector<std::string>& words : {std::vector<std::string>{"topk", "user"},
                                                {"topk", "user", "--id=1", "--k=0"},
                                                {"topk", "user", "--id=1", "--metric=euclid"},
                                                {"topk", "user", "--id=x"},
                                                {"topk", "user", "--id=1", "--version=v1"}}) {
    EXPECT_EQ(RunAt(words).code, kExitUsage) << words.back();
  }
}

TEST_F(ServeCommandsTest, VersionsArePinnedRolledBackAndEnded) {
  v1::ChooseVersionReply& reply = fake_.serving.choice;
  reply.mutable_version()->set_name("v1");
  reply.mutable_version()->set_number(1);
  reply.mutable_version()->set_folder("/versions/v1");
  reply.mutable_choice()->set_target(1);
  reply.mutable_choice()->set_pinned(true);
  Answer answer = RunAt({"serve", "pin", "v1", "--no-wait"});
  EXPECT_EQ(answer.out,
            "version v1 is to be current, as soon as all servers have it, and stays so when newer "
            "ones come\n")
      << answer.err;
  EXPECT_EQ(fake_.serving.chosen.back().action(), v1::ChooseVersionRequest::PIN);
  EXPECT_EQ(fake_.serving.chosen.back().name(), "v1");
  reply.mutable_choice()->set_pinned(false);
  answer = RunAt({"serve", "pin", "--off", "--dry-run"});
  EXPECT_EQ(answer.out, "version v1 would be current\n") << answer.err;
  EXPECT_EQ(fake_.serving.chosen.back().action(), v1::ChooseVersionRequest::UNPIN);
  EXPECT_TRUE(fake_.serving.chosen.back().dry_run());
  // The map says that it has become current.
  fake_.serving.map.add_choices()->set_current(1);
  answer = RunAt({"serve", "rollback", "--model=ads", "-o", "json"});
  EXPECT_EQ(answer.code, kExitOk) << answer.err;
  EXPECT_EQ(fake_.serving.chosen.back().model(), "ads");
  EXPECT_EQ(answer.json()["current"], true);
  EXPECT_EQ(fake_.serving.chosen.back().action(), v1::ChooseVersionRequest::ROLL_BACK);
  answer = RunAt({"serve", "unpublish", "v1"});
  EXPECT_EQ(answer.out, "version v1 is not published any more; its files stay in /versions/v1\n");
  EXPECT_EQ(fake_.serving.chosen.back().action(), v1::ChooseVersionRequest::UNPUBLISH);
}

TEST_F(ServeCommandsTest, StatusShowsVersionsAndTheirCopies) {
  v1::ServingMap& map = fake_.serving.map;
  *map.add_tables() = Served({"r0"});
  map.add_specs()->set_id(1);
  map.mutable_specs(0)->set_name("user");
  for (uint64_t number = 1; number <= 3; ++number) {
    v1::ServedVersion& version = *map.add_versions();
    version.set_number(number);
    version.set_name(absl::StrCat("v", number));
    version.set_folder(absl::StrCat("/versions/v", number));
    version.set_model("ads");
    version.add_tables(1);
  }
  map.add_choices()->set_current(2);
  map.mutable_choices(0)->set_target(3);
  map.mutable_choices(0)->set_model("ads");
  map.add_kept(2);
  map.add_kept(3);
  v1::ServingServerInfo& server = *map.add_servers();
  server.set_name("r0");
  server.set_failure_domain("zone-a");
  server.set_alive(true);
  v1::ReplicaReport& replica = *server.add_replicas();
  replica.set_table(1);
  v1::VersionReport& held = *replica.add_versions();
  held.set_number(2);
  held.set_held(true);
  held.set_rows(1234);
  v1::VersionReport& read = *replica.add_versions();
  read.set_number(3);
  read.set_rows_read(10'000);
  read.set_rows_in_all(40'000);
  Answer answer = RunAt({"serve", "status"});
  EXPECT_THAT(answer.out, HasSubstr("to be current"));
  EXPECT_THAT(answer.out, HasSubstr("ads"));
  EXPECT_THAT(answer.out, HasSubstr("zone-a"));
  EXPECT_THAT(answer.out, HasSubstr("in files only"));
  EXPECT_THAT(answer.out, HasSubstr("1,234"));
  EXPECT_THAT(answer.out, HasSubstr("read 10,000 of 40,000 rows"));
  const nlohmann::json versions = RunAt({"serve", "status", "-o", "json"}).json()["versions"];
  ASSERT_EQ(versions.size(), 3u);
  EXPECT_EQ(versions[0]["kept"], false);
  EXPECT_EQ(versions[1]["current"], true);
  EXPECT_EQ(versions[1]["copies"][0]["held"], true);
  EXPECT_EQ(versions[2]["target"], true);
  EXPECT_EQ(versions[2]["copies"][0]["rows_read"], 10'000);
}

}  // namespace
}  // namespace hotbed
