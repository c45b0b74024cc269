// Tables and batches on a device for its benchmark, and the times of operations on them. Confined
// to the thread of the benchmark.
#ifndef HOTBED_BENCH_DEVICE_BENCH_ROWS_H_
#define HOTBED_BENCH_DEVICE_BENCH_ROWS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "device/device.h"
#include "row_math/position.h"

namespace hotbed {
namespace device {

// Ends the program where the device fails, because nothing is left to measure.
void MustBe(const Status& status);

// Device memory of a benchmark, freed by the destructor.
class BenchMemory {
 public:
  explicit BenchMemory(Device* device) : device_(device) {}
  ~BenchMemory();
  BenchMemory(const BenchMemory&) = delete;

  uint8_t* Take(uint64_t bytes);
  template <typename T>
  T* Array(uint64_t count) {
    return reinterpret_cast<T*>(Take(sizeof(T) * count));
  }
  template <typename T>
  T* Send(const std::vector<T>& values) {
    T* const array = Array<T>(values.size());
    device_->CopyIn(array, values.data(), sizeof(T) * values.size());
    MustBe(device_->Wait());
    return array;
  }
  Device* device() const { return device_; }

 private:
  Device* const device_;
  std::vector<uint8_t*> taken_;
};

// Zeroed host memory, whose pages are allocated on first touch; huge pages where the system has
// them, because rows are read at random.
class HostMemory {
 public:
  explicit HostMemory(uint64_t bytes);
  ~HostMemory();
  HostMemory(const HostMemory&) = delete;
  uint8_t* data() const { return data_; }

 private:
  const uint64_t bytes_;
  uint8_t* data_;
};

// The fp32 weights of a row in host memory: none is zero, and no two rows are equal.
inline void FillWeights(uint64_t row, uint32_t dim, uint8_t* weights) {
  const auto of_row = static_cast<float>(row % 8191 + 1) * 1e-3f;
  for (uint32_t i = 0; i < dim; ++i) {
    const float value = of_row + static_cast<float>(i % 64) * 1e-4f;
    __builtin_memcpy(weights + 4 * uint64_t{i}, &value, 4);
  }
}

struct Timing {
  double median_s;
  double p99_s;
};
// The time of one call of `run`: samples of several calls each, after a warm-up.
Timing TimeOf(Device* device, const std::function<void()>& run, int samples);

constexpr uint32_t kIdLists = 4;  // at most, in SetLists

// Tables with numbers 0, 1, ... and one allocation for all arrays of a batch.
class BenchTables {
 public:
  BenchTables(Device* device, uint32_t ids_max, uint32_t row_bytes);

  uint32_t Add(const RowShape& shape, bool direct, uint64_t slots);
  // Rows with first values: ids Unmix64(first), ... so that their positions are first, ...
  void Insert(uint32_t table, uint64_t first, uint64_t count);
  // Ids of present rows.
  std::vector<uint64_t> ResidentIds(uint32_t table);
  double LoadFactor(uint32_t table) {
    return double(ResidentIds(table).size()) / tables_[table].slots;
  }

  // Sets the batch of the runs below.
  void SetBatch(const std::vector<Segment>& segments, const std::vector<uint64_t>& ids);
  // The same segments with other lists of `lists`, whose ids lie one list after another. Each call
  // of NextIds takes the next list, so that no cache holds the ids of the previous call.
  void SetLists(const std::vector<Segment>& segments, const std::vector<uint64_t>& ids,
                uint32_t lists);
  void NextIds() { next_list_ = (next_list_ + 1) % lists_; }
  void Read(bool with_rows, bool hold = false, bool visit = true);
  // Sums the rows of the batch in bags of `bag` ids each, whose rows a Read has found; the last ids
  // that fill no bag are left out. Answers are in the rows of the first bags.
  void Pool(uint32_t bag);
  void SortForUpdate();
  void Step(OptimizerKind kind);
  // Inserts rows of table 0 by positions, with values, both in device memory; present rows stay.
  // Yields victims once the table is full.
  void InsertAt(const uint64_t* positions, uint32_t count);
  // Finds rows of table 0 by ids in device memory, without a visit; after SetBatch of one segment.
  void ReadAt(const uint64_t* ids, uint32_t count);
  BenchMemory* memory() { return &memory_; }

 protected:
  InsertBatch BatchOf(uint32_t stride, const uint64_t* positions, uint32_t count) const;
  void RunInsert(const InsertBatch& batch);
  void Release(const Segments& segments, const uint32_t* numbers);
  void ReleaseInserted(uint32_t count);
  uint32_t StrideOf(uint32_t table) const;
  // The bits by which row numbers and buckets are sorted, as DeviceRows has them.
  uint32_t NumberBits() const;
  const uint64_t* ids_now() const { return ids_ + uint64_t{segments_.ids} * next_list_; }

  Device* const device_;
  BenchMemory memory_;
  const uint32_t ids_max_;
  const uint32_t row_bytes_;
  std::vector<Table> tables_;
  uint32_t next_row_ = 0;
  uint32_t lists_ = 1;
  uint32_t next_list_ = 0;
  Table* on_device_ = nullptr;
  Segments segments_;
  Segment* segment_room_;
  uint64_t* ids_;
  uint32_t* counted_;
  uint32_t* numbers_;
  uint32_t* missing_bits_;
  uint32_t* sorted_;
  uint32_t* order_;
  uint32_t* buckets_;
  uint32_t* table_of_;
  uint32_t* offsets_;  // of bags
  uint32_t bag_ = 0;   // ids of a bag, as in offsets_
  uint8_t* incomplete_;
  uint64_t* sources_;
  uint64_t* row_sources_;  // of the rows in rows_
  Victim* victims_;
  uint8_t* rows_;
  uint8_t* victim_rows_;
  uint8_t* sums_;
  uint8_t* sort_;
};

}  // namespace device
}  // namespace hotbed

#endif  // HOTBED_BENCH_DEVICE_BENCH_ROWS_H_
