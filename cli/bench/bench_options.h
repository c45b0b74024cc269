// The options of `hotbed bench pull|push|mixed|lookup` with their help, and the function that runs
// it.
//
// The program that calls RunBench must call hotbed::roofs::ServeIfAsked first thing in main
// (bench/roofs/roofs.h): the roofs over the network start this program again as their peer.
#ifndef HOTBED_CLI_BENCH_BENCH_OPTIONS_H_
#define HOTBED_CLI_BENCH_BENCH_OPTIONS_H_

#include <cstdint>
#include <ostream>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "hotbed/table_options.h"

namespace hotbed {

enum class BenchKind { kPull, kPush, kMixed, kLookup };

struct BenchOptions {
  BenchKind kind = BenchKind::kPull;
  std::string coordinator = "127.0.0.1:7400";
  std::string command;  // the command line, printed with the result
  bool json = false;
  std::ostream* out = nullptr;                 // the result
  std::ostream* err = nullptr;                 // progress
  absl::Duration timeout = absl::Seconds(10);  // for the coordinator's first answer

  uint32_t tables = 1;
  uint32_t dim = 64;
  uint64_t rows = 1'000'000;
  uint64_t batch = 512;
  double zipf = 0.0;
  bool uniform = false;
  uint32_t streams = 1;
  uint32_t threads = 1;
  uint32_t in_flight = 8;
  double seconds = 2.0;
  uint32_t repeats = 5;
  std::string wire = "fp32";
  std::string optimizer = "rowwise-adagrad";
  std::string durability = "log";  // or checkpoint, replicated=2, replicated=3
  std::string read_from = "primary";
  bool strict = false;
  std::string weight_type = "fp32";
  uint32_t column_slices = 1;
  std::string pooling = "none";  // else `batch` counts bags
  uint32_t bag_ids = 20;
  std::string consistency = "async";  // or bounded:S, sync
  double rate = 0.0;
  bool preload = true;
  bool roofs = true;
  std::string dir = ".";
  bool suite = false;
};

// One option of the command line, pointing into a BenchOptions.
struct BenchOption {
  // "--batch". In CLI11's form for a bool that is true by default: "--preload,!--no-preload".
  std::string flag;
  std::variant<uint32_t*, uint64_t*, double*, bool*, std::string*> value;
  std::string help;
  std::vector<std::string> choices;  // of a string; empty: any
};

// Every option of the command line except kind, coordinator, command, json, timeout and the output
// streams, which the CLI sets itself.
std::vector<BenchOption> BenchOptionList(BenchOptions* options);

// The tables under load: dim, optimizer, durability, weight type, column slices and consistency of
// `options`. InvalidArgument names the flag and its value.
absl::StatusOr<TableOptions> BenchTableOptionsOf(const BenchOptions& options);

// OK, or InvalidArgument naming the option, its value and the allowed range.
absl::Status ValidateBenchOptions(const BenchOptions& options);

// Runs and prints the result on `out`.
absl::Status RunBench(const BenchOptions& options);

}  // namespace hotbed

#endif  // HOTBED_CLI_BENCH_BENCH_OPTIONS_H_
