// Reads tables from a JSON list of objects (or a single object) whose keys are the flags of `hotbed
// table create`:
//
//   [{"name": "user", "dim": 64, "rows": 1000000, "optimizer": "adam", "lr": 0.01},
//    {"name": "query", "dim": 32, "hashed": true, "init": "uniform:-0.01,0.01", "shards": 16}]
//
// or in the form of `hotbed table describe -o json`: the options of the optimizer and the schedule
// in objects of their own, and changes in a list. Its keys for the placement of the table (id, the
// list of shards, bytes per row) are ignored.
//
// Pure functions.
#ifndef HOTBED_CLI_TABLES_TABLE_FILE_H_
#define HOTBED_CLI_TABLES_TABLE_FILE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/tables/table_spec.h"

namespace hotbed {

struct AskedTable {
  TableSpec spec;  // the flags' defaults where the file says nothing
  uint32_t shards = 0;
};

// The defaults of the flags.
TableSpec DefaultTableSpec();

// Returns the tables in the file's order; each is valid, and no name occurs twice. InvalidArgument
// begins with the entry and field, as in tables[3].dim, and names the value and the allowed range;
// for an unknown key it names the nearest known one. `-` and `_` are the same in keys and words.
absl::StatusOr<std::vector<AskedTable>> ReadTableFile(absl::string_view text);

}  // namespace hotbed

#endif  // HOTBED_CLI_TABLES_TABLE_FILE_H_
