// Tables of which the device has room for a part: all rows are in host memory, and requested rows
// are moved to the device in place of others, which are moved back.
//
// A call works as in the library: the device finds rows and answers the present ones; the host
// reads back the list of the others, gathers their rows from host memory into pinned staging and
// inserts them on the device; victims are copied out with their state and written to host memory
// while the device continues. Ids are ranks: id 0 of a table is the most frequent. Confined to the
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
  uint32_t tables = 1;  // of this shape
  uint64_t rows = 0;    // of a table
  uint64_t slots = 0;   // of a table on the device
  uint32_t ids = 0;     // of a table in a batch
};

struct TierCounts {
  uint64_t ids = 0;
  uint64_t missing = 0;  // ids whose rows were not on the device
  uint64_t brought = 0;  // rows moved to the device
  uint64_t written = 0;  // changed rows moved back
  uint64_t refused = 0;  // rows without room on the device: an update would lose them
};

class TieredTables : public BenchTables {
 public:
  TieredTables(Device* device, const TierSizes& sizes);
  ~TieredTables();

  // Moves all rows through the device once, the most frequent last. These stay, as at the end of a
  // long run, and the device is full. `dirty`: the rows are changed, as after updates.
  void Fill(bool dirty);
  // ids.size() = tables * ids; the ids of table t begin at t * ids. Not timed.
  void SetIds(const std::vector<uint64_t>& ids);
  // Answers in device memory.
  void ReadTiers();
  // Probe, gather, reduce and apply; gradients are the rows themselves.
  void StepTiers(OptimizerKind kind);
  // The same for a device that has all rows.
  void ReadAll() { Read(true); }
  void StepAll(OptimizerKind kind);
  // A sum over the answers in device memory, to compare two runs.
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
  std::vector<uint64_t> fetched_;  // rows in host memory, each once
  std::vector<uint32_t> seen_;     // by row in host memory: the batch that last fetched it
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
  uint32_t* host_missing_;  // bits
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
