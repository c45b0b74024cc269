// The network rows of docs/measurements.md, each measured against its roof in interleaved rounds.
#ifndef HOTBED_CLI_BENCH_SUITE_H_
#define HOTBED_CLI_BENCH_SUITE_H_

#include <vector>

#include "absl/status/statusor.h"
#include "cli/bench/bench_options.h"
#include "cli/bench/bench_report.h"

namespace hotbed {

// Uses coordinator, seconds, repeats, threads and dir of the options; creates and fills tables of
// about 7 GiB.
absl::StatusOr<std::vector<SuiteRow>> RunSuite(const BenchOptions& options);

}  // namespace hotbed

#endif  // HOTBED_CLI_BENCH_SUITE_H_
