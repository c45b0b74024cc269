#include "cli/bench/suite.h"

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

class Suite {
 public:
  explicit Suite(const BenchOptions& options) : options_(options) {}

  absl::StatusOr<std::vector<SuiteRow>> Run() {
    HOTBED_ASSIGN_OR_RETURN(client_, Client::Connect("hotbed://" + options_.coordinator));
    HOTBED_ASSIGN_OR_RETURN(resident_, Prepare({}));
    HOTBED_RETURN_IF_ERROR(Pull512And2048());
    // Before the rows that write: a server that writes back gigabytes for minutes has slow answers
    // that say nothing about lookups.
    HOTBED_RETURN_IF_ERROR(Lookup());
    HOTBED_RETURN_IF_ERROR(Push(Durability::kCheckpoint));
    HOTBED_RETURN_IF_ERROR(Push(Durability::kLog));
    HOTBED_RETURN_IF_ERROR(Zipf());
    HOTBED_RETURN_IF_ERROR(HundredTables());
    return std::move(rows_);
  }

 private:
  using Ratios = std::vector<double>;

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
  void Add(const std::string& measure, const std::vector<double>& ours, const std::string& unit,
           const std::string& roof_name, const std::vector<double>& roof, const Ratios& ratios,
           double bar) {
    rows_.push_back({measure, absl::StrCat(ShortCount(Median(ours)), " ", unit),
                     absl::StrCat(roof_name, ", ", ShortCount(Median(roof)), " ", unit),
                     Median(ratios), bar, false});
  }

  absl::Status Pull512And2048() {
    for (const uint64_t rows : {512, 2048}) {
      const std::string measure = absl::StrCat("pull ", rows, " x 64 fp32, uniform");
      Say(measure);
      HOTBED_ASSIGN_OR_RETURN(const auto load, OpenWarm(Spec(BenchKind::kPull, resident_, rows)));
      std::vector<double> ours, grpc, tcp;
      Ratios to_grpc, to_tcp;
      for (uint32_t r = 0; r < options_.repeats; ++r) {
        HOTBED_ASSIGN_OR_RETURN(const RoofLine g, GrpcPullRoof(Shape(rows), options_.seconds));
        HOTBED_ASSIGN_OR_RETURN(const double rate, RowsPerSecond(load.get()));
        HOTBED_ASSIGN_OR_RETURN(const RoofLine t, TcpGatherRoof(Shape(rows), options_.seconds));
        ours.push_back(rate);
        grpc.push_back(g.rows_per_s);
        tcp.push_back(t.rows_per_s);
        to_grpc.push_back(rate / g.rows_per_s);
        to_tcp.push_back(rate / t.rows_per_s);
      }
      Add(measure, ours, "rows/s", "bare gRPC", grpc, to_grpc, rows == 512 ? 0.65 : 0.50);
      if (rows == 512) Add(measure, ours, "rows/s", "TCP loop with gather", tcp, to_tcp, 1.0);
    }
    return absl::OkStatus();
  }

  absl::Status Push(Durability durability) {
    const bool log = durability == Durability::kLog;
    const std::string measure =
        absl::StrCat("push 512 x 64 fp32, row-wise Adagrad, class ", log ? "log" : "checkpoint");
    Say(measure);
    BenchTables tables;
    tables.options.durability = durability;
    HOTBED_ASSIGN_OR_RETURN(const auto names, Prepare(tables));
    HOTBED_ASSIGN_OR_RETURN(const auto load, OpenWarm(Spec(BenchKind::kPush, names, 512)));
    std::vector<double> ours, roof, synced;
    Ratios ratios, to_synced;
    for (uint32_t r = 0; r < options_.repeats; ++r) {
      HOTBED_ASSIGN_OR_RETURN(const RoofLine line,
                              log ? AppendRoof(Shape(512), options_.seconds, /*synced=*/false)
                                  : GrpcPushRoof(Shape(512), options_.seconds));
      HOTBED_ASSIGN_OR_RETURN(const double rate, RowsPerSecond(load.get()));
      ours.push_back(rate);
      roof.push_back(line.rows_per_s);
      ratios.push_back(rate / line.rows_per_s);
      if (!log) continue;
      HOTBED_ASSIGN_OR_RETURN(const RoofLine kept, AppendRoof(Shape(512), options_.seconds, true));
      synced.push_back(kept.rows_per_s);
      to_synced.push_back(rate / kept.rows_per_s);
    }
    Add(measure, ours, "rows/s", log ? "plain appends" : "bare gRPC upload", roof, ratios,
        log ? 0.90 : 0.80);
    if (log) Add(measure, ours, "rows/s", "plain appends and a sync", synced, to_synced, 0.90);
    return absl::OkStatus();
  }

  absl::Status Zipf() {
    Say("pull of Zipf batches, 26 tables");
    BenchTables tables;
    tables.tables = 26;
    tables.rows_min = 100'000;
    HOTBED_ASSIGN_OR_RETURN(const auto names, Prepare(tables));
    HOTBED_ASSIGN_OR_RETURN(const auto base, OpenWarm(Spec(BenchKind::kPull, resident_, 512)));
    LoadSpec spec = Spec(BenchKind::kPull, names, 2048);
    spec.zipf = 1.05;
    HOTBED_ASSIGN_OR_RETURN(const auto fp32, OpenWarm(spec));
    spec.wire = RowType::kFp16;
    HOTBED_ASSIGN_OR_RETURN(const auto fp16, OpenWarm(spec));
    std::vector<double> first, rates[2];
    Ratios ratios[2];
    for (uint32_t r = 0; r < options_.repeats; ++r) {
      HOTBED_ASSIGN_OR_RETURN(const LoadResult b, base->Run(options_.seconds, 0));
      first.push_back(b.IdsPerSecond());
      Load* const loads[2] = {fp16.get(), fp32.get()};
      for (int i = 0; i < 2; ++i) {
        HOTBED_ASSIGN_OR_RETURN(const LoadResult result, loads[i]->Run(options_.seconds, 0));
        rates[i].push_back(result.IdsPerSecond());
        ratios[i].push_back(result.IdsPerSecond() / b.IdsPerSecond());
      }
    }
    for (int i = 0; i < 2; ++i) {
      Add(absl::StrCat("pull Zipf(1.05), 26 tables x 2,048, ", i == 0 ? "fp16" : "fp32"), rates[i],
          "ids/s", "first row", first, ratios[i], i == 0 ? 3.0 : 1.7);
    }
    return absl::OkStatus();
  }

  absl::Status Lookup() {
    Say("unary lookup of 26 ids");
    HOTBED_ASSIGN_OR_RETURN(const auto load, OpenWarm(Spec(BenchKind::kLookup, resident_, 26)));
    roofs::MessageLoad bare;
    bare.request_bytes = 26 * 8 + kMessageHeaderBytes;
    bare.reply_bytes = 26 * 256 + kMessageHeaderBytes;
    bare.seconds = options_.seconds;
    std::vector<double> ours, roof;
    Ratios ratios;
    for (uint32_t r = 0; r < options_.repeats; ++r) {
      HOTBED_ASSIGN_OR_RETURN(const LoadResult most, load->Run(options_.seconds, 0));
      const double rate = most.CallsPerSecond() / 2;
      HOTBED_ASSIGN_OR_RETURN(const roofs::UnaryLatency unary, roofs::GrpcUnary(bare, rate));
      HOTBED_ASSIGN_OR_RETURN(const LoadResult result, load->Run(options_.seconds, rate));
      ours.push_back(result.Latency(0.99));
      roof.push_back(unary.p99_s);
      ratios.push_back(result.Latency(0.99) / unary.p99_s);
    }
    rows_.push_back({"lookup 26 x 64, p99 at half the highest rate", ShortSeconds(Median(ours)),
                     absl::StrCat("bare gRPC unary, ", ShortSeconds(Median(roof))), Median(ratios),
                     2.0, true});
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
    std::vector<double> ours, roof;
    Ratios ratios;
    for (uint32_t r = 0; r < options_.repeats; ++r) {
      HOTBED_ASSIGN_OR_RETURN(const LoadResult one, together->Run(options_.seconds, 0));
      HOTBED_ASSIGN_OR_RETURN(const LoadResult many, apart->Run(options_.seconds, 0));
      ours.push_back(1 / one.CallsPerSecond());
      roof.push_back(1 / many.CallsPerSecond());
      ratios.push_back(many.CallsPerSecond() / one.CallsPerSecond());
    }
    rows_.push_back({"one message for 100 tables x 20 ids", ShortSeconds(Median(ours)),
                     absl::StrCat("100 messages, ", ShortSeconds(Median(roof))), Median(ratios),
                     0.5, true});
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
