#include "device/buckets.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "device/move_work.h"
#include "device/team.h"
#include "tests/common/test_seed.h"
#include "tests/device/case.h"

namespace hotbed {
namespace device {
namespace buckets_test {

// The index of one table on the heap, with the rows' data left out.
struct HeapIndex {
  explicit HeapIndex(uint32_t bucket_count)
      : buckets(bucket_count), positions(bucket_count * kBucketSlots), hands(bucket_count) {
    table.bucket_count = bucket_count;
    table.slots = bucket_count * kBucketSlots;
    table.buckets = buckets.data();
    table.positions = positions.data();
    table.hands = hands.data();
  }
  Table table;
  std::vector<Bucket> buckets;
  std::vector<uint64_t> positions;
  std::vector<uint8_t> hands;
};

// The clock of one bucket, walked step by step.
struct ClockTwin {
  std::vector<uint32_t> visits = std::vector<uint32_t>(kBucketSlots);
  std::vector<bool> held = std::vector<bool>(kBucketSlots);
  uint32_t hand = 0;

  uint32_t Victim() {
    for (uint32_t steps = 0; steps < 4 * kBucketSlots; ++steps) {
      const uint32_t at = hand;
      hand = (hand + 1) % kBucketSlots;
      if (held[at]) continue;
      if (visits[at] == 0) return at;
      --visits[at];
    }
    return kNoRow;
  }
};

using Team = HostTeam<kBucketLanes>;

// As InsertWork does with one row.
Place PutIn(const HeapIndex& index, uint64_t position) {
  const Team team;
  const Home home = HomeOf(index.table, position);
  BucketView<Team> view = OpenBucket(team, index.table, home.bucket);
  const Place place = PlaceIn(team, &view);
  if (place.entry == kNoRow) return place;
  SetEntry(team, place.entry, home.digest, kExists, &view);
  CloseBucket(team, index.table, home.bucket, view);
  return place;
}

void CompareClocks(uint64_t seed) {
  CaseRandom random(seed);
  const Team team;
  const uint8_t codes[] = {0, kVisitedOnce, kVisitedTwice};
  for (uint32_t round = 0; round < 300; ++round) {
    HeapIndex index(1);
    ClockTwin twin;
    const uint32_t least = random.Below(3), held_of = 1 + random.Below(4);
    twin.hand = index.hands[0] = static_cast<uint8_t>(random.Below(kBucketSlots));
    for (uint32_t e = 0; e < kBucketSlots; ++e) {
      twin.visits[e] = least + random.Below(3 - least);
      twin.held[e] = round % 10 == 0 || random.Below(4) >= held_of;
      index.buckets[0].bits[e] =
          static_cast<uint8_t>(kExists | (random.OneIn(2) ? kDirty : 0) | codes[twin.visits[e]] |
                               (twin.held[e] ? kHeld : 0));
    }
    for (uint32_t step = 0; step < 5; ++step) {
      const uint32_t hand_before = twin.hand;
      const uint32_t want = twin.Victim();
      BucketView<Team> view = OpenBucket(team, index.table, 0);
      ASSERT_EQ(ClockVictim(team, &view), want) << "round " << round;
      CloseBucket(team, index.table, 0, view);
      if (want == kNoRow) {
        twin.hand = hand_before;  // nobody was passed for good
        continue;
      }
      EXPECT_EQ(index.hands[0], twin.hand);
      for (uint32_t e = 0; e < kBucketSlots; ++e) {
        if (e == want) continue;  // its bits are about to be another row's
        ASSERT_EQ(index.buckets[0].bits[e] & kVisits, codes[twin.visits[e]]) << "entry " << e;
      }
      // The one who comes in is read, or not.
      twin.visits[want] = random.Below(2);
      index.buckets[0].bits[want] = static_cast<uint8_t>(kExists | codes[twin.visits[want]]);
    }
  }
}

TEST(ClockVictim, StopsWhereASteppedClockStops) {
  const TestSeed seed(11);
  CompareClocks(seed.value());
}

// Insert with victims, against a map, until every slot is used and on.
void CompareWithMap(uint64_t seed) {
  CaseRandom random(seed);
  const Team team;
  HeapIndex index(3);
  std::map<uint64_t, uint32_t> twin;  // position -> slot
  uint64_t fullest = 0;
  for (uint32_t step = 0; step < 20000; ++step) {
    const uint64_t position = random.OneIn(20) ? ~0ull - random.Below(2) : random.Below(500);
    const uint32_t slot = FindSlot(index.table, position);
    const auto known = twin.find(position);
    ASSERT_EQ(slot, known != twin.end() ? known->second : kNoRow) << "position " << position;
    if (slot != kNoRow) {
      Visit(team, index.table, slot, *index.table.BitsAt(slot), false);
      continue;
    }
    const Place place = PutIn(index, position);
    ASSERT_NE(place.entry, kNoRow);
    const uint32_t taken = kBucketSlots * HomeOf(index.table, position).bucket + place.entry;
    if (place.evicts) {
      ASSERT_EQ(twin.erase(index.table.PositionAt(taken)), 1u);
    }
    for (const auto& [other, used] : twin) ASSERT_NE(used, taken) << other;
    index.positions[taken] = position;
    twin[position] = taken;
    fullest = std::max<uint64_t>(fullest, twin.size());
  }
  EXPECT_EQ(fullest, index.table.slots) << "load factor 1.0 was not reached";
}

TEST(Buckets, FindAndInsertLikeAMapUpToEverySlot) {
  const TestSeed seed(12);
  CompareWithMap(seed.value());
}

TEST(Buckets, PositionsAreFoundWhateverOthersShareTheirDigest) {
  HeapIndex index(1);
  const uint8_t digest = HomeOf(index.table, 0).digest;
  std::vector<uint64_t> same;
  for (uint64_t position = 0; same.size() < kBucketSlots; ++position) {
    if (HomeOf(index.table, position).digest == digest) same.push_back(position);
  }
  for (uint64_t position : same) {
    const Place place = PutIn(index, position);
    ASSERT_FALSE(place.evicts);
    index.positions[place.entry] = position;
  }
  for (uint32_t e = 0; e < kBucketSlots; ++e) EXPECT_EQ(FindSlot(index.table, same[e]), e);
}

TEST(Buckets, PositionsOutsideADirectTableAreNotThere) {
  HeapIndex index(1);
  index.table.direct = true;
  index.table.first_position = 1000;
  index.table.slots = 10;
  index.buckets[0].bits[9] = kExists;
  const Team team;
  EXPECT_EQ(FindSlot(index.table, 1009), 9u);
  EXPECT_EQ(FindSlot(index.table, 1008), kNoRow);
  EXPECT_EQ(FindSlot(index.table, 1010), kNoRow);
  EXPECT_EQ(FindSlot(index.table, 999), kNoRow);
  BucketView<Team> view = OpenBucket(team, index.table, 0);
  EXPECT_EQ(PlaceOf(team, index.table, 999, &view).entry, kNoRow);
  EXPECT_EQ(PlaceOf(team, index.table, 1009, &view).entry, 9u);
}

}  // namespace buckets_test
}  // namespace device
}  // namespace hotbed
