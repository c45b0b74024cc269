#include "bench/device/served_rows.h"

#include <algorithm>
#include <cstring>

namespace hotbed {
namespace device {
namespace {

// As in a server: DeviceShard::TakeAndPromote.
constexpr uint32_t kRowsTogether = 2048;  // promoted at once
constexpr size_t kCandidatesMax = 4096;
constexpr uint32_t kAhead = 16;  // rows whose cache lines are prefetched
constexpr uint64_t kRoomBeside = 512ull << 20;

template <typename T>
T* Pinned(Device* device, uint64_t count) {
  uint8_t* memory = nullptr;
  MustBe(device->AllocateStaging(count * sizeof(T), &memory));
  return reinterpret_cast<T*>(memory);
}

}  // namespace

ServedRows::ServedRows(Device* device, const ServedSizes& sizes)
    : device_(device),
      sizes_(sizes),
      row_bytes_(sizes.shape.weight_bytes()),
      stride_(sizes.shape.stored_bytes()),
      below_(sizes.rows * stride_),
      heat_(sizes.slots),
      together_(HeatFilter::RowsTogether(sizes.slots, kRowsTogether)) {
  for (uint64_t row = 0; row < sizes.rows; ++row) FillWeights(row, sizes.shape.dim, Below(row));
  RowsOptions options;
  options.ids_max = sizes.ids;
  options.row_bytes_max = uint64_t{row_bytes_} * sizes.ids;
  options.device_bytes = DeviceRows::TableBytes(sizes.shape, false, sizes.slots) +
                         4 * options.row_bytes_max + kRoomBeside;
  MustBe(DeviceRows::Open(device, options, &rows_));
  MustBe(rows_->AddTable(sizes.shape, false, 0, sizes.slots, &table_));
  segment_.table = table_;
  for (uint32_t flight = 0; flight < kFlights; ++flight) {
    answers_[flight] = Pinned<uint8_t>(device, options.row_bytes_max);
    ids_[flight] = Pinned<uint64_t>(device, sizes.ids);
  }
  Fill();
}

ServedRows::~ServedRows() {
  for (uint32_t flight = 0; flight < kFlights; ++flight) {
    device_->FreeStaging(answers_[flight]);
    device_->FreeStaging(reinterpret_cast<uint8_t*>(ids_[flight]));
  }
}

// Moves the most frequent rows to the device, the most frequent last, as at the end of a long run.
// They are more than there are slots, because some buckets fill up before others.
void ServedRows::Fill() {
  std::vector<RowToInsert> rows;
  std::vector<MovedRow> evicted;
  const uint64_t filling = std::min(sizes_.rows, sizes_.slots * 17 / 10);
  for (uint64_t row = filling; row-- > 0;) {
    rows.push_back({table_, Mix64(row), Below(row)});
    if (rows.size() < sizes_.ids && row > 0) continue;
    MustBe(rows_->Insert(rows, false, &evicted, nullptr));
    rows.clear();
    evicted.clear();  // unchanged: host memory has them
  }
}

void ServedRows::Pull(const std::vector<uint64_t>& ids) {
  const uint32_t flight = message_++ % kFlights;
  if (is_under_way_[flight]) End(flight);
  std::copy(ids.begin(), ids.end(), ids_[flight]);
  const Batch batch = {&segment_, 1, ids_[flight], sizes_.ids};
  begun_[flight] = std::chrono::steady_clock::now();
  MustBe(rows_->StartPull(flight, batch, answers_[flight], nullptr));
  is_under_way_[flight] = true;
  const uint32_t before = (flight + 1) % kFlights;
  if (is_under_way_[before]) End(before);
  if (std::min<uint64_t>(to_bring_.size(), heat_.rows_due()) >= together_) {
    EndAll();
    BringUp();
  }
}

void ServedRows::EndAll() {
  for (uint32_t i = 0; i < kFlights; ++i) {
    const uint32_t flight = (message_ + i) % kFlights;
    if (is_under_way_[flight]) End(flight);
  }
}

void ServedRows::End(uint32_t flight) {
  MustBe(rows_->Finish(flight, &missing_));
  is_under_way_[flight] = false;
  last_ended_ = flight;
  counts_.ids += sizes_.ids;
  counts_.missing += missing_.size();
  FetchMissing(flight);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun_[flight];
  seconds_.push_back(took.count());
}

void ServedRows::FetchMissing(uint32_t flight) {
  const uint64_t* const ids = ids_[flight];
  for (size_t j = 0; j < missing_.size(); ++j) {
    if (j + kAhead < missing_.size()) {
      const uint8_t* const next = Below(ids[missing_[j + kAhead]]);
      for (uint32_t at = 0; at < row_bytes_; at += 64) __builtin_prefetch(next + at);
    }
    const uint64_t row = ids[missing_[j]];
    std::memcpy(answers_[flight] + uint64_t{row_bytes_} * missing_[j], Below(row), row_bytes_);
    if (heat_.Miss(Mix64(row)) < HeatFilter::kMissesToComeUp) continue;
    if (to_bring_.size() < kCandidatesMax) to_bring_.push_back(row);
  }
}

// Promotes the rows that were missed last.
void ServedRows::BringUp() {
  const auto count =
      std::min<uint64_t>({to_bring_.size(), heat_.rows_due(), uint64_t{kRowsTogether}});
  std::vector<uint64_t> taken(to_bring_.end() - static_cast<std::ptrdiff_t>(count),
                              to_bring_.end());
  to_bring_.resize(to_bring_.size() - count);
  std::sort(taken.begin(), taken.end());
  taken.erase(std::unique(taken.begin(), taken.end()), taken.end());
  std::vector<RowToInsert> rows;
  for (uint64_t row : taken) rows.push_back({table_, Mix64(row), Below(row)});
  std::vector<MovedRow> evicted;  // unchanged: host memory has them
  MustBe(rows_->Insert(rows, false, &evicted, nullptr));
  heat_.CameUp(rows.size());
  counts_.brought += rows.size();
}

uint64_t ServedRows::AnswerSum() const {
  const uint64_t words = uint64_t{row_bytes_} / 4 * sizes_.ids;
  uint64_t sum = 0;
  for (uint64_t i = 0; i < words; ++i) {
    uint32_t word;
    std::memcpy(&word, answers_[last_ended_] + 4 * i, 4);
    sum += Mix64(word + (i << 32));
  }
  return sum;
}

}  // namespace device
}  // namespace hotbed
