// Roofs as rates of rows, for comparison with the rate of a load. The roofs of one round are
// measured one after another.
#ifndef HOTBED_CLI_BENCH_ROOF_LINES_H_
#define HOTBED_CLI_BENCH_ROOF_LINES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/bench/bench_options.h"

namespace hotbed {

// The contents of one message of the load.
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
  std::string refused;  // why this machine has no such roof; empty: it has
};

constexpr uint64_t kMessageHeaderBytes = 96;

// The roofs of a load of `kind` (a lookup counts as a pull; a mixed load has both).
absl::StatusOr<std::vector<RoofLine>> MeasureRoofs(BenchKind kind, const MessageShape& shape,
                                                   double seconds);

// Single roofs in rows/s, for the suite.
absl::StatusOr<double> GrpcPullRoof(const MessageShape& shape, double seconds);
absl::StatusOr<double> GrpcPushRoof(const MessageShape& shape, double seconds);
absl::StatusOr<double> TcpGatherRoof(const MessageShape& shape, double seconds);
// `synced`: the rate of the disk, with one sync at the end; otherwise the rate of the page cache.
absl::StatusOr<double> AppendRoof(const MessageShape& shape, double seconds, bool synced);
// The rate of the disk itself, without the page cache. Unimplemented: the file system refuses
// direct writes.
absl::StatusOr<double> DirectAppendRoof(const MessageShape& shape, double seconds);

}  // namespace hotbed

#endif  // HOTBED_CLI_BENCH_ROOF_LINES_H_
