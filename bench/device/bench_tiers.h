// Tables of which the device has room for a part: all rows lie in the host's memory, and those that
// are asked for come up, in place of others that go back down.
//
// A call is what the library does of it: rows are looked for and those that are there are answered,
// the list of the others is read back, their rows are fetched from the host's memory into pinned
// staging and inserted on the device; whoever makes room is copied out with its state, and put down
// while the device goes on. Ids are ranks: id 0 of a table is its most frequent. Confined to the
// thread of the benchmark.
#ifndef HOTBED_BENCH_DEVICE_BENCH_TIERS_H_
#define HOTBED_BENCH_DEVICE_BENCH_TIERS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "bench/device/bench_rows.h"

namespace hotbed {
namespace device {

struct TierSizes {
  RowShape shape;       // hashed
  uint32_t tables = 1;  // all alike
  uint64_t rows = 0;    // of a table
  uint64_t slots = 0;   // of a table on the device
  uint32_t ids = 0;     // of a table in a batch
};

struct TierCounts {
  uint64_t ids = 0;
  uint64_t missing = 0;  // ids whose rows were not there
  uint64_t brought = 0;  // rows
  uint64_t written = 0;  // rows that went down changed
  uint64_t refused = 0;  // rows without room on the device: of an update they would be lost
};

class TieredTables : public BenchTables {
 public:
  TieredTables(Device* device, const TierSizes& sizes);
  ~TieredTables();

  // All rows once through the device, the most frequent last: they stay, as they do in the end of a
  // long run, and it is full. `dirty`: as updates leave them.
  void Fill(bool dirty);
  // ids.size() = tables * ids; those of table t stand from t * ids on. Not a part of what is timed.
  void SetIds(const std::vector<uint64_t>& ids);
  // Answers in device memory.
  void ReadTiers();
  // Probe, gather, reduce and apply; gradients are the rows themselves.
  void StepTiers(OptimizerKind kind);
  // The same for a device that has all rows: nothing is looked for elsewhere.
  void ReadAll() { Read(true); }
  void StepAll(OptimizerKind kind);
  // Of the answers in device memory, to compare two runs.
  uint64_t AnswerSum();
  const TierCounts& counts() const { return counts_; }
  void ClearCounts() { counts_ = TierCounts(); }

 private:
  uint64_t RowOf(uint32_t k) const { return k / sizes_.ids * sizes_.rows + ids_of_batch_[k]; }
  uint8_t* Below(uint64_t row) { return below_.data() + row * stride_; }
  void Gather(size_t first, uint32_t begin, uint32_t end);
  void FindMissing();
  void BringUp(size_t first, uint32_t count, bool dirty);
  uint64_t PutDown(uint32_t count);
  void BringUpAll();
  void ReadMissing();
  void AnswerRefused();

  const TierSizes sizes_;
  const uint32_t stride_;  // of stored rows, in bytes
  const uint32_t part_max_;
  HostMemory below_;
  std::vector<uint64_t> ids_of_batch_;
  std::vector<uint32_t> missing_;  // numbers of ids
  std::vector<uint64_t> fetched_;  // rows below, each once
  std::vector<uint32_t> seen_;     // of each row below: the batch that last fetched it
  uint32_t batch_ = 0;
  uint64_t victims_out_ = 0;  // the mark behind the copies of the last BringUp
  TierCounts counts_;

  // Device memory.
  uint64_t* positions_;
  uint8_t* staged_;
  Segment* missing_segments_;
  uint64_t* missing_ids_;
  uint32_t* missing_numbers_;
  // Pinned memory of the host.
  std::vector<uint8_t*> pinned_;
  uint32_t* host_numbers_;
  uint64_t* host_positions_;
  uint32_t* host_table_of_;
  uint64_t* host_sources_;
  uint8_t* host_rows_;
  Victim* host_victims_;
  uint8_t* host_victim_rows_;
  Segment* host_segments_;
  uint64_t* host_ids_;
};

}  // namespace device
}  // namespace hotbed

#endif  // HOTBED_BENCH_DEVICE_BENCH_TIERS_H_
