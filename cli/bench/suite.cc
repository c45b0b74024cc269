#include "cli/bench/suite.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/roofs/roofs.h"
#include "cli/bench/bench_tables.h"
#include "cli/bench/load.h"
#include "cli/bench/roof_lines.h"
#include "common/status_macros.h"
#include "terminal/table_printer.h"

namespace hotbed {
namespace {

// Our figure and that of the roof in each round.
struct Compared {
  std::vector<double> ours, roof, ratios;
  void Add(double our, double limit) {
    ours.push_back(our);
    roof.push_back(limit);
    ratios.push_back(our / limit);
  }
};

class Suite {
 public:
  explicit Suite(const BenchOptions& options) : options_(options) {}

  absl::StatusOr<std::vector<SuiteRow>> Run() {
    HOTBED_ASSIGN_OR_RETURN(client_, Client::Connect("hotbed://" + options_.coordinator));
    HOTBED_ASSIGN_OR_RETURN(resident_, Prepare({}));
    HOTBED_RETURN_IF_ERROR(Pull512And2048());
    // Before the rows that write: a server that writes back gigabytes for minutes has slow answers
    // that say nothing about lookups and pulls. Rows that were loaded are written back after two
    // minutes, or once the log is long.
    HOTBED_RETURN_IF_ERROR(Lookup());
    HOTBED_RETURN_IF_ERROR(Zipf());
    HOTBED_RETURN_IF_ERROR(Pushes());
    HOTBED_RETURN_IF_ERROR(HundredTables());
    return std::move(rows_);
  }

 private:
  absl::StatusOr<std::vector<std::string>> Prepare(const BenchTables& tables) {
    return PrepareTables(client_.get(), tables, /*preload=*/true, options_.err);
  }
  LoadSpec Spec(BenchKind kind, std::vector<std::string> tables, uint64_t batch) const {
    LoadSpec spec;
    spec.kind = kind;
    spec.coordinator = options_.coordinator;
    spec.tables = std::move(tables);
    spec.batch = batch;
    spec.threads = options_.threads;
    return spec;
  }
  absl::StatusOr<std::unique_ptr<Load>> OpenWarm(const LoadSpec& spec) {
    HOTBED_ASSIGN_OR_RETURN(std::unique_ptr<Load> load, Load::Open(spec));
    HOTBED_RETURN_IF_ERROR(load->Run(kWarmUpSeconds, 0).status());
    return load;
  }
  absl::StatusOr<double> RowsPerSecond(Load* load) {
    HOTBED_ASSIGN_OR_RETURN(const LoadResult result, load->Run(options_.seconds, 0));
    return result.RowsPerSecond();
  }
  MessageShape Shape(uint64_t rows) const {
    MessageShape shape;
    shape.rows = rows;
    shape.dir = options_.dir;
    return shape;
  }
  void Say(const std::string& measure) const {
    if (options_.err != nullptr) *options_.err << "measuring " << measure << "\n" << std::flush;
  }
  // Rates in `unit`, of which more is better; "": seconds, of which less is.
  void AddRow(const std::string& measure, const Compared& rounds, const std::string& unit,
              const std::string& roof_name, double bar) {
    const auto median = [&unit](const std::vector<double>& values) {
      const double value = Median(values);
      return unit.empty() ? ShortSeconds(value) : absl::StrCat(ShortCount(value), " ", unit);
    };
    rows_.push_back({measure, median(rounds.ours),
                     absl::StrCat(roof_name, ", ", median(rounds.roof)), Median(rounds.ratios), bar,
                     unit.empty()});
  }

  absl::Status Pull512And2048() {
    for (const uint64_t rows : {512, 2048}) {
      const std::string measure = absl::StrCat("pull ", rows, " x 64 fp32, uniform");
      Say(measure);
      HOTBED_ASSIGN_OR_RETURN(const auto load, OpenWarm(Spec(BenchKind::kPull, resident_, rows)));
      Compared to_grpc, to_tcp;
      for (uint32_t r = 0; r < options_.repeats; ++r) {
        HOTBED_ASSIGN_OR_RETURN(const double grpc, GrpcPullRoof(Shape(rows), options_.seconds));
        HOTBED_ASSIGN_OR_RETURN(const double rate, RowsPerSecond(load.get()));
        HOTBED_ASSIGN_OR_RETURN(const double tcp, TcpGatherRoof(Shape(rows), options_.seconds));
        to_grpc.Add(rate, grpc);
        to_tcp.Add(rate, tcp);
      }
      AddRow(measure, to_grpc, "rows/s", "bare gRPC", rows == 512 ? 0.65 : 0.50);
      if (rows == 512) AddRow(measure, to_tcp, "rows/s", "TCP loop with gather", 1.0);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<Load>> OpenPushes(Durability durability) {
    BenchTables tables;
    tables.options.durability = durability;
    HOTBED_ASSIGN_OR_RETURN(const auto names, Prepare(tables));
    return OpenWarm(Spec(BenchKind::kPush, names, 512));
  }

  // The rate that class `log` could have: its work is that of class `checkpoint`, and the disk must
  // take the bytes.
  absl::StatusOr<double> LogLimit(double checkpoint, std::string* name) {
    const absl::StatusOr<double> direct = DirectAppendRoof(Shape(512), options_.seconds);
    if (!direct.ok() && !absl::IsUnimplemented(direct.status())) return direct.status();
    *name = direct.ok() ? "the lesser of class checkpoint and direct appends"
                        : absl::StrCat("class checkpoint; ", direct.status().message());
    return direct.ok() ? std::min(checkpoint, *direct) : checkpoint;
  }

  absl::Status Pushes() {
    const std::string measure = "push 512 x 64 fp32, row-wise Adagrad, class ";
    Say(measure + "checkpoint and log");
    HOTBED_ASSIGN_OR_RETURN(const auto plain, OpenPushes(Durability::kCheckpoint));
    HOTBED_ASSIGN_OR_RETURN(const auto logged, OpenPushes(Durability::kLog));
    const MessageShape shape = Shape(512);
    Compared to_grpc, to_limit, to_appends, to_synced;
    std::vector<double> checkpoints, logs;
    for (uint32_t r = 0; r < options_.repeats; ++r) {
      HOTBED_ASSIGN_OR_RETURN(const double grpc, GrpcPushRoof(shape, options_.seconds));
      HOTBED_ASSIGN_OR_RETURN(checkpoints.emplace_back(), RowsPerSecond(plain.get()));
      HOTBED_ASSIGN_OR_RETURN(logs.emplace_back(), RowsPerSecond(logged.get()));
      to_grpc.Add(checkpoints.back(), grpc);
    }
    // The roofs of appends come last: they fill the page cache with gigabytes that the system then
    // writes to disk, which would slow both classes and so lower the limit of the log.
    std::string limit_name;
    for (uint32_t r = 0; r < options_.repeats; ++r) {
      HOTBED_ASSIGN_OR_RETURN(const double limit, LogLimit(checkpoints[r], &limit_name));
      to_limit.Add(logs[r], limit);
    }
    for (uint32_t r = 0; r < options_.repeats; ++r) {
      HOTBED_ASSIGN_OR_RETURN(const double appends, AppendRoof(shape, options_.seconds, false));
      HOTBED_ASSIGN_OR_RETURN(const double synced, AppendRoof(shape, options_.seconds, true));
      to_appends.Add(logs[r], appends);
      to_synced.Add(logs[r], synced);
    }
    AddRow(measure + "checkpoint", to_grpc, "rows/s", "bare gRPC upload", 0.80);
    AddRow(measure + "log", to_limit, "rows/s", limit_name, 0.80);
    AddRow(measure + "log", to_appends, "rows/s", "plain appends", 0.90);
    AddRow(measure + "log", to_synced, "rows/s", "plain appends and a sync", 0.90);
    return absl::OkStatus();
  }

  absl::Status Zipf() {
    Say("pull of Zipf batches, 26 tables");
    BenchTables tables;
    tables.tables = 26;
    tables.rows_min = 100'000;
    // Loading 3.8 GB through the log would begin a write-back beside the pulls.
    tables.options.durability = Durability::kCheckpoint;
    HOTBED_ASSIGN_OR_RETURN(const auto names, Prepare(tables));
    HOTBED_ASSIGN_OR_RETURN(const auto base, OpenWarm(Spec(BenchKind::kPull, resident_, 512)));
    LoadSpec spec = Spec(BenchKind::kPull, names, 2048);
    spec.zipf = 1.05;
    HOTBED_ASSIGN_OR_RETURN(const auto fp32, OpenWarm(spec));
    spec.wire = RowType::kFp16;
    HOTBED_ASSIGN_OR_RETURN(const auto fp16, OpenWarm(spec));
    Compared to_first[2];
    for (uint32_t r = 0; r < options_.repeats; ++r) {
      HOTBED_ASSIGN_OR_RETURN(const LoadResult b, base->Run(options_.seconds, 0));
      Load* const loads[2] = {fp16.get(), fp32.get()};
      for (int i = 0; i < 2; ++i) {
        HOTBED_ASSIGN_OR_RETURN(const LoadResult result, loads[i]->Run(options_.seconds, 0));
        to_first[i].Add(result.IdsPerSecond(), b.IdsPerSecond());
      }
    }
    for (int i = 0; i < 2; ++i) {
      AddRow(absl::StrCat("pull Zipf(1.05), 26 tables x 2,048, ", i == 0 ? "fp16" : "fp32"),
             to_first[i], "ids/s", "first row", i == 0 ? 3.0 : 1.7);
    }
    return absl::OkStatus();
  }

  absl::Status Lookup() {
    Say("lookup of 26 ids");
    HOTBED_ASSIGN_OR_RETURN(const auto load, OpenWarm(Spec(BenchKind::kLookup, resident_, 26)));
    roofs::MessageLoad bare;
    bare.request_bytes = 26 * 8 + kMessageHeaderBytes;
    bare.reply_bytes = 26 * 256 + kMessageHeaderBytes;
    bare.seconds = options_.seconds;
    Compared to_roof;
    for (uint32_t r = 0; r < options_.repeats; ++r) {
      HOTBED_ASSIGN_OR_RETURN(const LoadResult most, load->Run(options_.seconds, 0));
      const double rate = most.CallsPerSecond() / 2;
      HOTBED_ASSIGN_OR_RETURN(const double unary_p99, roofs::GrpcUnaryP99(bare, rate));
      HOTBED_ASSIGN_OR_RETURN(const LoadResult result, load->Run(options_.seconds, rate));
      to_roof.Add(result.Latency(0.99), unary_p99);
    }
    AddRow("lookup 26 x 64, p99 at half the highest rate", to_roof, "", "bare gRPC unary", 2.0);
    return absl::OkStatus();
  }

  absl::Status HundredTables() {
    Say("one message for 100 tables");
    BenchTables tables;
    tables.tables = 100;
    tables.rows_min = tables.rows_max = 2'000;
    HOTBED_ASSIGN_OR_RETURN(const auto names, Prepare(tables));
    LoadSpec spec = Spec(BenchKind::kPull, names, 20);
    HOTBED_ASSIGN_OR_RETURN(const auto together, OpenWarm(spec));
    spec.call_per_table = true;
    HOTBED_ASSIGN_OR_RETURN(const auto apart, OpenWarm(spec));
    Compared to_roof;
    for (uint32_t r = 0; r < options_.repeats; ++r) {
      HOTBED_ASSIGN_OR_RETURN(const LoadResult one, together->Run(options_.seconds, 0));
      HOTBED_ASSIGN_OR_RETURN(const LoadResult many, apart->Run(options_.seconds, 0));
      to_roof.Add(1 / one.CallsPerSecond(), 1 / many.CallsPerSecond());
    }
    AddRow("one message for 100 tables x 20 ids", to_roof, "", "100 messages", 0.5);
    return absl::OkStatus();
  }

  const BenchOptions& options_;
  std::unique_ptr<Client> client_;
  std::vector<std::string> resident_;  // one table of 1,000,000 rows
  std::vector<SuiteRow> rows_;
};

}  // namespace

absl::StatusOr<std::vector<SuiteRow>> RunSuite(const BenchOptions& options) {
  return Suite(options).Run();
}

}  // namespace hotbed
