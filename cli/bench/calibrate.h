// Measures the constants of the planner's cost model on this machine. Blocks for about `seconds`,
// and takes 512 MiB of memory and up to 1 GiB of disk meanwhile. The program that calls it must
// call hotbed::roofs::ServeIfAsked first thing in main (bench/roofs/roofs.h).
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
  std::string dir = ".";  // on the disk of the spill tier
  double seconds = 6;     // for all measurements together
  // Called before each measurement with the number done, the total and the name of the next one.
  std::function<void(uint64_t done, uint64_t of, const std::string& next)> progress;
};

// The measurements themselves: names and figures for people.
struct Calibration {
  CostConstants constants;
  std::vector<std::pair<std::string, std::string>> measured;
  std::vector<std::pair<std::string, std::string>> assumed;  // constants that stay at the default
};

// The time of a row is a part per byte, at the rate of memcpy, and a part per row: the time of a
// gather of 256 bytes (and of row-wise Adagrad on them) in addition to their bytes, by the formulas
// of docs/planner.md. So rows of about this size cost the measured time.
absl::StatusOr<Calibration> Calibrate(const CalibrateOptions& options);

// The part per row of `ns`; 0 if the bytes alone would take longer.
double RowPartNs(double ns, double bytes, double bytes_per_ms);

}  // namespace hotbed

#endif  // HOTBED_CLI_BENCH_CALIBRATE_H_
