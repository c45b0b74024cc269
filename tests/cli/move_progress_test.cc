#include "cli/shards/move_progress.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hotbed {
namespace move_progress_test {

using ::testing::HasSubstr;

v1::ShardMove* AddMove(v1::ListMovesReply* list, uint32_t index, uint64_t copied, uint64_t total) {
  v1::ShardMove* move = list->add_moves();
  move->mutable_goal()->set_shard((uint64_t{1} << 32) | index);
  move->set_bytes_copied(copied);
  move->set_bytes_total(total);
  list->set_moves_total(list->moves_size());
  return move;
}

v1::ClusterMap Names() {
  v1::ClusterMap map;
  map.add_tables()->set_id(1);
  map.mutable_tables(0)->set_name("orders");
  for (int i = 0; i < 4; ++i) {
    map.add_servers()->set_server(10 + i);
    map.mutable_servers(i)->set_name("s" + std::to_string(i));
  }
  return map;
}

TEST(MoveProgress, CountsWhatIsNotListedAsDone) {
  const MoveWork work{4, 400};
  v1::ListMovesReply list;
  AddMove(&list, 2, 60, 100);
  AddMove(&list, 3, 0, 0)
      ->set_waits_for("2 transfers to s3 are in progress");  // not begun: counts its share
  list.set_bytes_per_s(50);
  const MoveProgress progress = ProgressOf(work, list, Names());
  EXPECT_EQ(progress.moves_done, 2u);
  EXPECT_EQ(progress.bytes_done, 260u);
  EXPECT_EQ(progress.waits_for, "orders/3: 2 transfers to s3 are in progress");
  EXPECT_EQ(MoveNote(work, progress),
            "260 B of 400 B, 50 B/s, 2 of 4 moves; orders/3: 2 transfers to s3 are in progress");
}

TEST(MoveProgress, NeverLeavesItsBounds) {
  const MoveWork work{1, 100};
  v1::ListMovesReply list;
  EXPECT_EQ(ProgressOf(work, list, Names()).bytes_done, 100u) << "nothing is left";
  AddMove(&list, 0, 500, 300);  // twice as much as estimated
  EXPECT_EQ(ProgressOf(work, list, Names()).bytes_done, 100u);
  list.mutable_moves(0)->set_bytes_copied(0);
  EXPECT_EQ(ProgressOf(work, list, Names()).bytes_done, 0u);
  AddMove(&list, 1, 0, 0);
  EXPECT_EQ(ProgressOf(work, list, Names()).moves_done, 0u) << "more than there were";
  EXPECT_EQ(ProgressOf({0, 0}, list, Names()).bytes_done, 0u);
}

TEST(MoveProgress, MovesThatACutListLeavesOutWait) {
  const MoveWork work{10, 1000};
  v1::ListMovesReply list;
  AddMove(&list, 0, 100, 100);
  list.set_moves_total(5);
  const MoveProgress progress = ProgressOf(work, list, Names());
  EXPECT_EQ(progress.moves_done, 5u);
  EXPECT_EQ(progress.bytes_done, 600u);
}

TEST(MoveProgress, WithoutAnEstimateItTellsWhatIsUnderWay) {
  const MoveWork work{5, 0};
  v1::ListMovesReply list;
  AddMove(&list, 0, 10, 30);
  AddMove(&list, 1, 0, 20);
  list.set_bytes_per_s(7);
  EXPECT_EQ(MoveNote(work, ProgressOf(work, list, Names())),
            "10 B of 50 B in progress, 7 B/s, 3 of 5 moves");
}

TEST(MoveProgress, SaysPausedAndNothingOfBytesWhereNoneAreCopied) {
  v1::ListMovesReply list;
  AddMove(&list, 0, 0, 0);
  list.set_paused(true);
  const MoveWork work = WorkOf(list);
  EXPECT_EQ(work.moves, 1u);
  EXPECT_EQ(MoveNote(work, ProgressOf(work, list, Names())),
            "0 of 1 move; paused: 'hotbed shard resume'");
}

TEST(MoveProgress, WhoHoldsItAndWhoShall) {
  v1::ShardMove move;
  move.mutable_record()->mutable_primary()->set_server(11);
  move.mutable_record()->add_members()->set_server(10);
  move.mutable_record()->add_members()->set_server(11);
  move.mutable_goal()->add_servers(13);
  move.mutable_goal()->add_servers(10);
  EXPECT_EQ(MoveText(Names(), move), "s1 s0 -> s3 s0");
  move.mutable_goal()->clear_servers();
  move.mutable_record()->add_learners()->set_server(12);
  EXPECT_EQ(MoveText(Names(), move), "s1 s0 + s2");
}

}  // namespace move_progress_test
}  // namespace hotbed
