#include "cli/bench/bench_tables.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

constexpr uint64_t kPreloadRows = 8192;  // of one push
constexpr size_t kPreloadInFlight = 8;
constexpr uint64_t kProbes = 512;

template <typename T>
absl::StatusOr<T> ByWord(const char* what, const std::string& word,
                         const std::vector<std::string>& words) {
  const auto at = std::find(words.begin(), words.end(), word);
  if (at != words.end()) return static_cast<T>(at - words.begin());
  return absl::InvalidArgumentError(
      absl::StrCat(what, " \"", word, "\" is unknown; one of: ", absl::StrJoin(words, ", ")));
}

// What the table is, so that a run with the same options finds it again.
std::string NameOf(const TableOptions& table, uint32_t number) {
  std::string name = absl::StrCat("bench-", table.rows, "x", table.dim, "-",
                                  kOptimizerWords[static_cast<size_t>(table.optimizer.kind)], "-",
                                  kDurabilityWords[static_cast<size_t>(table.durability)]);
  if (table.copies > 1) absl::StrAppend(&name, "-", table.copies);
  if (table.weight_type != WeightType::kFp32) {
    absl::StrAppend(&name, "-", kWeightTypeWords[static_cast<size_t>(table.weight_type)]);
  }
  if (table.column_slices > 1) absl::StrAppend(&name, "-", table.column_slices, "slices");
  if (table.consistency != Consistency::kAsync) {
    absl::StrAppend(&name, "-", kConsistencyWords[static_cast<size_t>(table.consistency)],
                    table.staleness);
  }
  return absl::StrCat(name, "-", number);
}

// Whether rows spread over the table all exist.
absl::StatusOr<bool> Loaded(Client* client, const Table& table) {
  const uint64_t rows = table.options().rows;
  std::vector<uint64_t> ids;
  for (uint64_t p = 0; p < kProbes; ++p) ids.push_back((rows - 1) * p / (kProbes - 1));
  std::vector<float> values(ids.size() * table.dim());
  std::vector<uint8_t> exists(ids.size());
  const PullFeature feature{&table, ids, values.data(), RowType::kFp32, exists.data()};
  PullOptions options;
  const RowType fp32 = RowType::kFp32;
  options.wire_type = &fp32;
  HOTBED_RETURN_IF_ERROR(client->Pull({&feature, 1}, options).Wait());
  return std::all_of(exists.begin(), exists.end(), [](uint8_t e) { return e != 0; });
}

absl::Status Preload(Client* client, const Table& table, uint64_t* step) {
  const uint64_t rows = table.options().rows;
  const std::vector<float> gradients(kPreloadRows * table.dim(), 0.001f);
  std::deque<Future<PushResult>> pushes;
  const auto finish_one = [&pushes] {
    const absl::Status status = pushes.front().Wait().status;
    pushes.pop_front();
    return status;
  };
  for (uint64_t first = 0; first < rows; first += kPreloadRows) {
    std::vector<uint64_t> ids;
    for (uint64_t id = first; id < std::min(rows, first + kPreloadRows); ++id) ids.push_back(id);
    const PushFeature feature{&table, ids, gradients.data()};
    PushOptions push;
    // No step of a group, and no gradient where no optimizer would take it.
    push.assign = table.options().consistency != Consistency::kAsync ||
                  table.options().optimizer.kind == OptimizerKind::kNone;
    pushes.push_back(client->Push(++*step, {&feature, 1}, push));
    if (pushes.size() >= kPreloadInFlight) HOTBED_RETURN_IF_ERROR(finish_one());
  }
  while (!pushes.empty()) HOTBED_RETURN_IF_ERROR(finish_one());
  return absl::OkStatus();
}

}  // namespace

const std::vector<std::string> kRowTypeWords = {"fp32", "fp16", "bf16", "int8"};

absl::StatusOr<RowType> ParseRowType(const std::string& word) {
  return ByWord<RowType>("--wire", word, kRowTypeWords);
}

absl::StatusOr<OptimizerKind> ParseOptimizer(const std::string& word) {
  return ByWord<OptimizerKind>("--optimizer", word, kOptimizerWords);
}

absl::Status ParseDurability(const std::string& word, BenchTables* tables) {
  absl::string_view rest = word;
  if (word == "checkpoint" || word == "log") {
    tables->durability = word == "log" ? Durability::kLog : Durability::kCheckpoint;
    tables->copies = 1;
    return absl::OkStatus();
  }
  if (absl::ConsumePrefix(&rest, "replicated=") && absl::SimpleAtoi(rest, &tables->copies) &&
      tables->copies >= 2 && tables->copies <= kCopiesMax) {
    tables->durability = Durability::kReplicated;
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--durability \"", word,
                   "\" is unknown; one of: checkpoint, log, replicated=2..", kCopiesMax));
}

absl::StatusOr<ReadFrom> ParseReadFrom(const std::string& word) {
  if (word == "primary") return ReadFrom::kPrimary;
  if (word == "any") return ReadFrom::kAny;
  return absl::InvalidArgumentError(
      absl::StrCat("--read-from \"", word, "\" is unknown; one of: primary, any"));
}

absl::StatusOr<WeightType> ParseWeightType(const std::string& word) {
  return ByWord<WeightType>("--weight-type", word, kWeightTypeWords);
}

absl::Status ParseConsistency(const std::string& word, BenchTables* tables) {
  absl::string_view rest = word;
  if (word == "async" || word == "sync") {
    tables->consistency = word == "sync" ? Consistency::kSync : Consistency::kAsync;
  } else if (absl::ConsumePrefix(&rest, "bounded:") && absl::SimpleAtoi(rest, &tables->staleness)) {
    tables->consistency = Consistency::kBounded;
  } else {
    return absl::InvalidArgumentError(absl::StrCat(
        "--consistency \"", word, "\" is unknown; one of: async, bounded:STEPS, sync"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> PrepareTables(Client* client, const BenchTables& wanted,
                                                       bool preload, std::ostream* err) {
  std::vector<std::string> names;
  uint64_t step = 0;
  for (uint32_t t = 0; t < wanted.tables; ++t) {
    TableOptions options;
    options.rows =
        wanted.rows_min +
        (wanted.tables == 1 ? 0 : (wanted.rows_max - wanted.rows_min) * t / (wanted.tables - 1));
    options.dim = wanted.dim;
    options.optimizer.kind = wanted.optimizer;
    options.durability = wanted.durability;
    options.copies = wanted.copies;
    options.consistency = wanted.consistency;
    options.staleness = wanted.staleness;
    options.initializer = {InitializerKind::kUniform, -0.05f, 0.05f};
    options.weight_type = wanted.weight_type;
    options.column_slices = wanted.column_slices;
    if (wanted.column_slices > 1) options.row_statistics = RowStatistics::kSlice;
    options.name = NameOf(options, t);
    names.push_back(options.name);
    HOTBED_ASSIGN_OR_RETURN(const Table* table,
                            client->CreateTable(options, /*if_not_exists=*/true));
    if (!preload) continue;
    HOTBED_ASSIGN_OR_RETURN(const bool loaded, Loaded(client, *table));
    if (loaded) continue;
    if (err != nullptr) *err << "preloading " << options.name << "\n" << std::flush;
    HOTBED_RETURN_IF_ERROR(Preload(client, *table, &step));
  }
  return names;
}

}  // namespace hotbed
