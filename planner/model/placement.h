// The placement of one table at its creation: the table is cut into shards, which then never
// change, and these are spread over the live servers. Pure functions; the same arguments give the
// same plan on every machine.
//
// Cutting (docs/decisions.md, "Identity and placement"). Units are rows (bounded tables) or the
// 65,536 buckets of the mixed position (hashed tables). Shards are consecutive ranges of units
// whose sizes differ by at most one; the first ones are the larger. Their number keeps each at or
// under kShardBytesMax of weights and optimizer state. It is at least kShardsPerTableMin if the
// table is above 1 MiB (or hashed with no expected size), and at most one per unit and
// kShardsPerTableMax per table. In a table above kShardsPerTableMax x kShardBytesMax the shards
// grow instead.
//
// A table of several column slices (TableSpec::column_slices) is cut into as many ranges of units
// as its widest slice needs, every slice at the same units; the numbers of shards above count all
// slices together. Shards are ordered slice by slice.
#ifndef HOTBED_PLANNER_MODEL_PLACEMENT_H_
#define HOTBED_PLANNER_MODEL_PLACEMENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/ids.h"
#include "common/tables/shard_record.h"
#include "common/tables/table_spec.h"
#include "planner/model/plan.h"

namespace hotbed {

constexpr uint64_t kHashBuckets = 65536;  // of the mixed position of a hashed table

// A server that may take shards, with the bytes (weights and optimizer state) that it holds
// already.
struct ServerCandidate {
  ServerId server = 0;
  uint64_t bytes = 0;
  std::string failure_domain;  // empty: its own, which no other server is in
  uint64_t primary_bytes = 0;  // of these, of shards whose primary is there
};

// The ranges of the table's shards, slice by slice, in position order. At least `shards_min` of all
// slices together; 0 leaves the number to the rules above. InvalidArgument if that makes more
// ranges than kShardsPerTableMax or than the table has rows.
absl::StatusOr<std::vector<ShardRange>> CutTable(const TableSpec& spec, uint32_t shards_min);

// Weights and optimizer state of `range`; saturates at 2^64 - 1.
uint64_t RangeBytes(const TableSpec& spec, const ShardRange& range);

// Places the table's shards on `servers`, which must have distinct ids.
//
// Primaries: each server takes a run of adjacent shards, in the order of server ids. The runs
// differ by at most one shard; the longer ones (or, with fewer shards than servers, the only ones)
// go to the servers with the fewest bytes of primaries, among equals to those with the fewest bytes
// of all replicas, then to the lower id.
//
// Backups: the servers of the primaries take turns. The backup goes to the server with the fewest
// bytes so far (including those of this plan) outside of the failure domains of the shard's other
// replicas; among equals, to the server with the fewest backups of that primary's server, so that
// all share the work of a server that fails.
//
// FailedPrecondition: no servers, or fewer failure domains than replicas. Other errors are those of
// CutTable.
absl::StatusOr<Plan> PlaceTable(const TableSpec& spec, std::vector<ServerCandidate> servers,
                                uint32_t shards_min);

// Adds the backups to a plan of the table's primaries, by the rule above. FailedPrecondition: fewer
// failure domains than replicas.
absl::Status AddBackups(const TableSpec& spec, const std::vector<ServerCandidate>& servers,
                        Plan* plan);

// FailedPrecondition: `spec` asks for more replicas than there are failure domains among the
// servers that may take shards.
absl::Status TooFewDomains(const TableSpec& spec, uint64_t domains, uint64_t servers);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_MODEL_PLACEMENT_H_
