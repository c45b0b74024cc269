// Stories of tables with several replicas: where they are created.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/coordinator/core_story.h"

namespace hotbed {
namespace replicas_story_test {

using ReplicasStory = CoreStory;

v1::CreateTableRequest Copied(const std::string& name, uint32_t replicas, uint32_t shards) {
  v1::CreateTableRequest request = CoreRig::Table(name);
  request.mutable_spec()->set_durability(v1::DURABILITY_REPLICATED);
  request.mutable_spec()->set_replicas(replicas);
  request.set_shards(shards);
  return request;
}

// By number of shards or by the planner: members from the first epoch on, the primary first.
TEST_F(ReplicasStory, ReplicasAreMembersFromTheBegin) {
  for (const char* name : {"s1", "s2", "s3"}) ASSERT_TRUE(rig_.Register(name).ok());
  for (const uint32_t shards : {0, 9}) {
    const auto created = rig_.Create(Copied(absl::StrCat("t", shards), 2, shards));
    ASSERT_TRUE(created.ok()) << created.status();
    std::vector<int> replicas(4, 0);
    for (const v1::ShardRecord& r : created->shards()) {
      ASSERT_EQ(r.members_size(), 2);
      EXPECT_EQ(r.members(0).server(), r.primary().server());
      EXPECT_NE(r.members(1).server(), r.primary().server());
      EXPECT_EQ(r.learners_size(), 0);
      EXPECT_EQ(r.base_size(), 0);
      EXPECT_FALSE(r.active());
      EXPECT_EQ(r.epoch(), 1u);
      for (const v1::Member& m : r.members()) {
        EXPECT_EQ(m.incarnation(), 1u);
        ++replicas[m.server()];
      }
    }
    const int n = created->shards_size();
    for (int s = 1; s <= 3; ++s) EXPECT_NEAR(replicas[s], n * 2 / 3.0, 1.5) << s;
  }
  EXPECT_STATUS(rig_.Create(Copied("wide", 3, 0)), kOk, "");
  Activate(1, 1);
}

// All on one host: the next step is told, and nothing is written.
TEST_F(ReplicasStory, ReplicasWithoutHostsAreRefused) {
  for (int port = 1; port <= 3; ++port) {
    v1::RegisterServerRequest request;
    request.set_name(absl::StrCat("s", port));
    request.set_address(absl::StrCat("127.0.0.1:", port));
    ASSERT_TRUE(rig_.Call<v1::RegisterServerReply>(request).ok());
  }
  for (const uint32_t shards : {0, 9}) {
    EXPECT_STATUS(rig_.Create(Copied("t", 2, shards)), kFailedPrecondition, "have 1");
    EXPECT_STATUS(rig_.Create(Copied("t", 2, shards)), kFailedPrecondition, "--failure-domain");
  }
  EXPECT_EQ(Map().tables_size(), 0);
  EXPECT_TRUE(rig_.store.Range(keys::kShards, PrefixLimit(keys::kShards)).kvs.empty());
}

}  // namespace replicas_story_test
}  // namespace hotbed
