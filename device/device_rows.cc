#include "device/device_rows.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "device/missing.h"

namespace hotbed {
namespace device {
namespace {

constexpr uint64_t kSumRowBytesMax = 4ull * kDimLimit;

uint64_t RoundUp(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

std::string Number(uint64_t value) { return std::to_string(value); }

uint64_t SlotsFor(bool direct, uint64_t rows) {
  return direct ? rows : RoundUp(std::max<uint64_t>(rows, 1), kBucketSlots);
}

}  // namespace

Status DeviceRows::Open(Device* device, const RowsOptions& options,
                        std::unique_ptr<DeviceRows>* rows) {
  std::unique_ptr<DeviceRows> opened(new DeviceRows(device, options));
  Status status = opened->TakeMemory();
  if (status.ok()) *rows = std::move(opened);
  return status;
}

DeviceRows::~DeviceRows() {
  if (memory_ != nullptr) device_->Free(memory_);
  if (staging_memory_ != nullptr) device_->FreeStaging(staging_memory_);
}

// take(bytes) returns the address of each array; called once to add sizes up, once with memory.
template <typename Take>
void DeviceRows::LayOutRoom(Take take) {
  const uint64_t ids = options_.ids_max;
  const auto array = [&](auto** at, uint64_t count) {
    *at = reinterpret_cast<std::remove_reference_t<decltype(*at)>>(take(sizeof(**at) * count));
  };
  for (Flight& flight : flights_) {
    array(&flight.segments, options_.segments_max);
    array(&flight.ids, ids);
    array(&flight.numbers, ids);
    array(&flight.missing, MissingWords(options_.ids_max));
    array(&flight.flags, ids);
    array(&flight.rows, options_.row_bytes_max);
  }
  array(&room_.tables, options_.tables_max);
  array(&room_.bag_segments, options_.segments_max);
  array(&room_.counted, ids);
  array(&room_.sorted, ids);
  array(&room_.order, ids);
  array(&room_.offsets, ids + 1);
  array(&room_.weights, ids);
  array(&room_.sums, sum_bytes_);
  array(&room_.sort, device_->SortScratchBytes(options_.ids_max));
  array(&room_.positions, ids);
  array(&room_.table_of, ids);
  array(&room_.sources, ids);
  array(&room_.buckets, ids);
  array(&room_.victims, ids);
  array(&room_.staged, options_.move_bytes_max);
  array(&room_.victim_rows, options_.move_bytes_max);
}

template <typename Take>
void DeviceRows::LayOutStaging(Take take) {
  const uint64_t ids = options_.ids_max;
  const auto array = [&](auto** at, uint64_t count) {
    *at = reinterpret_cast<std::remove_reference_t<decltype(*at)>>(take(sizeof(**at) * count));
  };
  for (Flight& flight : flights_) {
    array(&flight.staged_segments, options_.segments_max);
    array(&flight.staged_numbers, ids);
    array(&flight.staged_missing, MissingWords(options_.ids_max));
  }
  array(&staging_.bag_segments, options_.segments_max);
  array(&staging_.positions, ids);
  array(&staging_.table_of, ids);
  array(&staging_.sources, ids);
  array(&staging_.victims, ids);
  array(&staging_.rows, options_.move_bytes_max);
  array(&staging_.buckets, kCollectBuckets);
}

Status DeviceRows::TakeMemory() {
  if (options_.ids_max > kIdsMax) {
    return {Code::kTooLarge,
            "messages of " + Number(options_.ids_max) + " ids; allowed are " + Number(kIdsMax)};
  }
  // Enough for full messages in fp32: half as many sums as gradients.
  sum_bytes_ = options_.row_bytes_max / 2 + kSumRowBytesMax;
  uint64_t bytes = 0, staging = 0;
  const auto add_to = [](uint64_t* sum) {
    return [sum](uint64_t size) {
      const uint64_t at = *sum;
      *sum += RoundUp(size, ByteArena::kUnit);
      return at;
    };
  };
  LayOutRoom(add_to(&bytes));
  LayOutStaging(add_to(&staging));
  if (options_.device_bytes < bytes + ByteArena::kUnit) {
    return {Code::kNoMemory, "--device-bytes=" + Number(options_.device_bytes) + ": " +
                                 Number(bytes) + " are room for messages, and none is left for " +
                                 "rows; raise it, or lower the limits of messages"};
  }
  slabs_at_ = bytes;
  staging_bytes_ = staging;
  arena_ = ByteArena(options_.device_bytes - bytes);
  Status status = device_->Allocate(options_.device_bytes, &memory_);
  if (status.ok()) status = device_->AllocateStaging(staging, &staging_memory_);
  if (!status.ok()) return status;
  uint8_t* at = memory_;
  const auto walk = [&at](uint64_t size) {
    uint8_t* const here = at;
    at += RoundUp(size, ByteArena::kUnit);
    return here;
  };
  LayOutRoom(walk);
  at = staging_memory_;
  LayOutStaging(walk);
  std::iota(flights_[0].staged_numbers, flights_[0].staged_numbers + options_.ids_max, 0u);
  device_->CopyIn(room_.counted, flights_[0].staged_numbers, 4ull * options_.ids_max);
  return device_->Wait();
}

uint64_t DeviceRows::TableBytes(const RowShape& shape, bool direct, uint64_t rows) {
  const uint64_t slots = SlotsFor(direct, rows);
  const uint64_t buckets = (slots + kBucketSlots - 1) / kBucketSlots;
  uint64_t bytes = RoundUp(shape.weight_stride() * slots, ByteArena::kUnit) +
                   RoundUp(shape.state_stride() * slots, ByteArena::kUnit) +
                   RoundUp(sizeof(Bucket) * buckets, ByteArena::kUnit);
  if (!direct) bytes += RoundUp(8 * slots, ByteArena::kUnit) + RoundUp(buckets, ByteArena::kUnit);
  return bytes;
}

Status DeviceRows::AddTable(const RowShape& shape, bool direct, uint64_t first_position,
                            uint64_t rows, uint32_t* table) {
  if (Status status = CheckIdle(); !status.ok()) return status;
  const uint64_t slots = SlotsFor(direct, rows);
  if (slots == 0 || slots > kRowsMax) {
    return {Code::kTooLarge, "a table of " + Number(slots) +
                                 " slots on one device; allowed are 1 to " + Number(kRowsMax)};
  }
  if (RoundUp(shape.stored_bytes(), 16) > options_.move_bytes_max) {
    return {Code::kTooLarge, "rows of " + Number(shape.stored_bytes()) + " bytes, " +
                                 Number(options_.move_bytes_max) + " may move at a time"};
  }
  const auto unused =
      std::find_if(tables_.begin(), tables_.end(), [](const Table& t) { return t.slots == 0; });
  if (unused == tables_.end() && tables_.size() >= options_.tables_max) {
    return {Code::kTooLarge,
            "one table more than " + Number(options_.tables_max) + " on one device"};
  }
  const uint64_t bytes = TableBytes(shape, direct, rows);
  const uint64_t number = numbers_.Take(slots);
  const uint64_t offset = number == ByteArena::kNone ? ByteArena::kNone : arena_.Take(bytes);
  if (offset == ByteArena::kNone) {
    if (number != ByteArena::kNone) numbers_.Give(number);
    return {Code::kNoMemory, "device memory: a table of " + Number(bytes) + " bytes, " +
                                 Number(arena_.largest_free()) + " of " +
                                 Number(options_.device_bytes) + " are free in one piece"};
  }
  *table = static_cast<uint32_t>(unused - tables_.begin());
  if (unused == tables_.end()) {
    tables_.emplace_back();
    slab_of_.push_back(0);
  }
  uint8_t* at = memory_ + slabs_at_ + offset;
  device_->Clear(at, bytes);
  const auto next = [&at](uint64_t size) {
    uint8_t* const here = at;
    at += RoundUp(size, ByteArena::kUnit);
    return here;
  };
  Table added;
  added.shape = shape;
  added.direct = direct;
  added.first_position = first_position;
  added.slots = static_cast<uint32_t>(slots);
  added.row_base = static_cast<uint32_t>(number);
  added.bucket_count = static_cast<uint32_t>((slots + kBucketSlots - 1) / kBucketSlots);
  added.bucket_base = added.row_base / kBucketSlots;
  added.weights = next(shape.weight_stride() * slots);
  added.state = next(shape.state_stride() * slots);
  added.buckets = reinterpret_cast<Bucket*>(next(sizeof(Bucket) * added.bucket_count));
  if (!direct) {
    added.positions = reinterpret_cast<uint64_t*>(next(8 * slots));
    added.hands = next(added.bucket_count);
  }
  tables_[*table] = added;
  slab_of_[*table] = offset;
  SendTables();
  return device_->Wait();
}

void DeviceRows::RemoveTable(uint32_t table) {
  arena_.Give(slab_of_[table]);
  numbers_.Give(tables_[table].row_base);
  tables_[table] = Table();
}

void DeviceRows::SendTables() {
  device_->CopyIn(room_.tables, tables_.data(), sizeof(Table) * tables_.size());
}

// `row_bytes` null: the batch has no rows in either direction.
Status DeviceRows::Check(const Batch& batch, bool update, uint64_t* row_bytes) const {
  uint64_t bytes = 0;
  if (batch.ids_count > options_.ids_max || batch.segment_count > options_.segments_max) {
    return {Code::kTooLarge, "a message of " + Number(batch.ids_count) + " ids in " +
                                 Number(batch.segment_count) + " segments; at most " +
                                 Number(options_.ids_max) + " in " + Number(options_.segments_max) +
                                 ": cut it"};
  }
  for (uint32_t s = 0; s < batch.segment_count; ++s) {
    const Segment& segment = batch.segments[s];
    const uint32_t limit =
        s + 1 < batch.segment_count ? batch.segments[s + 1].first : batch.ids_count;
    if (segment.table >= tables_.size() || tables_[segment.table].slots == 0) {
      return {Code::kUnknown, "no table " + Number(segment.table) + " on the device"};
    }
    if (limit < segment.first || (s == 0 && segment.first != 0) || segment.rows_at % 16 != 0 ||
        (update && segment.type == RowType::kInt8)) {
      return {Code::kTooLarge, "segment " + Number(s) + " of " + Number(batch.segment_count) +
                                   " is out of order, not at a multiple of 16 bytes, or an "
                                   "update in int8"};
    }
    const uint64_t wire = RowWireBytes(segment.type, tables_[segment.table].shape.dim);
    bytes = std::max(bytes, segment.rows_at + wire * (limit - segment.first));
  }
  const bool named = batch.segment_count > 0 || batch.ids_count == 0;
  if (row_bytes == nullptr) bytes = 0;
  if (row_bytes != nullptr) *row_bytes = bytes;
  if (bytes <= options_.row_bytes_max && named) return {};
  return {Code::kTooLarge, "rows of " + Number(bytes) + " bytes in one message, at most " +
                               Number(options_.row_bytes_max) + ": cut it"};
}

}  // namespace device
}  // namespace hotbed
