#include "planner/torchrec/search_error.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace hotbed::torchrec {
namespace {

// The tier in which `need` exceeds `room`, and by how much.
struct Shortage {
  const char* tier = "host_bytes";
  absl::int128 need = 0;
  absl::int128 room = 0;
};

Shortage ShortageOf(const Storage& need, const Storage& room) {
  if (need.hbm > room.hbm || (need.hbm > 0 && need.ddr <= room.ddr)) {
    return {.tier = "device_bytes", .need = need.hbm, .room = room.hbm};
  }
  return {.tier = "host_bytes", .need = need.ddr, .room = room.ddr};
}

void SetBytes(const Shortage& shortage, PlanError* error) {
  error->limit = ClampBytes(shortage.room);
  error->missing_bytes = ClampBytes(shortage.need - shortage.room);
}

// The table that needs most in that tier.
uint32_t LargestTable(const SearchSpace& space, const std::vector<uint32_t>& choice, bool hbm) {
  uint32_t largest = 0;
  absl::int128 most = -1;
  for (uint32_t t = 0; t < choice.size(); ++t) {
    const Storage& sum = space[t][choice[t]].sum;
    if ((hbm ? sum.hbm : sum.ddr) > most) {
      most = hbm ? sum.hbm : sum.ddr;
      largest = t;
    }
  }
  return largest;
}

std::string Remedies(const PlannerInput& input, const RankTopology& topology) {
  return absl::StrCat("Add servers (now ", topology.ranks,
                      "), give them more memory, make tables smaller, lower batch_size (",
                      input.workload.batch_size,
                      ") or what is reserved, or lift constraints that narrow the search");
}

PlanError Insufficient(const PlannerInput& input, const SearchSpace& space,
                       const RankTopology& topology, const Storage& room,
                       const SearchResult& result) {
  const Shortage shortage = ShortageOf(result.least, room);
  const bool hbm = result.least.hbm > room.hbm;
  PlanError error;
  error.kind = PlanErrorKind::kInsufficientStorage;
  const uint32_t table = LargestTable(space, result.least_choice, hbm);
  error.table = input.tables[table].name;
  SetBytes(shortage, &error);
  const Storage& own = space[table][result.least_choice[table]].sum;
  error.message =
      absl::StrCat("the tables do not fit: of ", result.proposals, " proposals the smallest needs ",
                   ClampBytes(shortage.need), " ", shortage.tier,
                   ", and all servers together have ", *error.limit, " for tables; ",
                   *error.missing_bytes, " bytes are missing. The largest table is '", *error.table,
                   "' with ", ClampBytes(hbm ? own.hbm : own.ddr), ". ", Remedies(input, topology));
  return error;
}

}  // namespace

PlanError ExplainFailure(const PlannerInput& input, const SearchSpace& space,
                         const RankTopology& topology, const Reserved& reserved,
                         const SearchResult& result) {
  Storage room;
  for (const Storage& rank : reserved.left) room += rank;
  if (!result.last_failure || !result.least.FitsIn(room)) {
    return Insufficient(input, space, topology, room, result);
  }
  const PartitionFailure& failure = *result.last_failure;
  PlanError error;
  error.kind = result.cut_short || failure.grid_remainder ? PlanErrorKind::kPartition
                                                          : PlanErrorKind::kStrictConstraints;
  error.table = input.tables[failure.table].name;
  if (failure.grid_remainder) {
    error.limit = topology.ranks_per_host;
    error.message =
        absl::StrCat("table '", *error.table, "': its grid shards are no multiple of the ",
                     topology.ranks_per_host, " servers of a host. Allow another sharding type");
    return error;
  }
  const Shortage shortage = ShortageOf(failure.shard, failure.roomiest);
  std::string lack =
      "enough for all of its shards together, but not for each of them on one server";
  if (shortage.need > shortage.room) {
    SetBytes(shortage, &error);
    lack = absl::StrCat(*error.limit, " left; ", *error.missing_bytes, " bytes are missing");
  }
  error.message = absl::StrCat(
      "the tables fit in sum, but none of ", result.proposals,
      " proposals could be placed: last, table '", *error.table, "' asked for ",
      ClampBytes(shortage.need), " ", shortage.tier, " in one place, where the roomiest had ", lack,
      ". ", result.cut_short ? "Raise evaluations_max, which ended the search. " : "",
      "Allow sharding types that cut the table finer. ", Remedies(input, topology));
  return error;
}

}  // namespace hotbed::torchrec
