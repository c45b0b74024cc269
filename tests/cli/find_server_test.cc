#include "cli/shards/find_server.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hotbed {
namespace find_server_test {

using ::testing::HasSubstr;

v1::ClusterMap Map() {
  v1::ClusterMap map;
  const auto add = [&map](uint64_t id, const char* name, bool live) {
    v1::ServerInfo* server = map.add_servers();
    server->set_server(id);
    server->set_name(name);
    server->set_live(live);
  };
  add(1, "east-1", true);
  add(2, "east-2", false);
  add(3, "east-2", true);
  add(4, "1", true);
  return map;
}

TEST(FindServer, ByNameThenByNumber) {
  const v1::ClusterMap map = Map();
  EXPECT_EQ(FindServer(map, "east-1")->server(), 1u);
  EXPECT_EQ(FindServer(map, "east-2")->server(), 3u) << "the live one";
  EXPECT_EQ(FindServer(map, "1")->server(), 4u) << "a name goes before a number";
  EXPECT_EQ(FindServer(map, "2")->server(), 2u);
}

TEST(FindServer, UnknownOnesComeWithTheNearestName) {
  const auto near = FindServer(Map(), "esat-1");
  EXPECT_EQ(near.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(near.status().message()),
              HasSubstr("no server 'esat-1'; did you mean 'east-1'?"));
  EXPECT_THAT(std::string(FindServer(Map(), "the-big-one").status().message()),
              HasSubstr("4 servers: see 'hotbed status'"));
}

}  // namespace find_server_test
}  // namespace hotbed
