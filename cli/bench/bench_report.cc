#include "cli/bench/bench_report.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "bench/roofs/machine.h"
#include "nlohmann/json.hpp"
#include "terminal/table_printer.h"

namespace hotbed {
namespace {

using nlohmann::ordered_json;

// By keys for programs.
ordered_json LoadAverages(double before) {
  return {{"before", before}, {"after", bench::LoadAverage()}};
}

std::string Build() {
  return absl::StrCat("hotbed ", HOTBED_VERSION, ", ", HOTBED_BUILD_TYPE, ", compiler ",
                      __VERSION__);
}

double MedianOf(const BenchRun& run, const std::function<double(const LoadResult&)>& value) {
  std::vector<double> values;
  for (const LoadResult& round : run.rounds) values.push_back(value(round));
  return Median(std::move(values));
}

LoadResult SumOf(const BenchRun& run) {
  LoadResult sum;
  for (const LoadResult& round : run.rounds) sum.AddCounts(round);
  return sum;
}

// The longest call of all rounds, in seconds.
double Longest(const BenchRun& run) {
  double longest = 0;
  for (const LoadResult& round : run.rounds) longest = std::max(longest, round.Latency(1));
  return longest;
}

struct RoofSummary {
  std::string name;
  double rows_per_s = 0;
  double ratio = 0;  // the load to the roof
  std::string refused;
};

std::vector<RoofSummary> Summarise(const BenchRun& run) {
  std::vector<RoofSummary> out;
  for (size_t line = 0; !run.roofs.empty() && line < run.roofs[0].size(); ++line) {
    std::vector<double> rates, ratios;
    for (size_t r = 0; r < run.rounds.size(); ++r) {
      rates.push_back(run.roofs[r][line].rows_per_s);
      ratios.push_back(run.rounds[r].RowsPerSecond() / run.roofs[r][line].rows_per_s);
    }
    const RoofLine& first = run.roofs[0][line];
    out.push_back({first.name, Median(rates), Median(ratios), first.refused});
  }
  return out;
}

// A pooled load compared with pulling the same ids as rows.
struct PooledSummary {
  double shards = 0;  // mean number of shards per bag: the rows that travel for it
  double bytes = 0;   // received per id
  double unpooled_bytes = 0;
  double bytes_ratio = 0;  // bytes of the rows to bytes of the pooled load
  double time_ratio = 0;   // ids per second, pooled load to rows
  double bar = 0;          // for bytes: 0.9 x ids per bag / shards per bag
};

PooledSummary SummarisePooled(const BenchOptions& options, const BenchRun& run) {
  std::vector<double> shards, bytes, unpooled_bytes, bytes_ratios, time_ratios;
  const auto bytes_an_id = [](const LoadResult& r) {
    return static_cast<double>(r.bytes_received) / static_cast<double>(r.ids);
  };
  for (size_t r = 0; r < run.unpooled.size(); ++r) {
    const LoadResult& ours = run.rounds[r];
    const LoadResult& others = run.unpooled[r];
    const double bags = static_cast<double>(ours.ids) / options.bag_ids;
    shards.push_back(static_cast<double>(ours.rows) / bags / options.column_slices);
    bytes.push_back(bytes_an_id(ours));
    unpooled_bytes.push_back(bytes_an_id(others));
    bytes_ratios.push_back(unpooled_bytes.back() / bytes.back());
    time_ratios.push_back(ours.IdsPerSecond() / others.IdsPerSecond());
  }
  PooledSummary out{Median(shards),       Median(bytes),       Median(unpooled_bytes),
                    Median(bytes_ratios), Median(time_ratios), 0};
  out.bar = 0.9 * options.bag_ids / out.shards;
  return out;
}

void PrintPooled(const BenchOptions& options, const BenchRun& run) {
  const PooledSummary pooled = SummarisePooled(options, run);
  TablePrinter table(
      {"pooled", "shards/bag", "bytes received/id", "as rows", "ratio", "bar", "ids/s to as rows"});
  table.AddRow({absl::StrCat(options.pooling, " of ", options.bag_ids),
                absl::StrFormat("%.2f", pooled.shards), absl::StrFormat("%.1f", pooled.bytes),
                absl::StrFormat("%.1f", pooled.unpooled_bytes),
                absl::StrFormat("%.2f", pooled.bytes_ratio), absl::StrFormat(">= %.2f", pooled.bar),
                absl::StrFormat("%.2f", pooled.time_ratio)});
  *options.out << "\n" << table.ToText();
}

// The parameters that decide the figures. They hold for tables of an earlier run too, because the
// name of a table states them.
std::vector<std::pair<std::string, std::string>> LoadFacts(const BenchOptions& o) {
  return {{"optimizer", o.optimizer},
          {"weight_type", o.weight_type},
          {"wire", o.wire},
          {"column_slices", absl::StrCat(o.column_slices)},
          {"consistency", o.consistency}};
}

void PrintRunJson(const BenchOptions& options, const BenchRun& run) {
  ordered_json json;
  json["command"] = options.command;
  json["machine"] = bench::Machine();
  json["load_average"] = LoadAverages(run.load_before);
  json["build"] = Build();
  for (const auto& [name, value] : LoadFacts(options)) json["load"][name] = value;
  json["load"]["column_slices"] = options.column_slices;
  json["rounds"] = run.rounds.size();
  json["calls_per_s"] = MedianOf(run, [](const LoadResult& r) { return r.CallsPerSecond(); });
  json["rows_per_s"] = MedianOf(run, [](const LoadResult& r) { return r.RowsPerSecond(); });
  json["ids_per_s"] = MedianOf(run, [](const LoadResult& r) { return r.IdsPerSecond(); });
  json["bytes_per_s"] = MedianOf(run, [](const LoadResult& r) { return r.BytesPerSecond(); });
  json["latency_s"] = {
      {"p50", MedianOf(run, [](const LoadResult& r) { return r.Latency(0.5); })},
      {"p99", MedianOf(run, [](const LoadResult& r) { return r.Latency(0.99); })},
      {"p99.9", MedianOf(run, [](const LoadResult& r) { return r.Latency(0.999); })},
      {"longest", Longest(run)}};
  if (options.read_from == "any") {
    const LoadResult sum = SumOf(run);
    json["hedges"] = {{"messages", sum.messages},
                      {"late", sum.hedges},
                      {"silent", sum.hedges_of_silent},
                      {"won", sum.hedges_won}};
  }
  if (!run.unpooled.empty()) {
    const PooledSummary pooled = SummarisePooled(options, run);
    json["pooled"] = {{"pooling", options.pooling},
                      {"bag_ids", options.bag_ids},
                      {"shards_per_bag", pooled.shards},
                      {"bytes_received_per_id", pooled.bytes},
                      {"unpooled_bytes_received_per_id", pooled.unpooled_bytes},
                      {"bytes_ratio", pooled.bytes_ratio},
                      {"bytes_bar", pooled.bar},
                      {"ids_per_s_ratio", pooled.time_ratio}};
  }
  json["roofs"] = ordered_json::array();
  for (const RoofSummary& roof : Summarise(run)) {
    if (!roof.refused.empty()) {
      json["roofs"].push_back({{"name", roof.name}, {"refused", roof.refused}});
      continue;
    }
    json["roofs"].push_back(
        {{"name", roof.name}, {"rows_per_s", roof.rows_per_s}, {"ratio", roof.ratio}});
  }
  *options.out << json.dump(2) << "\n";
}

void PrintHead(const BenchOptions& options, size_t rounds, double load_before) {
  *options.out << "command  " << options.command << "\nmachine  " << bench::Machine()
               << "\nload average  " << bench::LoadAverages(load_before) << "\nbuild    " << Build()
               << "\nmedians of " << rounds << " rounds, each of " << options.seconds
               << " s a measure\n\n";
}

}  // namespace

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

void PrintRun(const BenchOptions& options, const BenchRun& run) {
  if (options.json) return PrintRunJson(options, run);
  PrintHead(options, run.rounds.size(), run.load_before);
  *options.out << "load     ";
  const char* separator = "";
  for (const auto& [name, value] : LoadFacts(options)) {
    *options.out << std::exchange(separator, ", ") << absl::StrReplaceAll(name, {{"_", " "}}) << " "
                 << value;
  }
  *options.out << "\n\n";
  const auto rate = [&](double (LoadResult::*member)() const) {
    return ShortCount(MedianOf(run, [&](const LoadResult& r) { return (r.*member)(); }));
  };
  const auto latency = [&](double quantile) {
    return ShortSeconds(MedianOf(run, [&](const LoadResult& r) { return r.Latency(quantile); }));
  };
  TablePrinter ours({"rows/s", "ids/s", "bytes/s", "calls/s", "p50", "p99", "p99.9", "longest"});
  ours.AddRow({rate(&LoadResult::RowsPerSecond), rate(&LoadResult::IdsPerSecond),
               rate(&LoadResult::BytesPerSecond), rate(&LoadResult::CallsPerSecond), latency(0.5),
               latency(0.99), latency(0.999), ShortSeconds(Longest(run))});
  *options.out << ours.ToText();
  if (!run.unpooled.empty()) PrintPooled(options, run);
  if (options.read_from == "any") {
    const LoadResult sum = SumOf(run);
    *options.out << "of " << sum.messages << " messages, " << sum.hedges
                 << " went to a second replica after the usual time and " << sum.hedges_of_silent
                 << " because a server was silent; " << sum.hedges_won << " answered first\n";
  }
  if (options.rate > 0) {
    *options.out << "latency counts from the time at which a call was due (" << options.rate
                 << " calls/s)\n";
  }
  const std::vector<RoofSummary> roofs = Summarise(run);
  if (roofs.empty()) return;
  TablePrinter table({"roof of this machine, this run", "rows/s", "ours to it"});
  for (const RoofSummary& roof : roofs) {
    if (!roof.refused.empty()) {
      table.AddRow({roof.name, roof.refused, "-"});
      continue;
    }
    table.AddRow({roof.name, ShortCount(roof.rows_per_s), absl::StrFormat("%.2f", roof.ratio)});
  }
  *options.out << "\n" << table.ToText();
}

void PrintSuite(const BenchOptions& options, double load_before,
                const std::vector<SuiteRow>& rows) {
  if (options.json) {
    ordered_json json;
    json["command"] = options.command;
    json["machine"] = bench::Machine();
    json["load_average"] = LoadAverages(load_before);
    json["build"] = Build();
    json["rounds"] = options.repeats;
    json["rows"] = ordered_json::array();
    for (const SuiteRow& row : rows) {
      json["rows"].push_back({{"measure", row.measure},
                              {"ours", row.ours},
                              {"against", row.roof},
                              {"ratio", row.ratio},
                              {"bar", row.bar},
                              {"bar_is", row.at_most ? "at most" : "at least"},
                              {"met", row.met()}});
    }
    *options.out << json.dump(2) << "\n";
    return;
  }
  PrintHead(options, options.repeats, load_before);
  TablePrinter table({"measure", "ours", "against", "ratio", "bar", "met"});
  for (const SuiteRow& row : rows) {
    table.AddRow({row.measure, row.ours, row.roof, absl::StrFormat("%.2f", row.ratio),
                  absl::StrFormat("%s %.2f", row.at_most ? "<=" : ">=", row.bar),
                  row.met() ? "yes" : "NO"});
  }
  *options.out << table.ToText();
}

}  // namespace hotbed
