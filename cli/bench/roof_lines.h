// Roofs as rates of rows, so that a load's rate can be set against them; all of one round are
// measured one after another.
#ifndef HOTBED_CLI_BENCH_ROOF_LINES_H_
#define HOTBED_CLI_BENCH_ROOF_LINES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/bench/bench_options.h"

namespace hotbed {

// What one message of the load carries.
struct MessageShape {
  uint64_t rows = 512;
  uint64_t row_bytes = 256;  // on the wire
  uint64_t table_rows = 1'000'000;
  int in_flight = 8;
  bool log = false;       // pushes are appended to a log
  std::string dir = ".";  // on the disk of that log
};

struct RoofLine {
  std::string name;
  double rows_per_s = 0;
};

constexpr uint64_t kMessageHeaderBytes = 96;

// Of a load of `kind` (a lookup counts as a pull; a mixed load has those of both).
absl::StatusOr<std::vector<RoofLine>> MeasureRoofs(BenchKind kind, const MessageShape& shape,
                                                   double seconds);

// Single ones, for the suite.
absl::StatusOr<RoofLine> GrpcPullRoof(const MessageShape& shape, double seconds);
absl::StatusOr<RoofLine> GrpcPushRoof(const MessageShape& shape, double seconds);
absl::StatusOr<RoofLine> TcpGatherRoof(const MessageShape& shape, double seconds);
// `synced`: what the disk takes of it, with one sync at the end; else what the page cache takes.
absl::StatusOr<RoofLine> AppendRoof(const MessageShape& shape, double seconds, bool synced);

}  // namespace hotbed

#endif  // HOTBED_CLI_BENCH_ROOF_LINES_H_
