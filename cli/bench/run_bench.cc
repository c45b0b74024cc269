#include <algorithm>
#include <memory>
#include <utility>

#include "bench/roofs/machine.h"
#include "cli/bench/bench_options.h"
#include "cli/bench/bench_report.h"
#include "cli/bench/bench_tables.h"
#include "cli/bench/load.h"
#include "cli/bench/roof_lines.h"
#include "cli/bench/suite.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

constexpr uint64_t kRoofMessageBytesMax = 1 << 20;

RowType WireTypeOf(const BenchOptions& options) {
  return options.wire == "fp16"   ? RowType::kFp16
         : options.wire == "bf16" ? RowType::kBf16
         : options.wire == "int8" ? RowType::kInt8
                                  : RowType::kFp32;
}

absl::StatusOr<LoadSpec> SpecOf(const BenchOptions& options) {
  BenchTables tables;
  tables.tables = options.tables;
  tables.rows_min = tables.rows_max = options.rows;
  HOTBED_ASSIGN_OR_RETURN(tables.options, BenchTableOptionsOf(options));
  LoadSpec spec;
  spec.wire = WireTypeOf(options);
  spec.read_from = options.read_from == "any" ? ReadFrom::kAny : ReadFrom::kPrimary;
  spec.strict = options.strict;
  HOTBED_ASSIGN_OR_RETURN(const auto client, Client::Connect("hotbed://" + options.coordinator));
  const bool preload = options.preload && options.kind != BenchKind::kPush;
  HOTBED_ASSIGN_OR_RETURN(spec.tables, PrepareTables(client.get(), tables, preload, options.err));
  spec.kind = options.kind;
  spec.coordinator = options.coordinator;
  spec.batch = options.batch;
  if (options.pooling != "none") {
    spec.bag_ids = options.bag_ids;
    spec.batch = options.batch * options.bag_ids;
    spec.pooling = options.pooling == "max"    ? BagPooling::kMax
                   : options.pooling == "mean" ? BagPooling::kMean
                                               : BagPooling::kSum;
  }
  spec.zipf = options.zipf;
  spec.streams = options.streams;
  spec.threads = options.threads;
  spec.in_flight = options.in_flight;
  spec.grouped =
      tables.options.consistency != Consistency::kAsync && options.kind == BenchKind::kPush;
  // A step ends before the next one begins.
  if (spec.grouped) spec.in_flight = 1;
  return spec;
}

// The message that the roofs carry: as many rows as a call of the load moved, cut to the message
// size of the client.
MessageShape ShapeOf(const BenchOptions& options, const LoadSpec& spec, const LoadResult& result) {
  MessageShape shape;
  shape.row_bytes = RowWireBytes(spec.wire, options.dim);
  const uint64_t rows = result.rows / std::max<uint64_t>(result.calls, 1);
  shape.rows = std::clamp<uint64_t>(
      rows, 1, std::max<uint64_t>(1, kRoofMessageBytesMax / (shape.row_bytes + 8)));
  shape.table_rows = options.rows * options.tables;
  shape.in_flight = static_cast<int>(options.in_flight);
  shape.log = options.durability != "checkpoint";
  shape.dir = options.dir;
  return shape;
}

// Calls of the load wait a minute for a coordinator that is away. A coordinator that was never
// there is reported sooner.
absl::Status Reach(const BenchOptions& options) {
  ClientOptions once;
  once.deadline = options.timeout;
  return Client::Connect("hotbed://" + options.coordinator, once).status();
}

absl::Status Run(const BenchOptions& options) {
  const double load_before = bench::LoadAverage();
  if (options.suite) {
    HOTBED_ASSIGN_OR_RETURN(const std::vector<SuiteRow> rows, RunSuite(options));
    PrintSuite(options, load_before, rows);
    return absl::OkStatus();
  }
  HOTBED_ASSIGN_OR_RETURN(const LoadSpec spec, SpecOf(options));
  HOTBED_ASSIGN_OR_RETURN(const std::unique_ptr<Load> load, Load::Open(spec));
  HOTBED_ASSIGN_OR_RETURN(const LoadResult warm,
                          load->Run(std::min(options.seconds, kWarmUpSeconds), options.rate));
  std::unique_ptr<Load> unpooled;  // the same ids, one row per id
  if (spec.bag_ids > 0) {
    LoadSpec rows = spec;
    rows.bag_ids = 0;
    HOTBED_ASSIGN_OR_RETURN(unpooled, Load::Open(rows));
    HOTBED_RETURN_IF_ERROR(
        unpooled->Run(std::min(options.seconds, kWarmUpSeconds), options.rate).status());
  }
  const MessageShape shape = ShapeOf(options, spec, warm);
  BenchRun run;
  run.load_before = load_before;
  for (uint32_t r = 0; r < options.repeats; ++r) {
    if (options.roofs) {
      HOTBED_ASSIGN_OR_RETURN(auto roofs, MeasureRoofs(options.kind, shape, options.seconds));
      run.roofs.push_back(std::move(roofs));
    }
    HOTBED_ASSIGN_OR_RETURN(LoadResult result, load->Run(options.seconds, options.rate));
    run.rounds.push_back(std::move(result));
    if (unpooled == nullptr) continue;
    HOTBED_ASSIGN_OR_RETURN(LoadResult rows, unpooled->Run(options.seconds, options.rate));
    run.unpooled.push_back(std::move(rows));
  }
  PrintRun(options, run);
  return absl::OkStatus();
}

}  // namespace

absl::Status RunBench(const BenchOptions& options) {
  HOTBED_RETURN_IF_ERROR(ValidateBenchOptions(options));
  HOTBED_RETURN_IF_ERROR(Reach(options));
  return Run(options);
}

}  // namespace hotbed
