// The load itself: clients that keep calls in flight on existing tables, in a closed loop or on a
// schedule.
#ifndef HOTBED_CLI_BENCH_LOAD_H_
#define HOTBED_CLI_BENCH_LOAD_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/bench/bench_options.h"
#include "hotbed/client.h"

namespace hotbed {

inline constexpr double kWarmUpSeconds = 0.3;  // of load before the measurement begins

struct LoadSpec {
  BenchKind kind = BenchKind::kPull;
  std::string coordinator;
  std::vector<std::string> tables;
  uint64_t batch = 512;  // ids of each table in one call
  // Above 0: the ids form bags of this size (the last may be shorter), each pulled as one row.
  uint32_t bag_ids = 0;
  BagPooling pooling = BagPooling::kSum;
  double zipf = 0.0;  // 0: unique uniform ids
  uint32_t streams = 1;
  uint32_t threads = 1;
  uint32_t in_flight = 8;
  RowType wire = RowType::kFp32;
  ReadFrom read_from = ReadFrom::kPrimary;
  bool strict = false;
  bool call_per_table = false;  // instead of one call for all tables
  bool grouped = false;         // pushes: the streams are trainers of one group
  uint64_t seed = 1;
};

struct LoadResult {
  double seconds = 0;
  uint64_t calls = 0;
  uint64_t rows = 0;   // moved, without duplicates; a pooled row counts once per shard
  uint64_t ids = 0;    // answered or pushed, with duplicates
  uint64_t bytes = 0;  // in both directions, as the client counts them
  uint64_t bytes_received = 0;
  uint64_t messages = 0;
  uint64_t hedges = 0;  // of the messages: to a second replica, as ClientStats counts them
  uint64_t hedges_of_silent = 0;
  uint64_t hedges_won = 0;
  std::vector<float> latency_s;  // ascending

  double CallsPerSecond() const { return static_cast<double>(calls) / seconds; }
  double RowsPerSecond() const { return static_cast<double>(rows) / seconds; }
  double IdsPerSecond() const { return static_cast<double>(ids) / seconds; }
  double BytesPerSecond() const { return static_cast<double>(bytes) / seconds; }
  double Latency(double quantile) const;  // seconds
  void AddCounts(const LoadResult& other);
};

// Connected clients with their batches drawn in advance. Thread-compatible.
class Load {
 public:
  static absl::StatusOr<std::unique_ptr<Load>> Open(const LoadSpec& spec);
  ~Load();

  // `rate`: calls per second over all streams, each due at a fixed time; 0: a closed loop. The
  // first error ends the run.
  absl::StatusOr<LoadResult> Run(double seconds, double rate);

 private:
  class Stream;
  Load() = default;
  std::vector<std::unique_ptr<Stream>> streams_;
};

}  // namespace hotbed

#endif  // HOTBED_CLI_BENCH_LOAD_H_
