// The fixture of the core's stories, and records as one line each.
#ifndef HOTBED_TESTS_COORDINATOR_CORE_STORY_H_
#define HOTBED_TESTS_COORDINATOR_CORE_STORY_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/coordinator/core_rig.h"

namespace hotbed {

// "0: e1 s1.1 active base s1.1" for each shard: index, epoch, primary server.incarnation, state,
// base.
inline std::vector<std::string> ShardLines(const v1::ClusterMap& map) {
  std::vector<std::string> out;
  for (const v1::ShardRecord& r : map.shards()) {
    std::string line = absl::StrCat(ShardId::FromPacked(r.shard()).index, ": e", r.epoch(), " s",
                                    r.primary().server(), ".", r.primary().incarnation());
    EXPECT_EQ(r.members_size(), 1);
    EXPECT_EQ(r.members(0).incarnation(), r.primary().incarnation());
    if (r.active()) line += " active";
    for (const v1::Member& m : r.base()) {
      absl::StrAppend(&line, " base s", m.server(), ".", m.incarnation());
    }
    out.push_back(line);
  }
  return out;
}

#define EXPECT_STATUS(expression, expected_code, text)                       \
  do {                                                                       \
    const absl::Status status_ = (expression).status();                      \
    EXPECT_EQ(status_.code(), absl::StatusCode::expected_code) << status_;   \
    EXPECT_THAT(std::string(status_.message()), ::testing::HasSubstr(text)); \
  } while (false)

class CoreStory : public ::testing::Test {
 protected:
  CoreStory() { rig_.Pump(); }
  v1::ClusterMap Map(uint64_t known = 0) { return rig_.core->Map(known); }
  std::vector<v1::ShardRecord> Records() {
    const v1::ClusterMap map = Map();
    return {map.shards().begin(), map.shards().end()};
  }
  void Activate(ServerId id, Incarnation incarnation) {
    auto reply = rig_.Call<v1::ActivateShardsReply>(CoreRig::ActivationOf(Map(), id, incarnation));
    ASSERT_TRUE(reply.ok()) << reply.status();
    for (const v1::ShardRecord& r : reply->records()) EXPECT_TRUE(r.active());
  }
  CoreRig rig_;
};

}  // namespace hotbed

#endif  // HOTBED_TESTS_COORDINATOR_CORE_STORY_H_
