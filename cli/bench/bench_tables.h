// The tables that the load runs on: created if missing, every row pushed once.
#ifndef HOTBED_CLI_BENCH_BENCH_TABLES_H_
#define HOTBED_CLI_BENCH_BENCH_TABLES_H_

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/table_spec.h"
#include "hotbed/client.h"

namespace hotbed {

struct BenchTables {
  uint32_t tables = 1;
  uint64_t rows_min = 1'000'000;  // table i has rows between min and max, evenly spread
  uint64_t rows_max = 1'000'000;
  uint32_t dim = 64;
  OptimizerKind optimizer = OptimizerKind::kRowwiseAdagrad;
  Durability durability = Durability::kLog;
  uint32_t copies = 1;
  WeightType weight_type = WeightType::kFp32;
  uint32_t column_slices = 1;
  Consistency consistency = Consistency::kAsync;
  uint32_t staleness = 0;
};

extern const std::vector<std::string> kRowTypeWords;  // by RowType

absl::StatusOr<RowType> ParseRowType(const std::string& word);
absl::StatusOr<OptimizerKind> ParseOptimizer(const std::string& word);
// "checkpoint", "log", or "replicated=COPIES".
absl::Status ParseDurability(const std::string& word, BenchTables* tables);
// "primary" or "any".
absl::StatusOr<ReadFrom> ParseReadFrom(const std::string& word);
absl::StatusOr<WeightType> ParseWeightType(const std::string& word);
// "async", "sync" or "bounded:STEPS".
absl::Status ParseConsistency(const std::string& word, BenchTables* tables);

// The names, which say what the tables are, so that runs with the same options find them again.
// `err` hears of preloading.
absl::StatusOr<std::vector<std::string>> PrepareTables(Client* client, const BenchTables& wanted,
                                                       bool preload, std::ostream* err);

}  // namespace hotbed

#endif  // HOTBED_CLI_BENCH_BENCH_TABLES_H_
