// The placement of one table at its creation: cut into shards, which then never change, and spread
// over the live servers. Pure functions; the same arguments give the same plan on every machine.
//
// How a table is cut (DECISIONS P1, P2). Units are rows (bounded) or the 65,536 buckets of the
// mixed position (hashed). Shards are consecutive ranges of units whose sizes differ by at most
// one, the first ones taking one more. There are as many as keep each at or under kShardBytesMax of
// weights and optimizer state, at least kShardsPerTableMin where the table is above 1 MiB (or
// hashed with no expected size), never more than one a unit nor kShardsPerTableMax a table. A table
// above kShardsPerTableMax x kShardBytesMax keeps to the number of shards, and its shards grow.
//
// A table of several column slices (TableSpec::column_slices) is cut into as many ranges of units
// as its widest slice needs, with the numbers of shards above for all slices together, and every
// slice at the same units; shards stand slice by slice.
#ifndef HOTBED_PLANNER_MODEL_PLACEMENT_H_
#define HOTBED_PLANNER_MODEL_PLACEMENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/ids.h"
#include "common/shard_record.h"
#include "common/table_spec.h"
#include "planner/model/plan.h"

namespace hotbed {

constexpr uint64_t kHashBuckets = 65536;  // DECISIONS P2

// A server that may take shards, with the bytes (weights and optimizer state) that it holds
// already.
struct ServerCandidate {
  ServerId server = 0;
  uint64_t bytes = 0;
  std::string failure_domain;  // empty: its own, which no other server is in
};

// The ranges of the table's shards, slice by slice, in position order. `shards_min` 0 leaves the
// number to the rules above, else there are at least so many, of all slices together.
// InvalidArgument when that makes more than kShardsPerTableMax or more ranges than the table has
// rows.
absl::StatusOr<std::vector<ShardRange>> CutTable(const TableSpec& spec, uint32_t shards_min);

// Weights and optimizer state of `range`; saturates at 2^64 - 1.
uint64_t RangeBytes(const TableSpec& spec, const ShardRange& range);

// The table's shards on all of `servers`, which must have distinct ids: each takes a run of
// adjacent shards, in the order of server ids; the runs differ by at most one shard, and the longer
// ones (or, of fewer shards than servers, the only ones) go to the servers with the fewest bytes,
// among equals to the lower id. Of a table of several copies the primaries lie so, and the backups
// of each shard, by turns of the primaries' servers, on the server that has the fewest bytes by
// then (what the plan gives it counted), outside of the failure domains of the shard's other
// copies; among equals on the one with the fewest backups of that primary's, so that all share the
// work of a server that fails. FailedPrecondition without servers, or with fewer failure domains
// than copies; errors of CutTable.
absl::StatusOr<Plan> PlaceTable(const TableSpec& spec, std::vector<ServerCandidate> servers,
                                uint32_t shards_min);

// FailedPrecondition: `spec` asks for more copies than there are failure domains among the servers
// that may take shards.
absl::Status TooFewDomains(const TableSpec& spec, uint64_t domains, uint64_t servers);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_MODEL_PLACEMENT_H_
