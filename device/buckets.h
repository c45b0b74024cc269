// The bucketed index: finds rows, and the entry for a row that comes in, with its victim.
//
// A full bucket gives up the row at which its clock stops: the hand goes round the 64 slots, takes
// one visit off each row it passes, skips rows that are held, and stops at the first without
// visits. Rounds are not walked: if m is the least number of visits, the hand passes every row m
// times and stops at the first row that had exactly m.
//
// A bucket is changed by one team at a time (device/move_work.h sorts rows by bucket); reads and
// visits come from any number of teams.
#ifndef HOTBED_DEVICE_BUCKETS_H_
#define HOTBED_DEVICE_BUCKETS_H_

#include <cstdint>

#include "device/row_loads.h"
#include "device/table.h"
#include "row_math/isa.h"
#include "row_math/position.h"

namespace hotbed {
namespace device {

// The lanes that change one bucket: small teams keep many buckets in flight.
constexpr uint32_t kBucketLanes = 8;
constexpr uint32_t kOfLane = kBucketSlots / kBucketLanes;  // entries; their digests are one load
static_assert(kOfLane == 8, "loads of eight bytes");
constexpr uint64_t kLowBits = 0x0101010101010101ull;  // of eight bytes
constexpr uint32_t kHeldShift = 4;
static_assert(kHeld == 1u << kHeldShift, "where the bit is");

struct Home {
  uint32_t bucket;
  uint8_t digest;  // 1..255
};

// Positions of bounded tables are plain ids, so they are mixed here; the upper half picks the
// bucket, the lower half the digest.
HOTBED_ROW_FN Home HomeOf(const Table& table, uint64_t position) {
  uint64_t h = position * 0x9e3779b97f4a7c15ull;
  h = (h ^ (h >> 32)) * 0xd6e8feb86659fd93ull;
  const uint32_t low = static_cast<uint32_t>(h) >> 24;
  return {static_cast<uint32_t>(((h >> 32) * table.bucket_count) >> 32),
          static_cast<uint8_t>(low == 0 ? 1 : low)};
}

HOTBED_ROW_FN uint64_t PositionOfId(const RowShape& shape, uint64_t id) {
  return shape.hashed ? Mix64(id) : id;
}
HOTBED_ROW_FN uint64_t IdOfPosition(const RowShape& shape, uint64_t position) {
  return shape.hashed ? Unmix64(position) : position;
}

HOTBED_ROW_FN uint32_t LowestBit(uint32_t mask) {
#if defined(__CUDA_ARCH__)
  return static_cast<uint32_t>(__ffs(static_cast<int>(mask)) - 1);
#else
  return static_cast<uint32_t>(__builtin_ctz(mask));
#endif
}

// The end of the lanes from `begin` on that have the value `number` like lane `begin`, at most
// `count`.
template <typename Team>
HOTBED_ROW_FN uint32_t EndOfSame(const Team& team,
                                 const typename Team::template Values<uint32_t>& numbers,
                                 uint32_t number, uint32_t begin, uint32_t count) {
  const uint32_t others =
      team.Ballot(numbers, [&](uint32_t other) { return other != number; }) & ~((1u << begin) - 1);
  return others == 0 || LowestBit(others) > count ? count : LowestBit(others);
}

// Byte i of the result is not 0 where byte i of `eight` is `digest`.
HOTBED_ROW_FN uint64_t MatchEight(uint64_t eight, uint8_t digest) {
#if defined(__CUDA_ARCH__)
  const uint32_t wanted = digest * 0x01010101u;
  return __vcmpeq4(static_cast<uint32_t>(eight), wanted) |
         uint64_t{__vcmpeq4(static_cast<uint32_t>(eight >> 32), wanted)} << 32;
#else
  uint64_t match = 0;
  for (uint32_t i = 0; i < 8; ++i) {
    match |= static_cast<uint8_t>(eight >> 8 * i) == digest ? 0xffull << 8 * i : 0;
  }
  return match;
#endif
}

HOTBED_ROW_FN uint32_t LowestByte(uint64_t not_zero) {
#if defined(__CUDA_ARCH__)
  return static_cast<uint32_t>(__ffsll(static_cast<long long>(not_zero)) - 1) / 8;
#else
  return static_cast<uint32_t>(__builtin_ctzll(not_zero)) / 8;
#endif
}

// The entry of a bucket that holds a position, or kNoRow. `positions`: of the bucket's slots.
template <typename Team>
HOTBED_ROW_FN uint32_t MatchingEntry(const Team& team,
                                     const typename Team::template Values<uint64_t>& digests,
                                     uint8_t digest, const uint64_t* positions, uint64_t position) {
  return team.Least(team.Map([&](uint32_t lane) {
    uint64_t match = MatchEight(team.Own(digests, lane), digest);
    for (; match != 0; match &= ~(0xffull << 8 * LowestByte(match))) {
      const uint32_t entry = kOfLane * lane + LowestByte(match);
      if (positions[entry] == position) return entry;
    }
    return kNoRow;
  }));
}

// The slot of a position in a direct table; kNoRow outside the table.
HOTBED_ROW_FN uint32_t DirectSlot(const Table& table, uint64_t position) {
  const uint64_t slot = position - table.first_position;
  return slot < table.slots ? static_cast<uint32_t>(slot) : kNoRow;
}

// Bit i of the result is a bit of byte i, whose bits are all the same.
HOTBED_ROW_FN uint32_t BitOfEachByte(uint64_t bytes) {
  return static_cast<uint32_t>(((bytes & 0x8040201008040201ull) * kLowBits) >> 56);
}

// The entries of a bucket with this digest, one bit each. By one lane, with all loads in flight.
HOTBED_ROW_FN uint64_t EntriesWith(const Bucket& bucket, uint8_t digest) {
  struct alignas(16) Digests {
    uint64_t of[2];
  };
  constexpr uint32_t kLoads = kBucketSlots / sizeof(Digests);
  Digests digests[kLoads];
  HOTBED_UNROLLED
  for (uint32_t i = 0; i < kLoads; ++i) digests[i] = LoadAligned<Digests>(bucket.digests, i);
  uint64_t entries = 0;
  HOTBED_UNROLLED
  for (uint32_t i = 0; i < 2 * kLoads; ++i) {
    const uint64_t match = MatchEight(digests[i / 2].of[i % 2], digest);
    entries |= uint64_t{BitOfEachByte(match)} << 8 * i;
  }
  return entries;
}

HOTBED_ROW_FN uint32_t LowestBit64(uint64_t mask) {
#if defined(__CUDA_ARCH__)
  return static_cast<uint32_t>(__ffsll(static_cast<long long>(mask)) - 1);
#else
  return static_cast<uint32_t>(__builtin_ctzll(mask));
#endif
}

// The slot of a row, or kNoRow; by one lane.
HOTBED_ROW_FN uint32_t FindSlot(const Table& table, uint64_t position) {
  if (table.direct) {
    const uint32_t slot = DirectSlot(table, position);
    return slot != kNoRow && (*table.BitsAt(slot) & kExists) != 0 ? slot : kNoRow;
  }
  const Home home = HomeOf(table, position);
  const uint32_t first = kBucketSlots * home.bucket;
  uint64_t entries = EntriesWith(table.buckets[home.bucket], home.digest);
  for (; entries != 0; entries &= entries - 1) {
    const uint32_t slot = first + LowestBit64(entries);
    if (table.positions[slot] == position) return slot;
  }
  return kNoRow;
}

// The bits of a row after a visit that may also hold it.
HOTBED_ROW_FN uint8_t BitsOfVisit(uint8_t bits, bool hold) {
  const uint8_t visits = (bits & kVisitedOnce) != 0 ? kVisitedTwice : kVisitedOnce;
  return static_cast<uint8_t>(bits | visits | (hold ? kHeld : 0));
}

// Counts a visit of a row that was seen with these bits, and holds it if `hold`; by one lane. Any
// lane may do so at any time; two concurrent visits may count as one.
template <typename Team>
HOTBED_ROW_FN void Visit(const Team& team, const Table& table, uint32_t slot, uint8_t bits,
                         bool hold) {
  const uint8_t wanted = BitsOfVisit(bits, hold);
  if (wanted != bits) team.Or(table.BitsAt(slot), wanted);
}

// A bucket as the lanes of one team hold it, eight entries each: read once, changed here, and
// written back when the team is done with it. No other team may touch the bucket meanwhile.
template <typename Team>
struct BucketView {
  static_assert(Team::kLanes == kBucketLanes, "eight entries a lane");
  typename Team::template Values<uint64_t> digests;
  typename Team::template Values<uint64_t> bits;
  uint32_t hand;
};

template <typename Team>
HOTBED_ROW_FN BucketView<Team> OpenBucket(const Team& team, const Table& table, uint32_t bucket) {
  const Bucket& from = table.buckets[bucket];
  BucketView<Team> view;
  view.digests = team.Map([&](uint32_t lane) { return LoadAligned<uint64_t>(from.digests, lane); });
  view.bits = team.Map([&](uint32_t lane) { return LoadAligned<uint64_t>(from.bits, lane); });
  view.hand = table.direct ? 0 : table.hands[bucket];
  return view;
}

template <typename Team>
HOTBED_ROW_FN void CloseBucket(const Team& team, const Table& table, uint32_t bucket,
                               const BucketView<Team>& view) {
  Bucket* const to = &table.buckets[bucket];
  team.Sync();
  team.Strided(Team::kLanes, [&](uint32_t lane) {
    StoreAligned(to->digests, lane, team.Own(view.digests, lane));
    StoreAligned(to->bits, lane, team.Own(view.bits, lane));
  });
  if (table.direct) return;
  team.Once([&]() { table.hands[bucket] = static_cast<uint8_t>(view.hand); });
}

// One byte per slot of the bytes that the lanes hold.
template <typename Team>
HOTBED_ROW_FN uint8_t ByteAt(const Team& team,
                             const typename Team::template Values<uint64_t>& bytes,
                             uint32_t entry) {
  return static_cast<uint8_t>(team.Get(bytes, entry / kOfLane) >> 8 * (entry % kOfLane));
}
template <typename Team>
HOTBED_ROW_FN void SetByteAt(const Team& team, uint32_t entry, uint8_t byte,
                             typename Team::template Values<uint64_t>* bytes) {
  *bytes = team.Map([&](uint32_t lane) {
    const uint64_t own = team.Own(*bytes, lane);
    if (entry / kOfLane != lane) return own;
    const uint32_t shift = 8 * (entry % kOfLane);
    return static_cast<uint64_t>((own & ~(0xffull << shift)) | uint64_t{byte} << shift);
  });
}

// The least entry without a row, or kNoRow.
template <typename Team>
HOTBED_ROW_FN uint32_t FreeEntry(const Team& team, const BucketView<Team>& view) {
  return team.Least(team.Map([&](uint32_t lane) {
    const uint64_t free = MatchEight(team.Own(view.digests, lane), 0);
    return free == 0 ? kNoRow : kOfLane * lane + LowestByte(free);
  }));
}

// In eight bytes of bits at once, marks the lowest bit of each row that may leave and has `visits`
// visits, which are counted 00, 01, 11.
HOTBED_ROW_FN uint64_t WithVisits(uint64_t bits, uint32_t visits) {
  const uint64_t low = bits & kLowBits, high = bits >> 1 & kLowBits;
  const uint64_t same = visits == 0 ? ~low & kLowBits : visits == 1 ? low & ~high : high;
  return same & ~(bits >> kHeldShift);
}
// Takes one visit off where `which` has a bit.
HOTBED_ROW_FN uint64_t OneVisitLess(uint64_t bits, uint64_t which) {
  const uint64_t less = (bits & ~(kLowBits * kVisits)) | (bits >> 1 & kLowBits);
  const uint64_t bytes = which * 0xff;
  return (bits & ~bytes) | (less & bytes);
}
// Moves bit i of `of` to the lowest bit of byte i.
HOTBED_ROW_FN uint64_t BitToByte(uint8_t of) {
  const uint64_t spread = of * kLowBits & 0x8040201008040201ull;
  return (spread + 0x7f * kLowBits) >> 7 & kLowBits;
}

// How far the hand goes to the first of a lane's entries in `which`, or kNoRow.
HOTBED_ROW_FN uint32_t WayTo(uint64_t which, uint32_t lane, uint32_t hand) {
  if (which == 0) return kNoRow;
  uint64_t next = which;
  if (hand / kOfLane == lane) {  // entries before the hand come last
    const uint64_t from_hand = which >> 8 * (hand % kOfLane) << 8 * (hand % kOfLane);
    if (from_hand != 0) next = from_hand;
  }
  return (kOfLane * lane + LowestByte(next) - hand) % kBucketSlots;
}

// The entry at which the bucket's clock stops, or kNoRow if all are held. Ages the others and moves
// the hand.
template <typename Team>
HOTBED_ROW_FN uint32_t ClockVictim(const Team& team, BucketView<Team>* view) {
  const uint32_t hand = view->hand;
  const uint32_t least = team.Least(team.Map([&](uint32_t lane) {
    const uint64_t bits = team.Own(view->bits, lane);
    if (WithVisits(bits, 0) != 0) return 0u;
    return WithVisits(bits, 1) != 0 ? 1u : WithVisits(bits, 2) != 0 ? 2u : kNoRow;
  }));
  if (least == kNoRow) return kNoRow;
  const uint32_t way = team.Least(team.Map([&](uint32_t lane) {
    return WayTo(WithVisits(team.Own(view->bits, lane), least), lane, hand);
  }));
  // The hand passes these entries once more than the others.
  const uint64_t steps = (1ull << way) - 1;
  const uint64_t passed = hand == 0 ? steps : steps << hand | steps >> (kBucketSlots - hand);
  view->bits = team.Map([&](uint32_t lane) {
    uint64_t bits = team.Own(view->bits, lane);
    const uint64_t free = ~(bits >> kHeldShift) & kLowBits;
    for (uint32_t round = 0; round < least; ++round) bits = OneVisitLess(bits, free);
    return OneVisitLess(bits, free & BitToByte(static_cast<uint8_t>(passed >> 8 * lane)));
  });
  view->hand = (hand + way + 1) % kBucketSlots;
  return (hand + way) % kBucketSlots;
}

// The entry for a row that is not in the bucket. `evicts`: it still holds another row.
struct Place {
  uint32_t entry;  // kNoRow: every row of the bucket is held
  bool evicts;
};

template <typename Team>
HOTBED_ROW_FN Place PlaceIn(const Team& team, BucketView<Team>* view) {
  const uint32_t free = FreeEntry(team, *view);
  if (free != kNoRow) return {free, false};
  const uint32_t victim = ClockVictim(team, view);
  return {victim, victim != kNoRow};
}

// Puts a row into `entry`, without visits: a row that is read once leaves before rows that are read
// again.
template <typename Team>
HOTBED_ROW_FN void SetEntry(const Team& team, uint32_t entry, uint8_t digest, uint8_t bits,
                            BucketView<Team>* view) {
  SetByteAt(team, entry, digest, &view->digests);
  SetByteAt(team, entry, bits, &view->bits);
}

}  // namespace device
}  // namespace hotbed

#endif  // HOTBED_DEVICE_BUCKETS_H_
