#include "planner/model/validate_input.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/numeric/int128.h"
#include "absl/strings/str_cat.h"
#include "planner/model/placement.h"
#include "planner/model/table_bytes.h"
#include "planner/model/tiling.h"

namespace hotbed {
namespace {

constexpr uint64_t kLimit = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());

PlanError Wrong(std::string message) { return {PlanErrorKind::kInput, std::move(message)}; }

PlanError WrongTable(const std::string& table, absl::string_view message) {
  PlanError error = Wrong(absl::StrCat("table '", table, "': ", message));
  error.table = table;
  return error;
}

bool NotNegative(double value) { return std::isfinite(value) && value >= 0; }

std::optional<PlanError> CheckHotness(const InputTable& table) {
  HotnessPoint last;
  for (size_t i = 0; i < table.hotness.size(); ++i) {
    const HotnessPoint& point = table.hotness[i];
    const bool in_range = point.rows > last.rows && point.rows <= 1 &&
                          point.accesses >= last.accesses && point.accesses <= 1;
    if (!in_range) {
      return WrongTable(table.name,
                        absl::StrCat("hotness[", i, "] is [", point.rows, ", ", point.accesses,
                                     "]; fractions must ascend within 0 to 1"));
    }
    last = point;
  }
  return std::nullopt;
}

std::optional<PlanError> CheckTable(const InputTable& table) {
  if (table.name.empty()) return WrongTable(table.name, "it has no name");
  if (table.rows == 0) return WrongTable(table.name, "rows is 0; at least 1 is needed");
  if (table.dim == 0) return WrongTable(table.name, "dim is 0; at least 1 is needed");
  if (table.rows > kLimit) {
    return WrongTable(table.name, absl::StrCat("rows ", table.rows, " is beyond 2^63"));
  }
  for (const MeasuredRange& range : table.measured) {
    if (!std::isfinite(range.reads) || !NotNegative(range.updates) || range.bytes > kLimit) {
      return WrongTable(
          table.name, absl::StrCat("measured from row ", range.row_first, " on: ", range.reads,
                                   " reads, ", range.updates, " updates, ", range.bytes, " bytes"));
    }
  }
  if (table.replicas == 0) return WrongTable(table.name, "replicas is 0; 1 is the primary alone");
  if (!NotNegative(table.reads_per_step)) {
    return WrongTable(table.name, absl::StrCat("reads_per_step ", table.reads_per_step,
                                               " is not a number of 0 or more"));
  }
  if (table.zipf && !NotNegative(*table.zipf)) {
    return WrongTable(table.name,
                      absl::StrCat("zipf ", *table.zipf, " is not a number of 0 or more"));
  }
  return CheckHotness(table);
}

// Also checks that all bytes together stay below 2^63, so that no sum of a plan can overflow.
std::optional<PlanError> CheckTables(const PlannerInput& input) {
  if (input.tables.empty()) return Wrong("there are no tables; at least one is needed");
  absl::flat_hash_set<std::string> names;
  absl::uint128 bytes = 0;
  for (const InputTable& table : input.tables) {
    if (std::optional<PlanError> error = CheckTable(table)) return error;
    if (!names.insert(table.name).second) {
      return WrongTable(table.name, "a second table has this name; names must differ");
    }
    // A column slice may keep row statistics of its own; no table has more slices than columns.
    const absl::uint128 row = absl::uint128(RowBytes(table, table.dim)) + 12 * uint64_t{table.dim};
    const absl::uint128 one_replica = row * table.rows;
    bytes += one_replica > kLimit ? one_replica
                                  : one_replica * table.replicas;  // the product would overflow
    if (bytes > kLimit) {
      return WrongTable(table.name, absl::StrCat("with its ", table.rows, " rows of ", table.dim,
                                                 " columns the tables take more than 2^63 bytes"));
    }
  }
  return std::nullopt;
}

std::optional<PlanError> CheckFeatures(const PlannerInput& input) {
  absl::flat_hash_set<std::string> names;
  for (const InputFeature& feature : input.features) {
    if (feature.name.empty()) return Wrong("a feature has no name");
    if (!names.insert(feature.name).second) {
      return Wrong(absl::StrCat("two features are named '", feature.name, "'; names must differ"));
    }
    if (feature.table >= input.tables.size()) {
      return Wrong(absl::StrCat("feature '", feature.name, "' is of table number ", feature.table,
                                "; there are ", input.tables.size()));
    }
    if (!NotNegative(feature.pooling_factor)) {
      return WrongTable(input.tables[feature.table].name,
                        absl::StrCat("feature '", feature.name, "' has pooling_factor ",
                                     feature.pooling_factor, ", not a number of 0 or more"));
    }
  }
  return std::nullopt;
}

std::optional<PlanError> CheckServers(const Topology& topology) {
  if (topology.servers.empty()) return Wrong("there are no servers; at least one is needed");
  absl::flat_hash_set<std::string> names;
  for (const InputServer& server : topology.servers) {
    if (server.name.empty()) return Wrong("a server has no name");
    if (!names.insert(server.name).second) {
      return Wrong(absl::StrCat("two servers are named '", server.name, "'; names must differ"));
    }
    if (!NotNegative(server.load)) {
      return Wrong(absl::StrCat("server '", server.name, "' has load ", server.load,
                                ", not a number of 0 or more"));
    }
    if (server.device_bytes > kLimit || server.host_bytes > kLimit || server.spill_bytes > kLimit) {
      return Wrong(absl::StrCat("server '", server.name, "' has bytes beyond 2^63"));
    }
  }
  const Bandwidths& b = topology.bandwidth;
  for (const double value :
       {b.device, b.host, b.device_host, b.intra_host, b.inter_host, b.spill}) {
    if (!NotNegative(value)) {
      return Wrong(absl::StrCat("bandwidth ", value, " is not a number of 0 or more"));
    }
  }
  return std::nullopt;
}

std::optional<PlanError> CheckValues(const std::string& table, const char* what,
                                     const std::vector<double>& values) {
  for (const double value : values) {
    if (!NotNegative(value)) {
      return WrongTable(table, absl::StrCat(what, " ", value, " is not a number of 0 or more"));
    }
  }
  return std::nullopt;
}

std::optional<PlanError> CheckConstraint(const PlannerInput& input, const TableConstraint& c) {
  const std::string& name = input.tables[c.table].name;
  for (const uint32_t server : c.servers) {
    if (server >= input.topology.servers.size()) {
      return WrongTable(name, absl::StrCat("pinned to server number ", server, "; there are ",
                                           input.topology.servers.size()));
    }
  }
  if (c.cache_load_factor && !(*c.cache_load_factor >= 0 && *c.cache_load_factor <= 1)) {
    return WrongTable(
        name, absl::StrCat("cache_load_factor ", *c.cache_load_factor, " is not within 0 to 1"));
  }
  if (c.columns_min == 0u) return WrongTable(name, "columns_min is 0; at least 1 is needed");
  if (c.prefetch_passes == 0) {
    return WrongTable(name, "prefetch_passes is 0; at least 1 is needed");
  }
  const uint32_t slices = c.column_slices.value_or(1);
  if (slices < 1 || slices > input.tables[c.table].dim || slices > kColumnSlicesMax) {
    return WrongTable(name,
                      absl::StrCat("column_slices ", slices, " is not within 1 to its ",
                                   input.tables[c.table].dim, " columns and ", kColumnSlicesMax));
  }
  if (auto error = CheckValues(name, "pooling_factors", c.pooling_factors)) return error;
  return CheckValues(name, "num_poolings", c.num_poolings);
}

std::optional<PlanError> CheckOptions(const PlannerInput& input) {
  absl::flat_hash_set<uint32_t> constrained;
  for (const TableConstraint& constraint : input.options.constraints) {
    if (constraint.table >= input.tables.size()) {
      return Wrong(absl::StrCat("a constraint is of table number ", constraint.table,
                                "; there are ", input.tables.size()));
    }
    if (!constrained.insert(constraint.table).second) {
      return WrongTable(input.tables[constraint.table].name,
                        "it has two constraints; at most one is allowed");
    }
    if (auto error = CheckConstraint(input, constraint)) return error;
  }
  const double fraction = input.options.reserve.fraction;
  if (!(fraction >= 0 && fraction <= 1)) {
    return Wrong(absl::StrCat("reserve.fraction ", fraction, " is not within 0 to 1"));
  }
  if (input.workload.batch_size == 0) return Wrong("workload.batch_size is 0");
  if (input.workload.trainers == 0) return Wrong("workload.trainers is 0");
  return std::nullopt;
}

// A table that the input no longer has must tile what its own ranges span: it is only dropped.
std::optional<PlanError> CheckCurrent(const PlannerInput& input) {
  if (!input.current) return std::nullopt;
  absl::flat_hash_map<std::string, const InputTable*> tables;
  for (const InputTable& table : input.tables) tables.emplace(table.name, &table);
  absl::flat_hash_set<std::string> seen;
  for (const PlacedTable& placed : input.current->tables) {
    if (!seen.insert(placed.name).second) {
      return WrongTable(placed.name, "it stands twice in the current plan");
    }
    uint64_t rows = 0;
    uint32_t columns = 0;
    for (const PlacedRange& range : placed.ranges) {
      if (range.server >= input.current->servers.size()) {
        return WrongTable(placed.name, "a range of the current plan is on an unknown server");
      }
      rows = std::max(rows, range.row_limit);
      columns = std::max(columns, range.column_limit);
    }
    const auto found = tables.find(placed.name);
    if (found != tables.end()) {
      rows = found->second->hashed ? kHashBuckets : found->second->rows;
      columns = found->second->dim;
    }
    if (std::optional<std::string> fault = TilingFault(placed.ranges, rows, columns)) {
      return WrongTable(placed.name, absl::StrCat("the current plan does not tile it: ", *fault));
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<PlanError> ValidateInput(const PlannerInput& input) {
  if (auto error = CheckTables(input)) return error;
  if (auto error = CheckFeatures(input)) return error;
  if (auto error = CheckServers(input.topology)) return error;
  if (auto error = CheckOptions(input)) return error;
  return CheckCurrent(input);
}

}  // namespace hotbed
