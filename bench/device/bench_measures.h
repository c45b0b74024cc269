// The rows of the benchmark's table, each measured and added to the report.
#ifndef HOTBED_BENCH_DEVICE_BENCH_MEASURES_H_
#define HOTBED_BENCH_DEVICE_BENCH_MEASURES_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/device/bench_report.h"
#include "bench/device/bench_rows.h"

namespace hotbed {
namespace device {

constexpr uint32_t kIdsOfCall = 1u << 20;
constexpr double kRowBytesHeld = 8e9;  // of the gathered tables

struct BenchRun {
  Device* device;
  Report* report;
  double scale;
  int samples;
  double roof = 0;  // bytes/s
  uint32_t Ids() const { return std::max<uint32_t>(1000, std::min(1.0, scale * 8) * kIdsOfCall); }
  uint64_t Rows(uint32_t row_bytes) const {
    return std::max<uint64_t>(2048, static_cast<uint64_t>(scale * kRowBytesHeld / row_bytes));
  }
};

RowShape BenchShape(uint32_t dim, OptimizerKind kind, bool hashed);
// Ranks by Zipf's law with exponent 1.05 over `limit` ids, by the inverse of its integral: id 0 is
// the most frequent, and every rank has an id of its own.
std::vector<uint64_t> ZipfIds(uint64_t limit, uint32_t count, uint64_t seed);

// bench_measures.cc. The roof comes first, because the others need it.
void MeasureRoof(BenchRun* run);
void MeasureGather(const BenchRun& run, uint32_t dim);
void MeasureApply(const BenchRun& run, OptimizerKind kind, const char* name);
void MeasureFinds(const BenchRun& run);
void MeasureInserts(const BenchRun& run);
void MeasureTableCounts(const BenchRun& run);

// tier_measures.cc. False: a run with rows in two tiers gave other answers than a run with all rows
// on the device.
bool MeasureHalfServed(const BenchRun& run);
bool MeasureHalfOnDevice(const BenchRun& run);
bool MeasureTrainingSteps(const BenchRun& run);

}  // namespace device
}  // namespace hotbed

#endif  // HOTBED_BENCH_DEVICE_BENCH_MEASURES_H_
