// One table as a server answers pulls from it: the device's rows first, what is not there out of
// the host's memory.
//
// Answers go to pinned memory, as a server's do that are sent from there, and two messages are
// under way: while the rows of one are on their way out, the rows that the one before lacks are
// fetched by the thread of the benchmark. Rows come up as a server's do
// (server/tiers/device/heat_filter.h, device_shard_steps.cc): those that are missed twice, one for every
// 16 misses, some thousand at a time and with nothing else under way, in place of others. Ids are
// ranks: id 0 is the most frequent. Confined to the thread of the benchmark.
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
  uint64_t slots = 0;  // of them on the device
  uint32_t ids = 0;    // of a message
};

struct ServedCounts {
  uint64_t ids = 0;
  uint64_t missing = 0;  // ids whose rows were not there
  uint64_t brought = 0;  // rows
};

class ServedRows {
 public:
  ServedRows(Device* device, const ServedSizes& sizes);
  ~ServedRows();

  // A message under way; the one before the last ends first. `ids`: as many as a message has, valid
  // until it ends.
  void Pull(const std::vector<uint64_t>& ids);
  // Ends what is under way.
  void EndAll();
  // Of the answers of the message that ended last.
  uint64_t AnswerSum() const;
  const ServedCounts& counts() const { return counts_; }
  // Of each message, from when it is given to when its answer is whole, in seconds.
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
  const uint32_t stride_;  // of rows below
  std::unique_ptr<DeviceRows> rows_;
  uint32_t table_ = 0;
  Segment segment_;
  HostMemory below_;
  HeatFilter heat_;
  const uint64_t together_;  // rows that come up
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
