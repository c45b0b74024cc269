// The bucketed index: find, and the entry for a row that comes in, with its victim.
//
// A full bucket gives the row at which its clock stops: the hand goes round the 64 slots, takes one
// visit off each row it passes, skips rows that are held, and stops at the first without visits.
// Rounds are not walked: if m is the least number of visits, the hand passes everyone m times and
// stops at the first row that had exactly m.
//
// A bucket is changed by one team at a time (device/insert_work.h sorts rows by bucket); reads and
// visits come from any number of teams.
#ifndef HOTBED_DEVICE_BUCKETS_H_
#define HOTBED_DEVICE_BUCKETS_H_

#include <cstdint>

#include "device/table.h"
#include "row_math/isa.h"
#include "row_math/position.h"

namespace hotbed {
namespace device {

struct Home {
  uint32_t bucket;
  uint8_t digest;  // 1..255
};

// Bounded positions are plain ids, so they are mixed here; the upper half picks the bucket, the
// lower the digest.
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

// The least entry of a bucket for which `wanted` holds, or kNoRow: each lane looks at the entries
// that lie in one load of its own.
template <typename Team, typename F>
HOTBED_ROW_FN uint32_t FirstEntry(const Team& team, F wanted) {
  constexpr uint32_t kOfLane = kBucketSlots / Team::kLanes;
  const auto entries = team.Map([&](uint32_t lane) {
    uint32_t first = kNoRow;
    for (uint32_t i = kOfLane; i-- > 0;) {
      if (wanted(kOfLane * lane + i)) first = kOfLane * lane + i;
    }
    return first;
  });
  const uint32_t found = team.Ballot(entries, [](uint32_t entry) { return entry != kNoRow; });
  return found == 0 ? kNoRow : team.Get(entries, LowestBit(found));
}

// Digests of 4 entries from `entry` on in one load; byte i of the result is not 0 where they match.
HOTBED_ROW_FN uint32_t MatchFour(const uint8_t* digests, uint8_t digest) {
  uint32_t four;
  __builtin_memcpy(&four, __builtin_assume_aligned(digests, 4), 4);
  const uint32_t differs = four ^ (digest * 0x01010101u);
#if defined(__CUDA_ARCH__)
  return __vcmpeq4(differs, 0);
#else
  uint32_t match = 0;
  for (uint32_t i = 0; i < 4; ++i) match |= (differs >> 8 * i & 0xffu) == 0 ? 0xffu << 8 * i : 0;
  return match;
#endif
}

// The slot that a position has in a direct table; kNoRow beyond it.
HOTBED_ROW_FN uint32_t DirectSlot(const Table& table, uint64_t position) {
  const uint64_t slot = position - table.first_position;
  return slot < table.slots ? static_cast<uint32_t>(slot) : kNoRow;
}

// The slot of a row, or kNoRow.
template <typename Team>
HOTBED_ROW_FN uint32_t FindSlot(const Team& team, const Table& table, uint64_t position) {
  if (table.direct) {
    const uint32_t slot = DirectSlot(table, position);
    return slot != kNoRow && (*table.BitsAt(slot) & kExists) != 0 ? slot : kNoRow;
  }
  static_assert(Team::kLanes == 16 || Team::kLanes == 32, "four or two entries a lane");
  constexpr uint32_t kOfLane = kBucketSlots / Team::kLanes;
  const Home home = HomeOf(table, position);
  const uint8_t* const digests = table.buckets[home.bucket].digests;
  const uint64_t* const positions = table.positions + kBucketSlots * uint64_t{home.bucket};
  const auto entries = team.Map([&](uint32_t lane) {
    const uint32_t first = kOfLane * lane;
    uint32_t match = MatchFour(digests + (first & ~3u), home.digest);
    if (kOfLane == 2) match &= (first & 2u) != 0 ? 0xffff0000u : 0x0000ffffu;
    for (; match != 0; match &= ~(0xffu << (LowestBit(match) & ~7u))) {
      const uint32_t entry = (first & ~3u) + LowestBit(match) / 8;
      if (positions[entry] == position) return entry;
    }
    return kNoRow;
  });
  const uint32_t found = team.Ballot(entries, [](uint32_t entry) { return entry != kNoRow; });
  if (found == 0) return kNoRow;
  return kBucketSlots * home.bucket + team.Get(entries, LowestBit(found));
}

HOTBED_ROW_FN uint32_t VisitsOf(uint8_t bits) { return (bits & 1u) + (bits >> 1 & 1u); }

// Counts a visit, and holds the row. Any team may do so at any time; two at once may count as one.
template <typename Team>
HOTBED_ROW_FN void Visit(const Team& team, const Table& table, uint32_t slot, bool hold) {
  team.Once([&]() {
    uint8_t* const at = table.BitsAt(slot);
    const uint8_t bits = *at;
    const uint8_t visits = (bits & kVisitedOnce) != 0 ? kVisitedTwice : kVisitedOnce;
    const uint8_t wanted = visits | (hold ? kHeld : 0);
    if ((bits & wanted) != wanted) team.Or(at, wanted);
  });
}

// The entry at which the bucket's clock stops, or kNoRow where all are held. Ages the others and
// moves the hand.
template <typename Team>
HOTBED_ROW_FN uint32_t ClockVictim(const Team& team, const Table& table, uint32_t bucket) {
  uint8_t* const bits = table.buckets[bucket].bits;
  const uint32_t hand = table.hands[bucket];
  const uint32_t least = team.Min(kBucketSlots, [&](uint32_t entry) {
    return (bits[entry] & kHeld) != 0 ? kNoRow : VisitsOf(bits[entry]);
  });
  if (least == kNoRow) return kNoRow;
  const uint32_t way = team.Min(kBucketSlots, [&](uint32_t entry) {
    const bool stops = (bits[entry] & kHeld) == 0 && VisitsOf(bits[entry]) == least;
    return stops ? (entry - hand) % kBucketSlots : kNoRow;
  });
  const uint32_t victim = (hand + way) % kBucketSlots;
  team.Sync();
  team.Strided(kBucketSlots, [&](uint32_t entry) {
    if ((bits[entry] & kHeld) != 0 || entry == victim) return;
    const uint32_t passes = least + ((entry - hand) % kBucketSlots < way ? 1 : 0);
    const uint32_t visits = VisitsOf(bits[entry]) - passes;
    const uint8_t rest = static_cast<uint8_t>(bits[entry] & ~kVisits);
    bits[entry] = rest | (visits == 0 ? 0 : visits == 1 ? kVisitedOnce : kVisitedTwice);
  });
  team.Once([&]() { table.hands[bucket] = static_cast<uint8_t>((victim + 1) % kBucketSlots); });
  team.Sync();
  return victim;
}

// Where a row that is not there may go. `evicts`: another row is still in the slot.
struct Place {
  uint32_t slot;  // kNoRow: every row of the bucket is held, or the table has no such position
  bool evicts;
};

template <typename Team>
HOTBED_ROW_FN Place PlaceFor(const Team& team, const Table& table, uint64_t position) {
  if (table.direct) return {DirectSlot(table, position), false};
  const uint32_t bucket = HomeOf(table, position).bucket;
  const uint8_t* const digests = table.buckets[bucket].digests;
  const uint32_t free = FirstEntry(team, [&](uint32_t entry) { return digests[entry] == 0; });
  if (free != kNoRow) return {kBucketSlots * bucket + free, false};
  const uint32_t victim = ClockVictim(team, table, bucket);
  if (victim == kNoRow) return {kNoRow, false};
  return {kBucketSlots * bucket + victim, true};
}

// The entry of a row that now lies in `slot`, with no visits: one that is read once goes before
// those that are read again.
template <typename Team>
HOTBED_ROW_FN void SetEntry(const Team& team, const Table& table, uint32_t slot, uint64_t position,
                            uint8_t bits) {
  team.Sync();
  team.Once([&]() {
    Bucket* const bucket = &table.buckets[slot / kBucketSlots];
    const uint32_t entry = slot % kBucketSlots;
    bucket->digests[entry] = table.direct ? 1 : HomeOf(table, position).digest;
    bucket->bits[entry] = bits;
    if (!table.direct) table.positions[slot] = position;
  });
  team.Sync();
}

template <typename Team>
HOTBED_ROW_FN void ClearEntry(const Team& team, const Table& table, uint32_t slot) {
  team.Sync();
  team.Once([&]() {
    table.buckets[slot / kBucketSlots].digests[slot % kBucketSlots] = 0;
    *table.BitsAt(slot) = 0;
  });
}

}  // namespace device
}  // namespace hotbed

#endif  // HOTBED_DEVICE_BUCKETS_H_
