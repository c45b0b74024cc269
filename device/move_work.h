// Works that move rows into the device and out of it: insert with victims, take out, release.
#ifndef HOTBED_DEVICE_MOVE_WORK_H_
#define HOTBED_DEVICE_MOVE_WORK_H_

#include <cstdint>

#include "device/batch.h"
#include "device/buckets.h"
#include "device/row_bytes.h"
#include "device/table.h"

namespace hotbed {
namespace device {

// A row that has made room, as the tier below receives it.
struct Victim {
  uint64_t position = 0;
  uint32_t table = 0;
  uint32_t state = 0;  // kNoVictim, or one of the states below
};
constexpr uint32_t kNoVictim = 0;
// A row whose stored bytes are in the row buffer:
constexpr uint32_t kCleanVictim = 1;  // the tier below has the same values
constexpr uint32_t kDirtyVictim = 2;  // the tier below does not
constexpr uint32_t kWasThere = 3;     // no victim: the row was there already and stays as it is

// Rows to bring in; a row that is there already stays as it is. Row k has its stored bytes at
// staged + sources[k]; if that is kNowhere, a FirstValueWork after the insert computes its first
// value. Rows are held until they are released.
struct InsertBatch {
  const Table* tables = nullptr;
  uint32_t count = 0;
  const uint64_t* positions = nullptr;
  const uint32_t* table_of = nullptr;
  const uint64_t* sources = nullptr;
  const uint8_t* staged = nullptr;
  bool dirty = false;
  uint32_t* buckets = nullptr;       // by BucketWork: of each row
  const uint32_t* sorted = nullptr;  // buckets, ascending
  const uint32_t* order = nullptr;   // which row each one is; equal ones in order
  uint32_t* numbers = nullptr;       // out: of row k, or kNoRow if its bucket has no room
  Victim* victims = nullptr;         // out: the row that row k has driven out
  uint8_t* victim_rows = nullptr;    // out: of victim k at k * victim_stride, a multiple of 16
  uint32_t victim_stride = 0;
};

// Finds the buckets by which the rows are then sorted. One lane per row.
struct BucketWork {
  static constexpr uint32_t kLanes = 32;
  InsertBatch batch;

  HOTBED_ROW_FN uint32_t units() const { return (batch.count + kLanes - 1) / kLanes; }
};

template <typename Team>
HOTBED_ROW_FN void DoUnit(const Team& team, const BucketWork& work, const Unit& unit) {
  const InsertBatch& batch = work.batch;
  team.Strided(Team::kLanes, [&](uint32_t lane) {
    const uint32_t k = Team::kLanes * unit.number + lane;
    if (k >= batch.count) return;
    const Table& table = batch.tables[batch.table_of[k]];
    const uint64_t position = batch.positions[k];
    // A bucket of this table even for a position outside it: equal numbers must be adjacent when
    // they are sorted by their lowest bits.
    const uint32_t slot = table.direct ? DirectSlot(table, position) : 0;
    const uint32_t bucket = !table.direct    ? HomeOf(table, position).bucket
                            : slot == kNoRow ? 0
                                             : slot / kBucketSlots;
    batch.buckets[k] = table.bucket_base + bucket;
  });
}

// Gives each row a slot, bucket by bucket, the rows of each bucket in order: the slots, and the
// rows that make room, depend on the order of the batch alone. An ExchangeWork after it moves the
// bytes: a slot is given once in a batch, so the rows can be moved in any order, all at the same
// time.
struct InsertWork {
  static constexpr uint32_t kLanes = kBucketLanes;
  InsertBatch batch;

  HOTBED_ROW_FN uint32_t units() const { return (batch.count + kLanes - 1) / kLanes; }
};

// The row's entry in its bucket, or kNoRow if it is not there.
template <typename Team>
HOTBED_ROW_FN uint32_t EntryOf(const Team& team, const Table& table, uint32_t bucket,
                               const BucketView<Team>& view, uint64_t position, uint8_t digest) {
  if (!table.direct) {
    return MatchingEntry(team, view.digests, digest,
                         table.positions + kBucketSlots * uint64_t{bucket}, position);
  }
  const uint32_t slot = DirectSlot(table, position);
  if (slot == kNoRow) return kNoRow;
  const uint32_t entry = slot % kBucketSlots;
  return (ByteAt(team, view.bits, entry) & kExists) != 0 ? entry : kNoRow;
}

template <typename Team>
HOTBED_ROW_FN Place PlaceOf(const Team& team, const Table& table, uint64_t position,
                            BucketView<Team>* view) {
  if (!table.direct) return PlaceIn(team, view);
  const uint32_t slot = DirectSlot(table, position);
  return {slot == kNoRow ? kNoRow : slot % kBucketSlots, false};
}

template <typename Team>
HOTBED_ROW_FN void InsertRow(const Team& team, const InsertBatch& batch, const Table& table,
                             uint32_t bucket, uint32_t k, BucketView<Team>* view) {
  const uint64_t position = batch.positions[k];
  const uint8_t digest = table.direct ? 1 : HomeOf(table, position).digest;
  Victim victim;
  victim.table = batch.table_of[k];
  uint32_t entry = EntryOf(team, table, bucket, *view, position, digest);
  if (entry != kNoRow) {
    const uint8_t bits = ByteAt(team, view->bits, entry);
    SetByteAt(team, entry, static_cast<uint8_t>(bits | kHeld), &view->bits);
    victim.position = position;
    victim.state = kWasThere;
  } else {
    const Place place = PlaceOf(team, table, position, view);
    entry = place.entry;
    const uint32_t slot = kBucketSlots * bucket + entry;
    if (place.evicts) {
      victim.position = table.PositionAt(slot);
      const bool is_dirty = (ByteAt(team, view->bits, entry) & kDirty) != 0;
      victim.state = is_dirty ? kDirtyVictim : kCleanVictim;
    }
    team.Sync();
    if (entry != kNoRow) {
      SetEntry(team, entry, digest,
               static_cast<uint8_t>(kExists | kHeld | (batch.dirty ? kDirty : 0)), view);
      if (!table.direct) team.Once([&]() { table.positions[slot] = position; });
    }
  }
  team.Once([&]() {
    batch.victims[k] = victim;
    batch.numbers[k] = entry == kNoRow ? kNoRow : table.row_base + kBucketSlots * bucket + entry;
  });
  team.Sync();
}

// The sorted rows from `begin` on that have the same bucket.
template <typename Team>
HOTBED_ROW_FN void InsertRun(const Team& team, const InsertBatch& batch, uint32_t begin) {
  const Table& table = batch.tables[batch.table_of[batch.order[begin]]];
  const uint32_t bucket = batch.sorted[begin] - table.bucket_base;
  BucketView<Team> view = OpenBucket(team, table, bucket);
  for (uint32_t at = begin; at < batch.count && batch.sorted[at] == batch.sorted[begin]; ++at) {
    InsertRow(team, batch, table, bucket, batch.order[at], &view);
  }
  CloseBucket(team, table, bucket, view);
}

// Prefetches what the rows of a unit need first.
template <typename Team>
HOTBED_ROW_FN void FetchUnit(const Team& team, const InsertBatch& batch, uint32_t first) {
  team.Strided(Team::kLanes, [&](uint32_t lane) {
    if (first + lane >= batch.count) return;
    const uint32_t k = batch.order[first + lane];
    const Table& table = batch.tables[batch.table_of[k]];
    FetchAhead(&table.buckets[batch.sorted[first + lane] - table.bucket_base]);
    FetchAhead(&batch.positions[k]);
  });
}

template <typename Team>
HOTBED_ROW_FN void DoUnit(const Team& team, const InsertWork& work, const Unit& unit) {
  const InsertBatch& batch = work.batch;
  const uint32_t first = Team::kLanes * unit.number;
  FetchUnit(team, batch, first);
  const auto begins = team.Map([&](uint32_t lane) {
    const uint32_t at = first + lane;
    return at < batch.count && (at == 0 || batch.sorted[at - 1] != batch.sorted[at]);
  });
  for (uint32_t mask = team.Ballot(begins, [](bool is) { return is; }); mask != 0;
       mask &= mask - 1) {
    InsertRun(team, batch, first + LowestBit(mask));
  }
}

// Moves the bytes of the rows that an InsertWork has placed: the rows that make room go out, then
// the new ones come in, but for those whose first value a FirstValueWork computes. One unit per 32
// rows.
struct ExchangeWork {
  static constexpr uint32_t kLanes = 32;
  InsertBatch batch;

  HOTBED_ROW_FN uint32_t units() const { return (batch.count + kLanes - 1) / kLanes; }
};

// A row of a unit as its lane sees it.
template <typename Team>
struct RowsToExchange {
  typename Team::template Values<uint32_t> slots;    // kNoRow: nothing is to be moved
  typename Team::template Values<uint64_t> sources;  // of the rows that come in
  uint32_t evicting;                                 // bit l: the row of lane l drives one out
  uint32_t first;                                    // row of the batch that lane 0 has
};

// Weights or state of rows [begin, end) of a unit, all of one table: slot s at `here` + stride * s,
// and `offset` bytes after the begin of rows outside.
struct PartToExchange {
  uint8_t* here;
  uint32_t stride;
  uint32_t bytes;
  uint32_t offset;
};

// A part whose bytes go in sixteens.
template <typename Team>
HOTBED_ROW_FN void ExchangeInSixteens(const Team& team, const InsertBatch& batch,
                                      const RowsToExchange<Team>& rows, const PartToExchange& part,
                                      uint32_t begin, uint32_t end) {
  struct Place {
    uint64_t source;
    uint32_t slot;
    bool evicts, is;
  };
  struct Both {
    Words<4> out, in;
  };
  const auto at = [&](uint32_t row) {
    const uint32_t slot = team.Get(rows.slots, row);
    const uint64_t source = team.Get(rows.sources, row);
    const bool is = slot != kNoRow;
    return Place{is ? source : kNowhere, slot, is && (rows.evicting >> row & 1) != 0, is};
  };
  const auto here = [&](const Place& place) {
    return part.here + uint64_t{part.stride} * place.slot;
  };
  const auto load = [&](const Place& place, uint32_t i) {
    Both both = {};
    if (place.evicts) both.out = LoadAligned<Words<4>>(here(place), i);
    if (place.source != kNowhere) {
      both.in = LoadAligned<Words<4>>(batch.staged + place.source + part.offset, i);
    }
    return both;
  };
  ForParts<2>(team, begin, end, part.bytes / 16, at, load,
              [&](const Place& place, uint32_t row, uint32_t i, const Both& both) {
                uint8_t* const out = batch.victim_rows + part.offset +
                                     uint64_t{batch.victim_stride} * (rows.first + row);
                if (place.evicts) StoreOnce(out, i, both.out);
                if (place.source != kNowhere) StoreAligned(here(place), i, both.in);
              });
}

// A part of a few bytes, or of any alignment: each lane moves its own row's, in twos.
template <typename Team>
HOTBED_ROW_FN void ExchangeInTwos(const Team& team, const InsertBatch& batch,
                                  const RowsToExchange<Team>& rows, const PartToExchange& part,
                                  uint32_t begin, uint32_t end) {
  team.Strided(Team::kLanes, [&](uint32_t row) {
    const uint32_t slot = team.Own(rows.slots, row);
    const uint64_t source = team.Own(rows.sources, row);
    if (row < begin || row >= end || slot == kNoRow) return;
    uint8_t* const here = part.here + uint64_t{part.stride} * slot;
    uint8_t* const out =
        batch.victim_rows + part.offset + uint64_t{batch.victim_stride} * (rows.first + row);
    for (uint32_t i = 0; i < part.bytes / 2; ++i) {
      if ((rows.evicting >> row & 1) != 0) StoreAligned(out, i, LoadAligned<uint16_t>(here, i));
      if (source == kNowhere) continue;
      StoreAligned(here, i, LoadAligned<uint16_t>(batch.staged + source + part.offset, i));
    }
  });
}

template <typename Team>
HOTBED_ROW_FN void ExchangePart(const Team& team, const InsertBatch& batch,
                                const RowsToExchange<Team>& rows, const PartToExchange& part,
                                uint32_t begin, uint32_t end) {
  if (part.bytes == 0) return;
  const uint32_t odd = team.Ballot(rows.sources, [&](uint64_t source) {
    return source != kNowhere && (reinterpret_cast<uintptr_t>(batch.staged) + source) % 16 != 0;
  });
  if (odd == 0 && (part.bytes | part.offset) % 16 == 0) {
    return ExchangeInSixteens(team, batch, rows, part, begin, end);
  }
  ExchangeInTwos(team, batch, rows, part, begin, end);
}

template <typename Team>
HOTBED_ROW_FN void DoUnit(const Team& team, const ExchangeWork& work, const Unit& unit) {
  const InsertBatch& batch = work.batch;
  const uint32_t first = Team::kLanes * unit.number;
  const uint32_t left = batch.count - first;
  const uint32_t count = left < Team::kLanes ? left : Team::kLanes;
  const auto k_of = [&](uint32_t lane) { return first + (lane < count ? lane : 0); };
  const auto tables = team.Map([&](uint32_t lane) { return batch.table_of[k_of(lane)]; });
  const auto states = team.Map([&](uint32_t lane) { return batch.victims[k_of(lane)].state; });
  RowsToExchange<Team> rows;
  rows.first = first;
  rows.sources = team.Map([&](uint32_t lane) { return batch.sources[k_of(lane)]; });
  rows.slots = team.Map([&](uint32_t lane) {
    const uint32_t number = batch.numbers[k_of(lane)];
    const bool is_moved = number != kNoRow && team.Own(states, lane) != kWasThere;
    return is_moved ? number - batch.tables[team.Own(tables, lane)].row_base : kNoRow;
  });
  rows.evicting = team.Ballot(
      states, [](uint32_t state) { return state == kCleanVictim || state == kDirtyVictim; });
  for (uint32_t begin = 0, end = 0; begin < count; begin = end) {
    const uint32_t number = team.Get(tables, begin);
    end = EndOfSame(team, tables, number, begin, count);
    const Table& table = batch.tables[number];
    const uint32_t weight_bytes = table.shape.weight_bytes();
    ExchangePart(team, batch, rows, {table.weights, table.shape.weight_stride(), weight_bytes, 0},
                 begin, end);
    ExchangePart(team, batch, rows,
                 {table.state, table.shape.state_stride(), table.shape.state_bytes(), weight_bytes},
                 begin, end);
  }
}

// Computes first values of rows that an InsertWork has brought in without bytes. One unit per row.
struct FirstValueWork {
  static constexpr uint32_t kLanes = 16;
  InsertBatch batch;

  HOTBED_ROW_FN uint32_t units() const { return batch.count; }
};

template <typename Team>
HOTBED_ROW_FN void DoUnit(const Team& team, const FirstValueWork& work, const Unit& unit) {
  const InsertBatch& batch = work.batch;
  const uint32_t k = unit.number;
  const bool is_new = batch.numbers[k] != kNoRow && batch.victims[k].state != kWasThere;
  if (!is_new || batch.sources[k] != kNowhere) return;
  const Table& table = batch.tables[batch.table_of[k]];
  FirstValue(team, table, batch.numbers[k] - table.row_base,
             IdOfPosition(table.shape, batch.positions[k]));
}

// Copies out the stored bytes of rows by number, and marks the rows clean. One unit per row.
struct TakeWork {
  static constexpr uint32_t kLanes = 16;
  const Table* tables = nullptr;
  const uint32_t* table_of = nullptr;
  const uint32_t* numbers = nullptr;  // each once
  uint32_t count = 0;
  uint64_t* positions = nullptr;  // out
  uint8_t* rows = nullptr;        // out: row k at k * row_stride, a multiple of 16
  uint32_t row_stride = 0;

  HOTBED_ROW_FN uint32_t units() const { return count; }
};

template <typename Team>
HOTBED_ROW_FN void CopyOut(const Team& team, const Table& table, uint32_t slot, uint8_t* out) {
  CopyRow(team, out, table.WeightsAt(slot), table.shape.weight_bytes());
  CopyRow(team, out + table.shape.weight_bytes(), table.StateAt(slot), table.shape.state_bytes());
}

template <typename Team>
HOTBED_ROW_FN void DoUnit(const Team& team, const TakeWork& work, const Unit& unit) {
  const uint32_t k = unit.number;
  const Table& table = work.tables[work.table_of[k]];
  const uint32_t slot = work.numbers[k] - table.row_base;
  team.Once([&]() { work.positions[k] = table.PositionAt(slot); });
  CopyOut(team, table, slot, work.rows + uint64_t{work.row_stride} * k);
  team.Once([&]() { team.And(table.BitsAt(slot), static_cast<uint8_t>(~kDirty)); });
}

// Releases rows that a batch held: they may be victims again. Skips kNoRow; numbers may repeat.
struct ReleaseWork {
  static constexpr uint32_t kLanes = 32;
  const Table* tables = nullptr;
  Segments segments;                   // names the rows' tables; or
  const uint32_t* table_of = nullptr;  // one per row
  const uint32_t* numbers = nullptr;
  uint32_t count = 0;

  HOTBED_ROW_FN uint32_t units() const { return (count + kLanes - 1) / kLanes; }
};

template <typename Team>
HOTBED_ROW_FN void DoUnit(const Team& team, const ReleaseWork& work, const Unit& unit) {
  team.Strided(Team::kLanes, [&](uint32_t lane) {
    const uint32_t k = Team::kLanes * unit.number + lane;
    if (k >= work.count || work.numbers[k] == kNoRow) return;
    const Table& table =
        work.tables[work.table_of != nullptr ? work.table_of[k]
                                             : work.segments.at[SegmentOf(work.segments, k)].table];
    team.And(table.BitsAt(work.numbers[k] - table.row_base), static_cast<uint8_t>(~kHeld));
  });
}

}  // namespace device
}  // namespace hotbed

#endif  // HOTBED_DEVICE_MOVE_WORK_H_
