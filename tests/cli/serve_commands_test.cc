#include <gmock/gmock.h>

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
  EXPECT_EQ(answer.out, "user is served as int8 by r0, r1\n");
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
}

TEST_F(ServeCommandsTest, WithoutRoomAddSaysSo) {
  *fake_.serving.reply.add_tables() = Served({});
  const Answer answer = RunAt({"serve", "add", "user", "--format=int8"});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_EQ(answer.out, "user is served as int8 by no server yet: none has room for it\n");
}

TEST_F(ServeCommandsTest, WrongFlagsAreRefusedBeforeTheCall) {
  for (const char* flag :
       {"--format=int3", "--replicas=0", "--replicas=65", "--staleness-max=3x"}) {
    EXPECT_NE(RunAt({"serve", "add", "user", flag}).code, 0) << flag;
  }
  EXPECT_NE(RunAt({"serve", "add"}).code, 0);
  EXPECT_TRUE(fake_.serving.served.empty());
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
    replica.set_age_ms(250);
    server.set_silent_ms(10);
  }
  answer = RunAt({"serve", "status"});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_THAT(answer.out, HasSubstr("123,456"));
  EXPECT_THAT(answer.out, HasSubstr("260 ms"));
  EXPECT_THAT(answer.out, HasSubstr("127.0.0.1:7480"));
  EXPECT_THAT(answer.out, HasSubstr("waits for a server with room"));
  const nlohmann::json copies =
      RunAt({"serve", "status", "-o", "json"}).json()["tables"][0]["copies"];
  ASSERT_EQ(copies.size(), 3u);
  EXPECT_EQ(copies[0]["state"], "ready");
  EXPECT_EQ(copies[0]["age_ms"], 260);
  EXPECT_EQ(copies[1]["state"], "ordered");
  EXPECT_TRUE(copies[1]["age_ms"].is_null());
  EXPECT_EQ(copies[2]["state"], "away");
}

}  // namespace
}  // namespace hotbed
