#include "cli/bench/bench_tables.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

constexpr uint64_t kPreloadRows = 8192;  // per push
constexpr size_t kPreloadInFlight = 8;
constexpr uint64_t kProbes = 512;

// Describes the table, so that a run with the same options finds it again.
std::string NameOf(const TableOptions& table, uint32_t number) {
  std::string name = absl::StrCat("bench-", table.rows, "x", table.dim, "-",
                                  kOptimizerWords[static_cast<size_t>(table.optimizer.kind)], "-",
                                  kDurabilityWords[static_cast<size_t>(table.durability)]);
  if (table.replicas > 1) absl::StrAppend(&name, "-", table.replicas);
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

// Whether all of a sample of rows, spread over the table, exist.
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
    // Assign where a gradient would need a trainer group or an optimizer.
    push.assign = table.options().consistency != Consistency::kAsync ||
                  table.options().optimizer.kind == OptimizerKind::kNone;
    pushes.push_back(client->Push(++*step, {&feature, 1}, push));
    if (pushes.size() >= kPreloadInFlight) HOTBED_RETURN_IF_ERROR(finish_one());
  }
  while (!pushes.empty()) HOTBED_RETURN_IF_ERROR(finish_one());
  return absl::OkStatus();
}

}  // namespace

TableOptions BenchTableOptions() {
  TableOptions options;
  options.dim = 64;
  options.optimizer.kind = OptimizerKind::kRowwiseAdagrad;
  options.initializer = {InitializerKind::kUniform, -0.05f, 0.05f};
  return options;
}

absl::StatusOr<std::vector<std::string>> PrepareTables(Client* client, const BenchTables& wanted,
                                                       bool preload, std::ostream* err) {
  std::vector<std::string> names;
  uint64_t step = 0;
  for (uint32_t t = 0; t < wanted.tables; ++t) {
    TableOptions options = wanted.options;
    options.rows =
        wanted.rows_min +
        (wanted.tables == 1 ? 0 : (wanted.rows_max - wanted.rows_min) * t / (wanted.tables - 1));
    if (options.column_slices > 1) options.row_statistics = RowStatistics::kSlice;
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
