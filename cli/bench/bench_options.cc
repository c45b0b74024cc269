#include "cli/bench/bench_options.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/bench/bench_tables.h"
#include "cli/tables/table_option.h"
#include "common/status_macros.h"
#include "common/tables/table_spec.h"

namespace hotbed {
namespace {

absl::Status OutOf(const char* flag, double value, double min, double max) {
  if (value >= min && value <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(flag, " is ", value, "; allowed: ", min, "..", max));
}

// Options of reads only.
std::vector<BenchOption> ReadOptionList(BenchOptions* o) {
  return {
      {"--read-from",
       &o->read_from,
       "The replica that answers pulls and lookups of replicated tables",
       {"primary", "any"}},
      {"--strict",
       &o->strict,
       "Pulls see every acknowledged push of any client; only the primary answers, under its lease",
       {}},
  };
}

}  // namespace

std::vector<BenchOption> BenchOptionList(BenchOptions* o) {
  std::vector<BenchOption> options = {
      {"--tables", &o->tables, "Tables read or written by one call", {}},
      {"--dim", &o->dim, "Elements per row", {}},
      {"--rows", &o->rows, "Rows of each table", {}},
      {"--batch", &o->batch, "Ids of each table in one call; with --pooling, bags", {}},
      {"--pooling",
       &o->pooling,
       "Pull bags of ids as one row each, and the same ids as rows for comparison",
       {"none", "sum", "mean", "max"}},
      {"--bag-ids", &o->bag_ids, "Ids per bag", {}},
      {"--zipf",
       &o->zipf,
       "Exponent of the skew of ids; with duplicates, as in a batch of samples",
       {}},
      {"--uniform",
       &o->uniform,
       "Ids uniform and unique within a call (the default without --zipf)",
       {}},
      {"--streams", &o->streams, "Clients, each with its own connection, session and thread", {}},
      {"--threads", &o->threads, "Network threads of each client", {}},
      {"--in-flight", &o->in_flight, "Calls that each client keeps in flight", {}},
      {"--seconds", &o->seconds, "Length of one run in seconds", {}},
      {"--repeats", &o->repeats, "Runs, interleaved with the roofs; the medians are printed", {}},
      {"--wire",
       &o->wire,
       "Format of rows and gradients on the wire (int8: rows only)",
       {"fp32", "fp16", "bf16", "int8"}},
      {"--optimizer", &o->optimizer, "Optimizer of the tables that are created", kOptimizerWords},
      {"--weight-type", &o->weight_type,
       "Format in which the tables that are created store weights", kWeightTypeWords},
      {"--column-slices",
       &o->column_slices,
       "Column slices of the tables that are created; each keeps its own optimizer statistics",
       {}},
      {"--durability",
       &o->durability,
       "Durability of the tables that are created: checkpoint, log or replicated=2|3",
       {}},
      {"--consistency",
       &o->consistency,
       "Consistency of the tables that are created: async, bounded:STEPS or sync. With the last "
       "two, the streams are the trainers of one group and each call ends its step",
       {}},
      {"--rate",
       &o->rate,
       "Calls per second over all streams, on a fixed schedule: latency counts from the time at "
       "which a call was due. 0: as fast as --in-flight allows",
       {}},
      {"--preload,!--no-preload", &o->preload, "Push every row once before a pull is measured", {}},
      {"--roofs,!--no-roofs", &o->roofs, "Measure this machine's roofs in the same run", {}},
      {"--dir", &o->dir, "Folder for the roofs of appends: on the disk of the servers", {}},
      {"--suite",
       &o->suite,
       "Run every network row of docs/measurements.md instead, and print bar and ratio",
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
  const bool mixed = o.kind == BenchKind::kMixed, pushes = mixed || o.kind == BenchKind::kPush;
  const std::pair<bool, std::string> faults[] = {
      {pooled && pushes, "--pooling is for hotbed bench pull and lookup"},
      {pooled && o.wire == "int8", "--wire int8: pooled rows travel as fp32, fp16 or bf16"},
      {o.optimizer == "none" && pushes,
       "--optimizer none: its tables take no gradients; bench pull and lookup measure them"},
      {o.consistency != "async" && mixed,
       absl::StrCat("--consistency ", o.consistency,
                    ": bench push measures it, bench mixed does not")},
      {o.strict && o.read_from == "any",
       "--strict and --read-from any exclude each other: the primary alone answers strict pulls"},
      {o.strict && pushes && !mixed, "--strict is for hotbed bench pull, lookup and mixed"},
      {o.wire == "int8" && pushes, "--wire int8: gradients travel as fp32, fp16 or bf16"}};
  for (const auto& [wrong, text] : faults) {
    if (wrong) return absl::InvalidArgumentError(text);
  }
  return absl::OkStatus();
}

}  // namespace hotbed
