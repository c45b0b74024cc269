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
#include "planner/model/cost_constants.h"

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

// A row's time is a part by bytes, at the rate of a copy in memory, and its own part: what a gather
// of 256 bytes, and row-wise Adagrad on them, take beside their bytes by the formulas of
// docs/planner.md. So rows of about this size cost what they were measured to cost.
absl::StatusOr<Calibration> Calibrate(const CalibrateOptions& options);

// A row's own part of `ns`; 0 where its bytes alone would take longer.
double RowPartNs(double ns, double bytes, double bytes_per_ms);

}  // namespace hotbed

#endif  // HOTBED_CLI_BENCH_CALIBRATE_H_
