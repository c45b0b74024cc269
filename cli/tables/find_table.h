// Finds tables and shards in a cluster map. Pure functions.
#ifndef HOTBED_CLI_TABLES_FIND_TABLE_H_
#define HOTBED_CLI_TABLES_FIND_TABLE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tables/table_spec.h"
#include "proto/control.pb.h"

namespace hotbed {

// The parts of the composed table of this name; none: there is none.
std::vector<TableSpec> FindParts(const v1::ClusterMap& map, const std::string& name);

// NotFound names the table and the nearest known one; of a composed table, its parts.
absl::StatusOr<TableSpec> FindTable(const v1::ClusterMap& map, const std::string& name);

// The shards of a table in order of their index.
std::vector<v1::ShardRecord> ShardsOf(const v1::ClusterMap& map, TableId table);

// The shards that hold an id of the table: one per column slice, in their order. Empty for an id
// outside a bounded table.
std::vector<const v1::ShardRecord*> ShardsOfId(const TableSpec& spec,
                                               const std::vector<v1::ShardRecord>& shards,
                                               uint64_t id);

}  // namespace hotbed

#endif  // HOTBED_CLI_TABLES_FIND_TABLE_H_
