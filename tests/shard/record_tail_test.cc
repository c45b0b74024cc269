#include "server/shard/replica/record_tail.h"

#include <gtest/gtest.h>

#include <memory>

#include "common/clock.h"

namespace hotbed {
namespace record_tail_test {

class RecordTailTest : public testing::Test {
 protected:
  ShardCore core_{ShardCoreOptions()};
  ReplicaBudget budget_;
};

// `records` of 100 bytes each in one allocation.
void AddPiece(int records, RecordTail* tail) {
  const std::shared_ptr<uint8_t[]> memory(new uint8_t[100 * records]());
  for (int i = 0; i < records; ++i) {
    tail->Add(/*epoch=*/1, {memory, {memory.get() + 100 * i, 100}});
  }
}

TEST_F(RecordTailTest, CountsTheMemoryThatItHolds) {
  std::atomic<int64_t>& shared = budget_.tail_bytes;
  shared = 7;
  RecordTail tail(&core_, &budget_, Clock::Real());
  tail.BeginAbove(10);
  AddPiece(3, &tail);  // 11 to 13
  AddPiece(1, &tail);
  AddPiece(2, &tail);  // 15, 16
  EXPECT_EQ(shared.load(), 607);
  EXPECT_EQ(tail.BytesAbove(0), 600u);
  EXPECT_EQ(tail.BytesAbove(14), 200u);
  EXPECT_EQ(tail.BytesAbove(16), 0u);
  const std::weak_ptr<const void> first = tail.record(11).owner;
  tail.DropThrough(12);
  EXPECT_FALSE(first.expired());
  EXPECT_EQ(tail.bytes(), 600u) << "record 13 holds all three";
  EXPECT_TRUE(tail.Has(13));
  tail.DropThrough(13);
  EXPECT_TRUE(first.expired());
  EXPECT_EQ(tail.bytes(), 300u);
  tail.DropThrough(15);
  EXPECT_EQ(tail.bytes(), 200u);
  tail.CutFrom(16);
  EXPECT_EQ(tail.bytes(), 0u);
  EXPECT_EQ(shared.load(), 7);
  EXPECT_EQ(tail.last(), 15u);
  AddPiece(1, &tail);
  tail.DropThrough(20);
  EXPECT_EQ(tail.bytes(), 0u);
  EXPECT_EQ(tail.first(), 21u);
}

TEST_F(RecordTailTest, ClearedRecordsAreNotCounted) {
  std::atomic<int64_t>& shared = budget_.tail_bytes;
  {
    RecordTail tail(&core_, &budget_, Clock::Real());
    AddPiece(4, &tail);
    tail.DropThrough(2);
    tail.Clear();
    EXPECT_EQ(shared.load(), 0);
    AddPiece(4, &tail);
    tail.DropThrough(1);
  }
  EXPECT_EQ(shared.load(), 0);
}

TEST_F(RecordTailTest, IsFullWhenTheBudgetIsAndEarlierWhileItIsHeld) {
  budget_.tail_bytes_max = 800;
  ManualClock clock;
  RecordTail tail(&core_, &budget_, &clock);
  budget_.tail_bytes = 5000;
  EXPECT_FALSE(tail.full()) << "other shards' records are not this shard's to wait for";
  budget_.tail_bytes = 0;
  AddPiece(8, &tail);
  EXPECT_FALSE(tail.full());
  tail.Hold({2, 1});
  EXPECT_TRUE(tail.full()) << "seven eighths while it is held";
  tail.EndHold({2, 1});
  EXPECT_FALSE(tail.full());
  AddPiece(1, &tail);
  EXPECT_TRUE(tail.full());
}

TEST_F(RecordTailTest, HoldsOnlyASmallRest) {
  budget_.tail_bytes_max = 800;
  ManualClock clock;
  RecordTail tail(&core_, &budget_, &clock);
  AddPiece(4, &tail);  // LSNs 1 to 4
  EXPECT_FALSE(tail.HoldIfSmall({2, 1}, 1)) << "300 bytes are more than a quarter";
  EXPECT_TRUE(tail.HoldIfSmall({2, 1}, 2));
}

}  // namespace record_tail_test
}  // namespace hotbed
