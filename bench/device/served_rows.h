// One table as a server answers pulls from it: from the device where the row is present, otherwise
// from host memory.
//
// Answers go to pinned memory, from which a server sends them. Two messages are in flight: while
// the rows of one leave the device, the thread of the benchmark gathers the rows that the previous
// message lacks. Rows are promoted as in a server (server/tiers/device/heat_filter.h,
// device_shard_steps.cc): rows that were missed twice, one per 16 misses, some thousand at a time
// with no message in flight, in place of others. Ids are ranks: id 0 is the most frequent. Confined
// to the thread of the benchmark.
#ifndef HOTBED_BENCH_DEVICE_SERVED_ROWS_H_
#define HOTBED_BENCH_DEVICE_SERVED_ROWS_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "bench/device/bench_rows.h"
#include "device/device_rows.h"
#include "server/tiers/device/heat_filter.h"

namespace hotbed {
namespace device {

struct ServedSizes {
  RowShape shape;      // hashed
  uint64_t rows = 0;   // of the table
  uint64_t slots = 0;  // for rows on the device
  uint32_t ids = 0;    // of a message
};

struct ServedCounts {
  uint64_t ids = 0;
  uint64_t missing = 0;  // ids whose rows were not on the device
  uint64_t brought = 0;  // rows moved to the device
};

class ServedRows {
 public:
  ServedRows(Device* device, const ServedSizes& sizes);
  ~ServedRows();

  // Begins a message, after ending the one before the last. `ids` are those of the message and stay
  // valid until it ends.
  void Pull(const std::vector<uint64_t>& ids);
  // Ends the messages in flight.
  void EndAll();
  // A sum over the answers of the message that ended last.
  uint64_t AnswerSum() const;
  const ServedCounts& counts() const { return counts_; }
  // By message, the seconds from its begin to its complete answer.
  const std::vector<double>& seconds() const { return seconds_; }
  void ClearCounts() {
    counts_ = ServedCounts();
    seconds_.clear();
  }

 private:
  uint8_t* Below(uint64_t row) { return below_.data() + row * stride_; }
  void Fill();
  void End(uint32_t flight);
  void FetchMissing(uint32_t flight);
  void BringUp();

  Device* const device_;
  const ServedSizes sizes_;
  const uint32_t row_bytes_;
  const uint32_t stride_;  // of rows in host memory
  std::unique_ptr<DeviceRows> rows_;
  uint32_t table_ = 0;
  Segment segment_;
  HostMemory below_;
  HeatFilter heat_;
  const uint64_t together_;  // rows promoted at once
  std::vector<uint64_t> to_bring_;
  std::vector<uint32_t> missing_;
  uint8_t* answers_[kFlights] = {};
  uint64_t* ids_[kFlights] = {};
  bool is_under_way_[kFlights] = {};
  std::chrono::steady_clock::time_point begun_[kFlights];
  std::vector<double> seconds_;
  uint32_t message_ = 0;
  uint32_t last_ended_ = 0;
  ServedCounts counts_;
};

}  // namespace device
}  // namespace hotbed

#endif  // HOTBED_BENCH_DEVICE_SERVED_ROWS_H_
