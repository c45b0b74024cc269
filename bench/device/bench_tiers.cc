#include "bench/device/bench_tiers.h"

#include <algorithm>
#include <cstring>

#include "device/missing.h"

namespace hotbed {
namespace device {
namespace {

constexpr uint32_t kRowsOfPart = 1u << 16;   // at most, that move together
constexpr uint32_t kRowsOfSlice = 1u << 12;  // in flight while the next rows are gathered
constexpr uint32_t kAhead = 8;               // rows whose cache lines are prefetched
constexpr uint32_t kSeenAhead = 32;          // marks of rows that are prefetched

}  // namespace

TieredTables::TieredTables(Device* device, const TierSizes& sizes)
    : BenchTables(device, sizes.ids * sizes.tables, 4 * sizes.shape.dim),
      sizes_(sizes),
      stride_((sizes.shape.stored_bytes() + 15) / 16 * 16),
      part_max_(std::min(kRowsOfPart, ids_max_)),
      below_(sizes.rows * sizes.tables * stride_),
      seen_(sizes.rows * sizes.tables) {
  const uint64_t rows = sizes.rows * sizes.tables;
  for (uint64_t row = 0; row < rows; ++row) FillWeights(row, sizes.shape.dim, Below(row));
  for (uint32_t t = 0; t < sizes.tables; ++t) Add(sizes.shape, false, sizes.slots);
  positions_ = memory_.Array<uint64_t>(part_max_);
  staged_ = memory_.Take(uint64_t{stride_} * part_max_);
  missing_segments_ = memory_.Array<Segment>(ids_max_);
  missing_ids_ = memory_.Array<uint64_t>(ids_max_);
  missing_numbers_ = memory_.Array<uint32_t>(ids_max_);
  const auto pin = [&](auto** array, uint64_t count) {
    uint8_t* memory = nullptr;
    MustBe(device_->AllocateStaging(count * sizeof(**array), &memory));
    pinned_.push_back(memory);
    *array = reinterpret_cast<std::remove_reference_t<decltype(*array)>>(memory);
  };
  pin(&host_numbers_, ids_max_);
  pin(&host_missing_, MissingWords(ids_max_));
  pin(&host_positions_, part_max_);
  pin(&host_table_of_, part_max_);
  pin(&host_sources_, part_max_);
  pin(&host_rows_, uint64_t{stride_} * part_max_);
  pin(&host_victims_, part_max_);
  pin(&host_victim_rows_, uint64_t{stride_} * part_max_);
  pin(&host_segments_, ids_max_);
  pin(&host_ids_, ids_max_);
}

TieredTables::~TieredTables() {
  for (uint8_t* memory : pinned_) device_->FreeStaging(memory);
}

void TieredTables::Fill(bool dirty) {
  const uint64_t rows = sizes_.rows * sizes_.tables;
  for (uint64_t done = 0; done < rows; done += part_max_) {
    const uint32_t count = static_cast<uint32_t>(std::min<uint64_t>(part_max_, rows - done));
    fetched_.clear();
    for (uint32_t k = 0; k < count; ++k) {
      const uint64_t table = (done + k) / sizes_.rows;
      const uint64_t rank = sizes_.rows - 1 - (done + k) % sizes_.rows;
      fetched_.push_back(table * sizes_.rows + rank);
    }
    BringUp(0, count, dirty);
    ReleaseInserted(count);
    MustBe(device_->Wait());
    PutDown(count);
  }
  ClearCounts();
}

void TieredTables::SetIds(const std::vector<uint64_t>& ids) {
  std::vector<Segment> segments;
  for (uint32_t t = 0; t < sizes_.tables; ++t) {
    Segment segment;
    segment.table = t;
    segment.first = t * sizes_.ids;
    segment.rows_at = uint64_t{segment.first} * row_bytes_;
    segment.scalars = ResolveScalars(sizes_.shape.optimizer, 0.01f, batch_ + 1);
    segments.push_back(segment);
  }
  ids_of_batch_ = ids;
  ++batch_;
  SetBatch(segments, ids);
}

// After the wait: sets the numbers of the ids whose rows are missing, and the rows to fetch.
void TieredTables::FindMissing() {
  device_->CopyOut(host_missing_, missing_bits_, 4ull * MissingWords(segments_.ids));
  MustBe(device_->Wait());
  missing_.clear();
  fetched_.clear();
  ForMissing(host_missing_, segments_.ids, [&](uint32_t k) { missing_.push_back(k); });
  for (size_t j = 0; j < missing_.size(); ++j) {
    if (j + kSeenAhead < missing_.size()) {
      __builtin_prefetch(&seen_[RowOf(missing_[j + kSeenAhead])], 1);
    }
    const uint64_t row = RowOf(missing_[j]);
    if (seen_[row] == batch_) continue;
    seen_[row] = batch_;
    fetched_.push_back(row);
  }
  counts_.ids += segments_.ids;
  counts_.missing += missing_.size();
  counts_.brought += fetched_.size();
}

// Gathers rows first + [begin, end) of the rows to fetch into staging.
void TieredTables::Gather(size_t first, uint32_t begin, uint32_t end) {
  for (uint32_t j = begin; j < end; ++j) {
    const uint64_t row = fetched_[first + j];
    if (j + kAhead < end) {
      const uint8_t* const next = Below(fetched_[first + j + kAhead]);
      for (uint32_t at = 0; at < stride_; at += 64) __builtin_prefetch(next + at);
    }
    host_positions_[j] = Mix64(row % sizes_.rows);
    host_table_of_[j] = static_cast<uint32_t>(row / sizes_.rows);
    host_sources_[j] = uint64_t{stride_} * j;
    std::memcpy(host_rows_ + uint64_t{stride_} * j, Below(row), stride_);
  }
}

// Moves rows [first, first + count) of the rows to fetch to the device, slice after slice, and
// holds them; their victims are copied out concurrently with the next operation.
void TieredTables::BringUp(size_t first, uint32_t count, bool dirty) {
  for (uint32_t begin = 0; begin < count; begin += kRowsOfSlice) {
    const uint32_t end = std::min(count, begin + kRowsOfSlice);
    Gather(first, begin, end);
    device_->CopyInAside(staged_ + uint64_t{stride_} * begin,
                         host_rows_ + uint64_t{stride_} * begin, uint64_t{stride_} * (end - begin));
  }
  device_->CopyInAside(positions_, host_positions_, 8ull * count);
  device_->CopyInAside(table_of_, host_table_of_, 4ull * count);
  device_->CopyInAside(sources_, host_sources_, 8ull * count);
  device_->Order(Queue::kWork, Queue::kIn);
  InsertBatch batch = BatchOf(stride_, positions_, count);
  batch.dirty = dirty;
  batch.staged = staged_;
  RunInsert(batch);
  device_->Order(Queue::kOut, Queue::kWork);
  device_->CopyOutAside(host_victims_, victims_, sizeof(Victim) * count);
  device_->CopyOutAside(host_victim_rows_, victim_rows_, uint64_t{stride_} * count);
  victims_out_ = device_->Mark(Queue::kOut);
}

// After the wait for the memcpys of BringUp. Returns how many rows changed in host memory.
uint64_t TieredTables::PutDown(uint32_t count) {
  uint64_t written = 0;
  const auto row_of = [&](const Victim& victim) {
    return victim.table * sizes_.rows + Unmix64(victim.position);
  };
  for (uint32_t j = 0; j < count; ++j) {
    const Victim& victim = host_victims_[j];
    if (j + kAhead < count && host_victims_[j + kAhead].state == kDirtyVictim) {
      uint8_t* const next = Below(row_of(host_victims_[j + kAhead]));
      for (uint32_t at = 0; at < stride_; at += 64) __builtin_prefetch(next + at, 1);
    }
    if (victim.state != kDirtyVictim) continue;
    const uint64_t row = row_of(victim);
    std::memcpy(Below(row), host_victim_rows_ + uint64_t{stride_} * j, stride_);
    ++written;
  }
  counts_.written += written;
  return written;
}

// Afterwards all victims are in host memory except those of the last part, which are in flight.
void TieredTables::BringUpAll() {
  for (size_t first = 0; first < fetched_.size(); first += part_max_) {
    const auto count = static_cast<uint32_t>(std::min<size_t>(part_max_, fetched_.size() - first));
    BringUp(first, count, /*dirty=*/false);
    if (first + count == fetched_.size()) return;
    MustBe(device_->Wait());
    PutDown(count);
  }
}

// Writes their rows to the batch's answers, one segment each.
void TieredTables::ReadMissing() {
  for (size_t j = 0; j < missing_.size(); ++j) {
    const uint32_t k = missing_[j];
    Segment segment;
    segment.table = k / sizes_.ids;
    segment.first = static_cast<uint32_t>(j);
    segment.rows_at = uint64_t{row_bytes_} * k;
    host_segments_[j] = segment;
    host_ids_[j] = ids_of_batch_[k];
  }
  const auto count = static_cast<uint32_t>(missing_.size());
  device_->CopyIn(missing_segments_, host_segments_, sizeof(Segment) * count);
  device_->CopyIn(missing_ids_, host_ids_, 8ull * count);
  ReadWork work;
  work.tables = on_device_;
  work.segments = {missing_segments_, count, count};
  work.ids = missing_ids_;
  work.visit = false;
  work.numbers = missing_numbers_;
  work.rows = rows_;
  device_->Run(work);
  Release(work.segments, missing_numbers_);
  device_->CopyOut(host_numbers_, missing_numbers_, 4ull * count);
}

// Answers ids whose bucket was full of rows of this batch directly from host memory.
void TieredTables::AnswerRefused() {
  bool any = false;
  for (size_t j = 0; j < missing_.size(); ++j) {
    if (host_numbers_[j] != kNoRow) continue;
    device_->CopyIn(rows_ + uint64_t{row_bytes_} * missing_[j], Below(RowOf(missing_[j])),
                    row_bytes_);
    ++counts_.refused;
    any = true;
  }
  if (any) MustBe(device_->Wait());
}

void TieredTables::ReadTiers() {
  Read(true);
  FindMissing();
  if (missing_.empty()) return;
  BringUpAll();
  ReadMissing();
  MustBe(device_->WaitFor(victims_out_));
  PutDown(static_cast<uint32_t>((fetched_.size() - 1) % part_max_ + 1));
  MustBe(device_->Wait());
  AnswerRefused();
}

void TieredTables::StepTiers(OptimizerKind kind) {
  Read(false, true);
  FindMissing();
  BringUpAll();
  Read(true, false, false);  // visited and held already
  SortForUpdate();
  Step(kind);
  Release(segments_, numbers_);
  device_->CopyOut(host_numbers_, numbers_, 4ull * segments_.ids);
  if (!fetched_.empty()) {
    MustBe(device_->WaitFor(victims_out_));
    PutDown(static_cast<uint32_t>((fetched_.size() - 1) % part_max_ + 1));
  }
  MustBe(device_->Wait());
  for (uint32_t k : missing_) counts_.refused += host_numbers_[k] == kNoRow;
}

void TieredTables::StepAll(OptimizerKind kind) {
  Read(true);
  SortForUpdate();
  Step(kind);
}

uint64_t TieredTables::AnswerSum() {
  std::vector<uint32_t> words(uint64_t{row_bytes_} / 4 * segments_.ids);
  device_->CopyOut(words.data(), rows_, 4 * words.size());
  MustBe(device_->Wait());
  uint64_t sum = 0;
  for (size_t i = 0; i < words.size(); ++i) sum += Mix64(words[i] + (uint64_t{i} << 32));
  return sum;
}

}  // namespace device
}  // namespace hotbed
