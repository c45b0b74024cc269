#include "cli/bench/bench_options.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/bench/bench_tables.h"
#include "cli/tables/table_option.h"
#include "common/status_macros.h"
#include "common/table_spec.h"

namespace hotbed {
namespace {

absl::Status OutOf(const char* flag, double value, double min, double max) {
  if (value >= min && value <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(flag, " is ", value, "; allowed: ", min, "..", max));
}

// How pulls and lookups are read.
std::vector<BenchOption> ReadOptionList(BenchOptions* o) {
  return {
      {"--read-from",
       &o->read_from,
       "Who answers pulls and lookups of tables with several copies",
       {"primary", "any"}},
      {"--strict",
       &o->strict,
       "Pulls see everything that was acknowledged to anybody: the primary alone, under its lease",
       {}},
  };
}

}  // namespace

std::vector<BenchOption> BenchOptionList(BenchOptions* o) {
  std::vector<BenchOption> options = {
      {"--tables", &o->tables, "Tables read or written by one call", {}},
      {"--dim", &o->dim, "Elements of a row", {}},
      {"--rows", &o->rows, "Rows of each table", {}},
      {"--batch", &o->batch, "Ids of each table in one call; with --pooling, bags", {}},
      {"--pooling",
       &o->pooling,
       "Pull bags of ids as one row each, beside the same ids as rows",
       {"none", "sum", "mean", "max"}},
      {"--bag-ids", &o->bag_ids, "Ids of a bag", {}},
      {"--zipf",
       &o->zipf,
       "Exponent of the ids' skew; with duplicates, as a batch of samples has them",
       {}},
      {"--uniform",
       &o->uniform,
       "Ids uniform and unique within a call (the default without --zipf)",
       {}},
      {"--streams",
       &o->streams,
       "Clients, each with a connection, a session and a thread of its own",
       {}},
      {"--threads", &o->threads, "Network threads of each client", {}},
      {"--in-flight", &o->in_flight, "Calls that each client keeps under way", {}},
      {"--seconds", &o->seconds, "Length of one run", {}},
      {"--repeats", &o->repeats, "Runs, interleaved with the roofs; medians are printed", {}},
      {"--wire",
       &o->wire,
       "How rows and gradients travel (int8: rows only)",
       {"fp32", "fp16", "bf16", "int8"}},
      {"--optimizer", &o->optimizer, "Of tables that are created", kOptimizerWords},
      {"--weight-type", &o->weight_type, "How tables that are created store weights",
       kWeightTypeWords},
      {"--column-slices",
       &o->column_slices,
       "Column slices of tables that are created, each with statistics of its own where the "
       "optimizer has any",
       {}},
      {"--durability",
       &o->durability,
       "Of tables that are created: checkpoint, log or replicated=COPIES",
       {}},
      {"--consistency",
       &o->consistency,
       "Of tables that are created: async, bounded:STEPS or sync. The streams are then the "
       "trainers "
       "of one group, and a call ends its step",
       {}},
      {"--rate",
       &o->rate,
       "Calls a second, over all streams, on a fixed schedule: latency counts from the time at "
       "which a call was due. "
       "0: as fast as --in-flight allows",
       {}},
      {"--preload,!--no-preload", &o->preload, "Push every row once before a pull is measured", {}},
      {"--roofs,!--no-roofs", &o->roofs, "Measure this machine's roofs in the same run", {}},
      {"--dir",
       &o->dir,
       "Where the roof of plain appends writes: a folder on the servers' disk",
       {}},
      {"--suite",
       &o->suite,
       "Run every network row of the table of bars instead, and print bar and ratio",
       {}},
  };
  for (BenchOption& option : ReadOptionList(o)) options.push_back(std::move(option));
  return options;
}

absl::StatusOr<TableOptions> BenchTableOptionsOf(const BenchOptions& o) {
  TableOptions table = BenchTableOptions();
  table.dim = o.dim;
  table.column_slices = o.column_slices;
  const std::pair<const char*, const std::string*> words[] = {{"optimizer", &o.optimizer},
                                                              {"weight-type", &o.weight_type},
                                                              {"durability", &o.durability},
                                                              {"consistency", &o.consistency}};
  for (const auto& [name, word] : words) {
    const absl::Status status = SetTableOption(*FindTableOption(name), *word, &table);
    if (!status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("--", name, ": ", status.message()));
    }
  }
  return table;
}

absl::Status ValidateBenchOptions(const BenchOptions& o) {
  for (const absl::Status& status :
       {OutOf("--tables", o.tables, 1, 4096), OutOf("--dim", o.dim, 1, 8192),
        OutOf("--column-slices", o.column_slices, 1, std::min(o.dim, kColumnSlicesMax)),
        OutOf("--rows", static_cast<double>(o.rows), 1, 1e12),
        OutOf("--bag-ids", o.bag_ids, 1, 1e6),
        OutOf("--batch", static_cast<double>(o.batch), 1, 1e7), OutOf("--zipf", o.zipf, 0, 10),
        OutOf("--streams", o.streams, 1, 256), OutOf("--threads", o.threads, 1, 64),
        OutOf("--in-flight", o.in_flight, 1, 1024), OutOf("--seconds", o.seconds, 0.01, 3600),
        OutOf("--repeats", o.repeats, 1, 1000), OutOf("--rate", o.rate, 0, 1e9)}) {
    if (!status.ok()) return status;
  }
  HOTBED_RETURN_IF_ERROR(BenchTableOptionsOf(o).status());
  if (o.uniform && o.zipf > 0)
    return absl::InvalidArgumentError("--uniform and --zipf exclude each other");
  const bool pooled = o.pooling != "none";
  const uint64_t ids = o.batch * (pooled ? o.bag_ids : 1);
  if (ids > 10'000'000) {
    return absl::InvalidArgumentError(absl::StrCat("--batch ", o.batch, " bags of --bag-ids ",
                                                   o.bag_ids, " are ", ids,
                                                   " ids; allowed: at most 10000000"));
  }
  if (o.zipf == 0 && ids > o.rows) {
    return absl::InvalidArgumentError(
        absl::StrCat("--batch ", o.batch, pooled ? absl::StrCat(" bags of ", o.bag_ids) : "",
                     " unique ids do not fit into --rows ", o.rows));
  }
  if (pooled && o.kind != BenchKind::kPull && o.kind != BenchKind::kLookup) {
    return absl::InvalidArgumentError("--pooling is for hotbed bench pull and lookup");
  }
  if (pooled && o.wire == "int8") {
    return absl::InvalidArgumentError("--wire int8: pooled rows travel as fp32, fp16 or bf16");
  }
  if (o.optimizer == "none" && (o.kind == BenchKind::kPush || o.kind == BenchKind::kMixed)) {
    return absl::InvalidArgumentError(
        "--optimizer none: its tables take no gradients; bench pull and lookup measure them");
  }
  if (o.consistency != "async" && o.kind == BenchKind::kMixed) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--consistency ", o.consistency, ": bench push measures it, bench mixed does not"));
  }
  if (o.strict && o.read_from == "any") {
    return absl::InvalidArgumentError(
        "--strict and --read-from any exclude each other: the primary alone answers strict pulls");
  }
  if (o.strict && o.kind == BenchKind::kPush) {
    return absl::InvalidArgumentError("--strict is for hotbed bench pull, lookup and mixed");
  }
  if (o.wire == "int8" && (o.kind == BenchKind::kPush || o.kind == BenchKind::kMixed)) {
    return absl::InvalidArgumentError("--wire int8: gradients travel as fp32, fp16 or bf16");
  }
  return absl::OkStatus();
}

}  // namespace hotbed
