// The constants of the planner's cost model, measured on this machine. Blocks for about `seconds`;
// takes 512 MiB of memory and up to 1 GiB of disk meanwhile. The program that calls it must call
// hotbed::roofs::ServeIfAsked first thing in main (bench/roofs/roofs.h).
#ifndef HOTBED_CLI_BENCH_CALIBRATE_H_
#define HOTBED_CLI_BENCH_CALIBRATE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/cost/cost_constants.h"

namespace hotbed {

struct CalibrateOptions {
  std::string dir = ".";  // where the spill would lie
  double seconds = 6;     // of all measurements together
  // Called before each measurement with how many of `of` are done and what comes.
  std::function<void(uint64_t done, uint64_t of, const std::string& next)> progress;
};

// What was measured, as it was measured: names and figures for people.
struct Calibration {
  CostConstants constants;
  std::vector<std::pair<std::string, std::string>> measured;
  std::vector<std::pair<std::string, std::string>> assumed;  // constants that stay at the default
};

// A row's time is its own part and one by bytes: gathers of rows of 64 and of 1,024 bytes give
// both (the line through two points), row-wise Adagrad on 256 bytes gives update_row_ns beside the
// bytes that it moves, by the formulas of docs/planner.md.
absl::StatusOr<Calibration> Calibrate(const CalibrateOptions& options);

// host_bandwidth (bytes per ms) and gather_row_ns of rows that take these ns. Where the longer row
// is no slower, or the line meets zero bytes below zero ns, all of the longer row's time is by
// bytes.
struct RowFit {
  double row_ns = 0;
  double bytes_per_ms = 0;
};
RowFit FitRows(double short_bytes, double short_ns, double long_bytes, double long_ns);

}  // namespace hotbed

#endif  // HOTBED_CLI_BENCH_CALIBRATE_H_
