// The tables under load: created if missing, and every row pushed once.
#ifndef HOTBED_CLI_BENCH_BENCH_TABLES_H_
#define HOTBED_CLI_BENCH_BENCH_TABLES_H_

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "hotbed/client.h"
#include "hotbed/table_options.h"

namespace hotbed {

// Dim 64, row-wise Adagrad, durability class `log`.
TableOptions BenchTableOptions();

struct BenchTables {
  uint32_t tables = 1;
  uint64_t rows_min = 1'000'000;  // table i has rows between min and max, evenly spread
  uint64_t rows_max = 1'000'000;
  TableOptions options = BenchTableOptions();  // of each table, except name and rows
};

// Returns the names of the tables. A name describes its table, so that a later run with the same
// options uses the table again. `err` (may be null) receives a line for each table that is loaded.
absl::StatusOr<std::vector<std::string>> PrepareTables(Client* client, const BenchTables& wanted,
                                                       bool preload, std::ostream* err);

}  // namespace hotbed

#endif  // HOTBED_CLI_BENCH_BENCH_TABLES_H_
