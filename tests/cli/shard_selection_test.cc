#include "cli/shards/shard_selection.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hotbed {
namespace shard_selection_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kS0 = 10, kS1 = 11, kS2 = 12;

// Tables "orders" (four shards) and "a/b" (two), primaries on s0 and backups on s1.
v1::ClusterMap Map() {
  v1::ClusterMap map;
  for (uint32_t t = 1; t <= 2; ++t) {
    v1::TableSpec* table = map.add_tables();
    table->set_id(t);
    table->set_name(t == 1 ? "orders" : "a/b");
    table->set_rows(100);
    table->set_dim(4);
    for (uint32_t i = 0; i < (t == 1 ? 4u : 2u); ++i) {
      v1::ShardRecord* shard = map.add_shards();
      shard->set_shard((uint64_t{t} << 32) | i);
      shard->mutable_primary()->set_server(kS0);
      shard->add_members()->set_server(kS0);
      shard->add_members()->set_server(kS1);
    }
  }
  return map;
}

std::vector<std::string> Selected(const std::vector<std::string>& words) {
  const auto shards = SelectShards(Map(), words);
  std::vector<std::string> out;
  if (!shards.ok()) return {std::string(shards.status().message())};
  for (const SelectedShard& shard : *shards) {
    out.push_back(absl::StrCat(shard.record.shard() >> 32, "/", shard.record.shard() & 0xffffffff,
                               shard.by_name ? "!" : ""));
  }
  return out;
}

TEST(ShardSelection, OneARangeATableOrAll) {
  EXPECT_THAT(Selected({"orders/2"}), ElementsAre("1/2!"));
  EXPECT_THAT(Selected({"orders/1-3"}), ElementsAre("1/1", "1/2", "1/3"));
  EXPECT_THAT(Selected({"orders/3-3"}), ElementsAre("1/3!"));
  EXPECT_THAT(Selected({"a/b/all"}), ElementsAre("2/0", "2/1"));
  EXPECT_THAT(Selected({"all"}), ElementsAre("1/0", "1/1", "1/2", "1/3", "2/0", "2/1"));
  EXPECT_THAT(Selected({"a/b/1", "orders/0-1", "orders/1"}), ElementsAre("1/0", "1/1!", "2/1!"))
      << "each once, in order";
}

TEST(ShardSelection, WhatIsThereIsNamed) {
  EXPECT_THAT(Selected({"oders/1"}), ElementsAre(HasSubstr("did you mean 'orders'?")));
  EXPECT_THAT(Selected({"orders/4"}), ElementsAre(HasSubstr("'orders' has the shards 0-3")));
  EXPECT_THAT(Selected({"orders/2-4"}), ElementsAre(HasSubstr("has the shards 0-3")));
  EXPECT_THAT(Selected({"orders/3-1"}), ElementsAre(HasSubstr("3 is above 1")));
  for (const char* word : {"orders", "orders/", "orders/x", "orders/1-", "orders/-1", ""}) {
    EXPECT_THAT(Selected({word}), ElementsAre(HasSubstr("TABLE/FIRST-LAST"))) << word;
  }
}

TEST(ShardSelection, RangesPassOverWhatIsThereNamedShardsDoNot) {
  const auto shards = *SelectShards(Map(), {"orders/all"});
  EXPECT_EQ(MovesTo(shards, 0, kS1).moves.size(), 4u) << "a backup becomes primary";
  EXPECT_EQ(MovesTo(shards, 0, kS0).passed_over, 4u);
  EXPECT_EQ(MovesTo(shards, kS1, kS0).passed_over, 4u) << "s0 has a replica of each";
  EXPECT_EQ(MovesTo(shards, kS2, kS0).passed_over, 4u) << "s2 has none";
  EXPECT_EQ(MovesTo(shards, kS0, kS1).moves.size(), 4u) << "said of the primary, too";
  const WantedMoves wanted = MovesTo(shards, kS1, kS2);
  ASSERT_EQ(wanted.moves.size(), 4u);
  EXPECT_EQ(wanted.moves[3].shard(), (uint64_t{1} << 32) | 3);
  EXPECT_EQ(wanted.moves[3].from(), kS1);
  EXPECT_EQ(wanted.moves[3].to(), kS2);
  const auto named = *SelectShards(Map(), {"orders/1"});
  EXPECT_EQ(MovesTo(named, 0, kS0).moves.size(), 1u) << "the coordinator says why not";
}

}  // namespace shard_selection_test
}  // namespace hotbed
