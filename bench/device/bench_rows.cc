#include "bench/device/bench_rows.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "device/missing.h"

namespace hotbed {
namespace device {
namespace {

constexpr uint32_t kTablesMax = 1024;
constexpr int kCallsOfSample = 10;

}  // namespace

void MustBe(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.message.c_str());
  std::exit(1);
}

BenchMemory::~BenchMemory() {
  for (uint8_t* memory : taken_) device_->Free(memory);
}

uint8_t* BenchMemory::Take(uint64_t bytes) {
  uint8_t* memory = nullptr;
  MustBe(device_->Allocate(std::max<uint64_t>(bytes, 1), &memory));
  taken_.push_back(memory);
  return memory;
}

// mmap and not `new`: some systems refuse a block that is larger than the free memory.
HostMemory::HostMemory(uint64_t bytes) : bytes_(bytes) {
  void* const taken = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (taken == MAP_FAILED) {
    std::fprintf(stderr, "%llu bytes of host memory for rows below the device: %s; lower --scale\n",
                 static_cast<unsigned long long>(bytes), std::strerror(errno));
    std::exit(1);
  }
  madvise(taken, bytes, MADV_HUGEPAGE);  // otherwise in small pages
  data_ = static_cast<uint8_t*>(taken);
}

HostMemory::~HostMemory() { munmap(data_, bytes_); }

Timing TimeOf(Device* device, const std::function<void()>& run, int samples) {
  using Clock = std::chrono::steady_clock;
  run();
  MustBe(device->Wait());
  std::vector<double> seconds;
  for (int s = 0; s < samples; ++s) {
    const auto begin = Clock::now();
    for (int call = 0; call < kCallsOfSample; ++call) run();
    MustBe(device->Wait());
    seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count() / kCallsOfSample);
  }
  std::sort(seconds.begin(), seconds.end());
  return {seconds[seconds.size() / 2], seconds[seconds.size() * 99 / 100]};
}

BenchTables::BenchTables(Device* device, uint32_t ids_max, uint32_t row_bytes)
    : device_(device), memory_(device), ids_max_(ids_max), row_bytes_((row_bytes + 15) / 16 * 16) {
  const uint64_t rows = uint64_t{row_bytes_} * ids_max;
  // Dirty victims are written with their state, which is at most twice the weights.
  const uint64_t victims = 3 * rows;
  on_device_ = memory_.Array<Table>(kTablesMax);
  segment_room_ = memory_.Array<Segment>(kTablesMax);
  ids_ = memory_.Array<uint64_t>(uint64_t{kIdLists} * ids_max);
  counted_ = memory_.Array<uint32_t>(ids_max);
  numbers_ = memory_.Array<uint32_t>(ids_max);
  missing_bits_ = memory_.Array<uint32_t>(MissingWords(ids_max));
  sorted_ = memory_.Array<uint32_t>(ids_max);
  order_ = memory_.Array<uint32_t>(ids_max);
  buckets_ = memory_.Array<uint32_t>(ids_max);
  table_of_ = memory_.Array<uint32_t>(ids_max);
  offsets_ = memory_.Array<uint32_t>(uint64_t{ids_max} + 1);
  incomplete_ = memory_.Take(ids_max);
  sources_ = memory_.Array<uint64_t>(ids_max);
  row_sources_ = memory_.Array<uint64_t>(ids_max);
  victims_ = memory_.Array<Victim>(ids_max);
  rows_ = memory_.Take(rows);
  victim_rows_ = memory_.Take(victims);
  sums_ = memory_.Take(uint64_t{SumsOf(ids_max)} * row_bytes_);
  sort_ = memory_.Take(device->SortScratchBytes(ids_max));
  // All rows begin with their initial value.
  const std::vector<uint64_t> nowhere(ids_max, kNowhere);
  device_->CopyIn(sources_, nowhere.data(), 8ull * ids_max);
  std::vector<uint64_t> rows_at(ids_max);
  for (uint64_t k = 0; k < ids_max; ++k) rows_at[k] = k * row_bytes_;
  device_->CopyIn(row_sources_, rows_at.data(), 8ull * ids_max);
  std::vector<uint32_t> counted(ids_max);
  std::iota(counted.begin(), counted.end(), 0u);
  device_->CopyIn(counted_, counted.data(), 4ull * ids_max);
  MustBe(device_->Wait());
}

uint32_t BenchTables::Add(const RowShape& shape, bool direct, uint64_t slots) {
  Table table;
  table.shape = shape;
  table.direct = direct;
  table.bucket_count = static_cast<uint32_t>((slots + kBucketSlots - 1) / kBucketSlots);
  table.slots = direct ? static_cast<uint32_t>(slots) : table.bucket_count * kBucketSlots;
  table.row_base = next_row_;
  table.bucket_base = next_row_ / kBucketSlots;
  next_row_ += table.bucket_count * kBucketSlots;
  table.weights = memory_.Take(uint64_t{shape.weight_stride()} * table.slots);
  table.state = memory_.Take(uint64_t{shape.state_stride()} * table.slots);
  table.buckets = memory_.Array<Bucket>(table.bucket_count);
  if (!direct) {
    table.positions = memory_.Array<uint64_t>(table.slots);
    table.hands = memory_.Take(table.bucket_count);
  }
  tables_.push_back(table);
  device_->CopyIn(on_device_, tables_.data(), sizeof(Table) * tables_.size());
  MustBe(device_->Wait());
  return static_cast<uint32_t>(tables_.size()) - 1;
}

uint32_t BenchTables::NumberBits() const {
  uint32_t bits = 7;
  while ((1ull << bits) - 1 < next_row_) ++bits;
  return bits;
}

InsertBatch BenchTables::BatchOf(uint32_t stride, const uint64_t* positions, uint32_t count) const {
  InsertBatch batch;
  batch.tables = on_device_;
  batch.count = count;
  batch.positions = positions;
  batch.table_of = table_of_;
  batch.sources = sources_;
  batch.dirty = true;
  batch.buckets = buckets_;
  batch.sorted = sorted_;
  batch.order = order_;
  batch.numbers = numbers_;
  batch.victims = victims_;
  batch.victim_rows = victim_rows_;
  batch.victim_stride = stride;
  return batch;
}

void BenchTables::RunInsert(const InsertBatch& batch) {
  device_->Run(BucketWork{batch});
  device_->Sort(buckets_, counted_, batch.count, NumberBits() - 6, sorted_, order_, sort_);
  device_->Run(InsertWork{batch});
  device_->Run(ExchangeWork{batch});
}

void BenchTables::Release(const Segments& segments, const uint32_t* numbers) {
  ReleaseWork release;
  release.tables = on_device_;
  release.segments = segments;
  release.numbers = numbers;
  release.count = segments.ids;
  device_->Run(release);
}

// After an insert into one table, whose rows are in numbers_.
void BenchTables::ReleaseInserted(uint32_t count) {
  ReleaseWork release;
  release.tables = on_device_;
  release.table_of = table_of_;
  release.numbers = numbers_;
  release.count = count;
  device_->Run(release);
}

uint32_t BenchTables::StrideOf(uint32_t table) const {
  return (tables_[table].shape.stored_bytes() + 15) / 16 * 16;
}

void BenchTables::Insert(uint32_t table, uint64_t first, uint64_t count) {
  const bool direct = tables_[table].direct;
  for (uint64_t done = 0; done < count;) {
    const uint32_t part = static_cast<uint32_t>(std::min<uint64_t>(count - done, ids_max_));
    std::vector<uint64_t> positions(part);
    const std::vector<uint32_t> table_of(part, table);
    for (uint32_t k = 0; k < part; ++k) {
      positions[k] = direct ? first + done + k : Mix64(first + done + k);
    }
    device_->CopyIn(ids_, positions.data(), 8ull * part);
    device_->CopyIn(table_of_, table_of.data(), 4ull * part);
    const InsertBatch batch = BatchOf(StrideOf(table), ids_, part);
    RunInsert(batch);
    device_->Run(FirstValueWork{batch});
    ReleaseInserted(part);
    MustBe(device_->Wait());
    done += part;
  }
}

void BenchTables::InsertAt(const uint64_t* positions, uint32_t count) {
  InsertBatch batch = BatchOf(StrideOf(0), positions, count);
  batch.sources = row_sources_;
  batch.staged = rows_;
  RunInsert(batch);
  ReleaseInserted(count);
}

std::vector<uint64_t> BenchTables::ResidentIds(uint32_t table) {
  const Table& t = tables_[table];
  std::vector<Bucket> buckets(t.bucket_count);
  std::vector<uint64_t> positions(t.slots), ids;
  device_->CopyOut(buckets.data(), t.buckets, sizeof(Bucket) * buckets.size());
  if (!t.direct) device_->CopyOut(positions.data(), t.positions, 8 * positions.size());
  MustBe(device_->Wait());
  for (uint32_t s = 0; s < t.slots; ++s) {
    if (buckets[s / kBucketSlots].digests[s % kBucketSlots] == 0) continue;
    ids.push_back(t.direct ? s : IdOfPosition(t.shape, positions[s]));
  }
  return ids;
}

void BenchTables::SetBatch(const std::vector<Segment>& segments, const std::vector<uint64_t>& ids) {
  SetLists(segments, ids, 1);
}

void BenchTables::SetLists(const std::vector<Segment>& segments, const std::vector<uint64_t>& ids,
                           uint32_t lists) {
  lists_ = lists;
  next_list_ = 0;
  segments_ = {segment_room_, static_cast<uint32_t>(segments.size()),
               static_cast<uint32_t>(ids.size() / lists)};
  device_->CopyIn(segment_room_, segments.data(), sizeof(Segment) * segments.size());
  device_->CopyIn(ids_, ids.data(), 8 * ids.size());
  MustBe(device_->Wait());
}

void BenchTables::Read(bool with_rows, bool hold, bool visit) {
  ReadWork work;
  work.tables = on_device_;
  work.segments = segments_;
  work.ids = ids_now();
  work.hold = hold;
  work.visit = visit;
  work.numbers = numbers_;
  work.missing = missing_bits_;
  work.rows = with_rows ? rows_ : nullptr;
  device_->Run(work);
}

void BenchTables::ReadAt(const uint64_t* ids, uint32_t count) {
  ReadWork work;
  work.tables = on_device_;
  work.segments = {segment_room_, 1, count};
  work.ids = ids;
  work.visit = false;
  work.numbers = numbers_;
  work.rows = rows_;
  device_->Run(work);
}

void BenchTables::Pool(uint32_t bag) {
  const uint32_t bags = segments_.ids / bag;
  if (bag_ != bag) {
    std::vector<uint32_t> offsets(uint64_t{bags} + 1);
    for (uint32_t b = 0; b <= bags; ++b) offsets[b] = b * bag;
    device_->CopyIn(offsets_, offsets.data(), 4 * offsets.size());
    MustBe(device_->Wait());
    bag_ = bag;
  }
  PoolWork work;
  work.tables = on_device_;
  work.segments = {segment_room_, 1, bags};
  work.offsets = offsets_;
  work.ids = ids_now();
  work.numbers = numbers_;
  work.rows = rows_;
  work.incomplete = incomplete_;
  device_->Run(work);
}

void BenchTables::SortForUpdate() {
  device_->Sort(numbers_, counted_, segments_.ids, NumberBits(), sorted_, order_, sort_);
}

void BenchTables::Step(OptimizerKind kind) {
  UpdateBatch batch;
  batch.tables = on_device_;
  batch.segments = segments_;
  batch.sorted = sorted_;
  batch.order = order_;
  batch.gradients = rows_;
  batch.sum_stride = row_bytes_;
  batch.sums = sums_;
  device_->Run(SumWork{batch});
  device_->RunSteps(kind, StepWay::kBare, batch);
}

}  // namespace device
}  // namespace hotbed
