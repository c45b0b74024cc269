#include "planner/coordinator/balance/rebalance_moves.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/coordinator/rebalance_rig.h"

namespace hotbed {
namespace rebalance_moves_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

PlannedMove Move(uint64_t first, uint64_t limit, const std::string& from, const std::string& to) {
  PlannedMove move;
  move.table = "t1";
  move.row_first = first;
  move.row_limit = limit;
  move.column_limit = 16;
  move.from = from;
  move.to = to;
  return move;
}

class RebalanceMoves : public ::testing::Test {
 protected:
  RebalanceMoves() {
    for (ServerId s = 1; s <= 4; ++s) rig_.AddServer(s);
    rig_.AddTable(1, 8, {1, 2, 3}, 2, 800000);
  }
  RebalanceRig rig_;
};

TEST_F(RebalanceMoves, MovesAreOfShardsAndRoles) {
  const RebalanceWave wave =
      WaveOf(rig_.view,
             {Move(0, 100000, "s1", "s4"),        // the primary of 0
              Move(100000, 200000, "s3", "s4"),   // the backup of 1
              Move(200000, 400000, "s3", "s4"),   // of 2 and 3: only 2 is there
              Move(400000, 450000, "s2", "s4"),   // half a shard
              Move(500000, 600000, "s3", "s1"),   // s1 has a replica already
              Move(600000, 700000, "", "s4"),     // a refill: not ours
              Move(700000, 800000, "s9", "s4")},  // nobody
             100, "because");
  ASSERT_THAT(wave.goals, SizeIs(3));
  EXPECT_THAT(wave.goals[0].servers, ElementsAre(4, 2));
  EXPECT_THAT(wave.goals[1].servers, ElementsAre(2, 4));
  EXPECT_THAT(wave.goals[2].servers, ElementsAre(4, 1));
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(wave.goals[i].shard, (ShardId{1, i}));
    EXPECT_EQ(wave.goals[i].reason, "because");
  }
  EXPECT_EQ(wave.moves, 3u);
  EXPECT_EQ(wave.bytes, 3u * 100000 * 68);
  EXPECT_FALSE(wave.cut_short);
}

TEST_F(RebalanceMoves, ALimitCutsBetweenMoves) {
  const std::vector<PlannedMove> moves = {Move(0, 100000, "s1", "s4"),
                                          Move(100000, 300000, "s2", "s4"),
                                          Move(300000, 400000, "s1", "s4")};
  const RebalanceWave wave = WaveOf(rig_.view, moves, 2, "r");
  EXPECT_EQ(wave.moves, 1u) << "the second is of two shards";
  EXPECT_TRUE(wave.cut_short);
}

TEST_F(RebalanceMoves, ADrainedPrimaryIsFollowedByItsBackup) {
  rig_.Server(1).draining = true;
  rig_.Server(1).usable = false;
  const auto wave = PlanDrain(rig_.view);
  ASSERT_TRUE(wave.ok()) << wave.status();
  EXPECT_EQ(wave->reason, "drain of s1");
  EXPECT_THAT(wave->goals, SizeIs(5)) << "three primaries, and two backups";
  for (const WantedShard& goal : wave->goals) {
    const ClusterShard& shard = rig_.view.tables[0].shards[goal.shard.index];
    ASSERT_THAT(goal.servers, SizeIs(2));
    EXPECT_EQ(goal.servers[0], shard.primary == 1 ? shard.backups[0] : shard.primary);
    EXPECT_NE(goal.servers[1], 1u);
  }
  EXPECT_EQ(wave->moves, 5u);
}

TEST_F(RebalanceMoves, ADrainMovesNothingElse) {
  // s4 has nothing, and stays so but for what leaves s1: an arrival is another cause.
  for (ClusterShard& shard : rig_.view.tables[0].shards) {
    shard.rows_pulled = shard.rows_pushed = shard.primary == 2 ? 100 : 1;
  }
  rig_.Server(1).draining = true;
  rig_.Server(1).usable = false;
  const auto wave = PlanDrain(rig_.view);
  ASSERT_TRUE(wave.ok()) << wave.status();
  for (const WantedShard& goal : wave->goals) {
    const std::vector<ServerId> now = HoldersOf(rig_.view.tables[0].shards[goal.shard.index]);
    EXPECT_NE(std::find(now.begin(), now.end(), 1), now.end()) << goal.shard.index;
  }
}

TEST_F(RebalanceMoves, ADrainWithoutRoomTellsWhatIsMissing) {
  for (const ServerId s : {2, 3, 4}) {
    rig_.Server(s).host_bytes = 30 << 20;
    rig_.Server(s).spill_bytes = 1;
  }
  rig_.Server(1).draining = true;
  rig_.Server(1).usable = false;
  const absl::Status status = PlanDrain(rig_.view).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("missing"));
  rig_.Server(1).draining = false;
  const auto none = PlanDrain(rig_.view);
  ASSERT_TRUE(none.ok());
  EXPECT_THAT(none->goals, SizeIs(0));
}

TEST_F(RebalanceMoves, RolesGoWhereThereIsLessToDo) {
  MeasuredLoads loads;
  loads.rows_per_s = 8000;
  loads.pulled = {std::vector<double>(8, 0.0)};
  loads.pushed = {std::vector<double>(8, 0.0)};
  loads.pulled[0][0] = loads.pulled[0][3] = loads.pulled[0][6] = 2000;  // all on s1, backups on s2
  LoadBoard board(rig_.view, loads, 1);
  const std::vector<WantedShard> goals = SwitchPrimaries(rig_.view, 1.5, 100, "r", &board);
  ASSERT_THAT(goals, SizeIs(1)) << "of two s2 would be the busiest";
  EXPECT_EQ(goals[0].shard, (ShardId{1, 0}));
  EXPECT_THAT(goals[0].servers, ElementsAre(2, 1));
  const ClusterView after = After(rig_.view, goals);
  EXPECT_EQ(after.tables[0].shards[0].primary, 2u);
  EXPECT_THAT(after.tables[0].shards[0].backups, ElementsAre(1));
  EXPECT_EQ(LoadBoard(after, loads, 1).Load(2), board.Load(2));
}

}  // namespace rebalance_moves_test
}  // namespace hotbed
