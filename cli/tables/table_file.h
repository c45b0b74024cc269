// Tables from a JSON list (or one alone), one object a table, in the names of the flags of `hotbed
// table create`:
//
//   [{"name": "user", "dim": 64, "rows": 1000000, "optimizer": "adam", "lr": 0.01},
//    {"name": "query", "dim": 32, "hashed": true, "init": "uniform:-0.01,0.01", "shards": 16}]
//
// or as `hotbed table describe -o json` writes a table: options of the optimizer and the schedule
// in objects of their own, changes in a list. What that says of the table's place (id, the list of
// shards, bytes of a row) is passed over.
//
// Pure functions.
#ifndef HOTBED_CLI_TABLES_TABLE_FILE_H_
#define HOTBED_CLI_TABLES_TABLE_FILE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/table_spec.h"

namespace hotbed {

struct AskedTable {
  TableSpec spec;  // as the flags' defaults, where the file says nothing
  uint32_t shards = 0;
};

// A table of which nothing was said: what the flags' defaults are.
TableSpec DefaultTableSpec();

// The tables in the file's order, each of them valid, no name twice. InvalidArgument begins with
// the entry and field, as in tables[3].dim, and says the value and what is allowed; an unknown key
// names the nearest known one. `-` and `_` are the same in keys and words.
absl::StatusOr<std::vector<AskedTable>> ReadTableFile(absl::string_view text);

}  // namespace hotbed

#endif  // HOTBED_CLI_TABLES_TABLE_FILE_H_
