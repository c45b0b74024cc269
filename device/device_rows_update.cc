// The calls of DeviceRows that change rows.
#include <algorithm>
#include <map>
#include <string>

#include "device/buckets.h"
#include "device/device_rows.h"

namespace hotbed {
namespace device {
namespace {

constexpr uint32_t kOwnSteps = kOwnWays * (static_cast<uint32_t>(kLastOptimizerKind) + 1);
static_assert(kOwnSteps <= 64, "a bit each");

uint32_t RoundUp16(uint32_t bytes) { return (bytes + 15) / 16 * 16; }

constexpr uint32_t kRemovedTogether = 4096;  // some 3 MiB of buckets and positions

}  // namespace

uint32_t DeviceRows::SumStride(const Batch& batch) const {
  uint32_t dim = 1;
  for (uint32_t s = 0; s < batch.segment_count; ++s) {
    dim = std::max(dim, tables_[batch.segments[s].table].shape.dim);
  }
  return RoundUp16(4 * dim);
}

Status DeviceRows::CheckSums(const Batch& batch) const {
  const uint32_t stride = SumStride(batch);
  const uint64_t sums = SumsOf(batch.ids_count);
  if (sums * stride <= sum_bytes_) return {};
  return {Code::kTooLarge, "sums of " + std::to_string(sums * stride) + " bytes for " +
                               std::to_string(batch.ids_count) + " ids, at most " +
                               std::to_string(sum_bytes_) +
                               ": keep narrow and wide tables in messages of their own"};
}

uint32_t DeviceRows::NumberBits() const {
  uint64_t limit = 1;
  for (const Table& table : tables_) {
    if (table.slots > 0) limit = std::max<uint64_t>(limit, uint64_t{table.row_base} + table.slots);
  }
  // The lowest bits of kNoRow, all set, must be greater than any row's number.
  uint32_t bits = 1;
  while ((1ull << bits) - 1 < limit) ++bits;
  return bits;
}

uint32_t DeviceRows::BucketBits() const {
  constexpr uint32_t kBitsOfSlot = 6;
  static_assert(kBucketSlots == 1u << kBitsOfSlot,
                "a bucket's number is that of its rows without their entry");
  const uint32_t bits = NumberBits();
  return bits > kBitsOfSlot ? bits - kBitsOfSlot : 1;
}

// Gradients come in while the rows' numbers are found and sorted.
void DeviceRows::RunUpdate(const Batch& update, const Flight& flight, const uint8_t* gradients,
                           uint64_t row_bytes) {
  device_->CopyInAside(flight.rows, gradients, row_bytes);
  device_->Sort(flight.numbers, room_.counted, update.ids_count, NumberBits(), room_.sorted,
                room_.order, room_.sort);
  device_->Order(Queue::kWork, Queue::kIn);
  UpdateBatch batch;
  batch.tables = room_.tables;
  batch.segments = {flight.segments, update.segment_count, update.ids_count};
  batch.sorted = room_.sorted;
  batch.order = room_.order;
  batch.gradients = flight.rows;
  batch.sum_stride = SumStride(update);
  batch.sums = room_.sums;
  if (update.ids_count > 1) device_->Run(SumWork{batch});
  const StepLaunches launches = PlanSteps(update);
  for (uint32_t bit = 0; bit < kOwnSteps; ++bit) {
    if ((launches.own >> bit & 1) == 0) continue;
    device_->RunSteps(static_cast<OptimizerKind>(bit / kOwnWays),
                      static_cast<StepWay>(bit % kOwnWays), batch);
  }
  if (launches.any) device_->Run(AnyStepWork{batch, launches.own});
}

// The steps with the most ids get launches of their own, up to kStepLaunches.
DeviceRows::StepLaunches DeviceRows::PlanSteps(const Batch& update) const {
  uint64_t ids_of[kOwnSteps] = {};
  StepLaunches launches;
  for (uint32_t s = 0; s < update.segment_count; ++s) {
    const Segment& segment = update.segments[s];
    const RowShape& shape = tables_[segment.table].shape;
    const uint32_t limit =
        s + 1 < update.segment_count ? update.segments[s + 1].first : update.ids_count;
    if (limit == segment.first) continue;
    const StepWay way = WayOf(segment, shape);
    const auto kind = static_cast<uint32_t>(StepKind(shape.optimizer.kind));
    if (way == StepWay::kAny) {
      launches.any = true;
    } else {
      ids_of[kOwnWays * kind + static_cast<uint32_t>(way)] += limit - segment.first;
    }
  }
  uint32_t steps = 0;
  for (uint64_t ids : ids_of) steps += ids > 0;
  launches.any = launches.any || steps > kStepLaunches;
  for (uint32_t taken = 0; taken < std::min(steps, kStepLaunches - launches.any); ++taken) {
    const auto most = static_cast<uint32_t>(std::max_element(ids_of, ids_of + kOwnSteps) - ids_of);
    launches.own |= 1ull << most;
    ids_of[most] = 0;
  }
  return launches;
}

uint32_t DeviceRows::StrideOf(uint32_t table) const {
  return RoundUp16(tables_[table].shape.stored_bytes());
}

// How many of the rows from `first` on may move together, and their stride in bytes.
uint32_t DeviceRows::PartOf(const std::vector<RowToInsert>& rows, uint32_t first,
                            uint32_t* stride) const {
  *stride = 0;
  uint32_t count = 0;
  while (first + count < rows.size() && count < options_.ids_max) {
    const uint32_t wider = std::max(*stride, StrideOf(rows[first + count].table));
    if (uint64_t{wider} * (count + 1) > options_.move_bytes_max) break;
    *stride = wider;
    ++count;
  }
  return count;
}

Status DeviceRows::Insert(const std::vector<RowToInsert>& rows, bool dirty,
                          std::vector<MovedRow>* evicted, std::vector<uint32_t>* refused) {
  if (Status status = CheckIdle(); !status.ok()) return status;
  for (const RowToInsert& row : rows) {
    if (row.table >= tables_.size() || tables_[row.table].slots == 0) {
      return {Code::kUnknown, "no table " + std::to_string(row.table) + " on the device"};
    }
  }
  for (uint32_t first = 0; first < rows.size();) {
    uint32_t stride = 0;
    const uint32_t count = PartOf(rows, first, &stride);
    Status status = InsertPart(rows, first, count, dirty, evicted, refused);
    if (!status.ok()) return status;
    first += count;
  }
  return {};
}

// Returns the bytes of staged rows.
uint64_t DeviceRows::StageInserts(const std::vector<RowToInsert>& rows, uint32_t first,
                                  uint32_t count) {
  uint64_t staged = 0;
  for (uint32_t k = 0; k < count; ++k) {
    const RowToInsert& row = rows[first + k];
    staging_.positions[k] = row.position;
    staging_.table_of[k] = row.table;
    staging_.sources[k] = kNowhere;
    if (row.stored == nullptr) continue;
    const uint32_t bytes = tables_[row.table].shape.stored_bytes();
    std::copy_n(row.stored, bytes, staging_.rows + staged);
    staging_.sources[k] = staged;
    staged += StrideOf(row.table);
  }
  return staged;
}

Status DeviceRows::InsertPart(const std::vector<RowToInsert>& rows, uint32_t first, uint32_t count,
                              bool dirty, std::vector<MovedRow>* evicted,
                              std::vector<uint32_t>* refused) {
  uint32_t stride = 0;
  PartOf(rows, first, &stride);
  const uint64_t staged = StageInserts(rows, first, count);
  device_->CopyIn(room_.positions, staging_.positions, 8ull * count);
  device_->CopyIn(room_.table_of, staging_.table_of, 4ull * count);
  device_->CopyIn(room_.sources, staging_.sources, 8ull * count);
  device_->CopyIn(room_.staged, staging_.rows, staged);
  InsertBatch batch;
  batch.tables = room_.tables;
  batch.count = count;
  batch.positions = room_.positions;
  batch.table_of = room_.table_of;
  batch.sources = room_.sources;
  batch.staged = room_.staged;
  batch.dirty = dirty;
  batch.buckets = room_.buckets;
  batch.sorted = room_.sorted;
  batch.order = room_.order;
  batch.numbers = flights_[0].numbers;
  batch.victims = room_.victims;
  batch.victim_rows = room_.victim_rows;
  batch.victim_stride = stride;
  device_->Run(BucketWork{batch});
  device_->Sort(room_.buckets, room_.counted, count, BucketBits(), room_.sorted, room_.order,
                room_.sort);
  device_->Run(InsertWork{batch});
  device_->Run(ExchangeWork{batch});
  const uint64_t* const sources = staging_.sources;
  if (std::count(sources, sources + count, kNowhere) > 0) device_->Run(FirstValueWork{batch});
  ReleaseWork release;
  release.tables = room_.tables;
  release.table_of = room_.table_of;
  release.numbers = flights_[0].numbers;
  release.count = count;
  device_->Run(release);
  device_->CopyOut(flights_[0].staged_numbers, flights_[0].numbers, 4ull * count);
  device_->CopyOut(staging_.victims, room_.victims, sizeof(Victim) * count);
  device_->CopyOut(staging_.rows, room_.victim_rows, uint64_t{stride} * count);
  Status status = device_->Wait();
  if (!status.ok()) return status;
  TakeVictims(count, stride, evicted);
  for (uint32_t k = 0; refused != nullptr && k < count; ++k) {
    if (flights_[0].staged_numbers[k] == kNoRow) refused->push_back(first + k);
  }
  return status;
}

void DeviceRows::TakeVictims(uint32_t count, uint32_t stride, std::vector<MovedRow>* evicted) {
  for (uint32_t k = 0; k < count; ++k) {
    const Victim& victim = staging_.victims[k];
    counts_.refused += flights_[0].staged_numbers[k] == kNoRow;
    counts_.inserted += flights_[0].staged_numbers[k] != kNoRow && victim.state != kWasThere;
    if (victim.state != kCleanVictim && victim.state != kDirtyVictim) continue;
    ++counts_.evicted;
    const uint8_t* const from = staging_.rows + uint64_t{stride} * k;
    const uint32_t bytes = tables_[victim.table].shape.stored_bytes();
    evicted->push_back(
        {victim.table, victim.position, {from, from + bytes}, victim.state == kDirtyVictim});
  }
}

Status DeviceRows::Remove(uint32_t table, const std::vector<uint64_t>& positions) {
  if (Status status = CheckIdle(); !status.ok()) return status;
  const auto count = static_cast<uint32_t>(positions.size());
  for (uint32_t first = 0; first < count; first += kRemovedTogether) {
    const uint32_t part = std::min(kRemovedTogether, count - first);
    if (Status status = RemovePart(tables_[table], positions.data() + first, part); !status.ok()) {
      return status;
    }
  }
  return {};
}

// The host edits the buckets: deletions are rare, and a row leaves by two bytes of its bucket.
Status DeviceRows::RemovePart(const Table& table, const uint64_t* positions, uint32_t count) {
  std::map<uint32_t, uint32_t> place_of;  // of each bucket in the arrays below
  std::vector<uint32_t> bucket_of(count);
  for (uint32_t k = 0; k < count; ++k) {
    bucket_of[k] = table.direct ? DirectSlot(table, positions[k]) / kBucketSlots
                                : HomeOf(table, positions[k]).bucket;
    if (bucket_of[k] < table.bucket_count) place_of[bucket_of[k]] = 0;
  }
  std::vector<Bucket> buckets(place_of.size());
  std::vector<uint64_t> held(place_of.size() * kBucketSlots);
  uint32_t next = 0;
  for (auto& [bucket, place] : place_of) {
    place = next++;
    device_->CopyOut(&buckets[place], table.buckets + bucket, sizeof(Bucket));
    uint64_t* const to = &held[uint64_t{place} * kBucketSlots];
    const uint64_t first = uint64_t{bucket} * kBucketSlots;
    for (uint32_t e = 0; table.direct && e < kBucketSlots; ++e) {
      to[e] = table.first_position + first + e;
    }
    if (!table.direct) device_->CopyOut(to, table.positions + first, 8ull * kBucketSlots);
  }
  if (Status status = device_->Wait(); !status.ok()) return status;
  for (uint32_t k = 0; k < count; ++k) {
    const auto found = place_of.find(bucket_of[k]);
    if (found == place_of.end()) continue;
    Bucket& bucket = buckets[found->second];
    for (uint32_t e = 0; e < kBucketSlots; ++e) {
      const bool here = (bucket.bits[e] & kExists) != 0 &&
                        held[uint64_t{found->second} * kBucketSlots + e] == positions[k];
      if (here) bucket.digests[e] = bucket.bits[e] = 0;
    }
  }
  for (const auto& [bucket, place] : place_of) {
    device_->CopyIn(table.buckets + bucket, &buckets[place], sizeof(Bucket));
  }
  return device_->Wait();
}

Status DeviceRows::Collect(uint32_t table, uint32_t* slot, uint32_t wanted,
                           std::vector<MovedRow>* rows) {
  if (Status status = CheckIdle(); !status.ok()) return status;
  const Table& from = tables_[table];
  const uint32_t part = static_cast<uint32_t>(std::min<uint64_t>(
      std::min(wanted, options_.ids_max), options_.move_bytes_max / StrideOf(table)));
  std::vector<uint32_t> dirty;
  while (*slot < from.slots && dirty.size() < part) {
    const uint32_t bucket = *slot / kBucketSlots;
    const uint32_t buckets = std::min(kCollectBuckets, from.bucket_count - bucket);
    device_->CopyOut(staging_.buckets, from.buckets + bucket, sizeof(Bucket) * buckets);
    if (Status status = device_->Wait(); !status.ok()) return status;
    const uint32_t limit = std::min<uint32_t>(from.slots, (bucket + buckets) * kBucketSlots);
    for (; *slot < limit && dirty.size() < part; ++*slot) {
      const Bucket& seen = staging_.buckets[*slot / kBucketSlots - bucket];
      if ((seen.bits[*slot % kBucketSlots] & kDirty) != 0) dirty.push_back(*slot);
    }
  }
  return dirty.empty() ? Status{} : CopyRowsOut(table, dirty, rows);
}

Status DeviceRows::CopyRowsOut(uint32_t table, const std::vector<uint32_t>& slots,
                               std::vector<MovedRow>* rows) {
  const uint32_t count = static_cast<uint32_t>(slots.size());
  const uint32_t stride = StrideOf(table);
  for (uint32_t k = 0; k < count; ++k) {
    flights_[0].staged_numbers[k] = tables_[table].row_base + slots[k];
    staging_.table_of[k] = table;
  }
  device_->CopyIn(flights_[0].numbers, flights_[0].staged_numbers, 4ull * count);
  device_->CopyIn(room_.table_of, staging_.table_of, 4ull * count);
  TakeWork work;
  work.tables = room_.tables;
  work.table_of = room_.table_of;
  work.numbers = flights_[0].numbers;
  work.count = count;
  work.positions = room_.positions;
  work.rows = room_.victim_rows;
  work.row_stride = stride;
  device_->Run(work);
  device_->CopyOut(staging_.positions, room_.positions, 8ull * count);
  device_->CopyOut(staging_.rows, room_.victim_rows, uint64_t{stride} * count);
  if (Status status = device_->Wait(); !status.ok()) return status;
  const uint32_t bytes = tables_[table].shape.stored_bytes();
  for (uint32_t k = 0; k < count; ++k) {
    const uint8_t* const from = staging_.rows + uint64_t{stride} * k;
    rows->push_back({table, staging_.positions[k], {from, from + bytes}});
  }
  return {};
}

}  // namespace device
}  // namespace hotbed
