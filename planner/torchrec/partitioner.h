// Finds a rank for every shard of a proposal (planner/partitioners.py at a48cef7).
//
// Greedy (GreedyPerfPartitioner): uniform options first, shard i on rank i. Then the others by
// storage (or by time), largest first, equals in table order:
//   device      each shard on the first rank, by (time so far, rank mod L, rank), that has room
//   host        the first host, by time so far, on which all shards find room: table_row_wise
//               shard i on rank i of the host; table_column_wise as `device` among its ranks
//   multi_host  the first run of adjacent hosts, in order of time so far, with room for shard i on
//               its rank i; when all hosts are needed they are taken in turn
// Memory balanced (MemoryBalancedPartitioner): greedy by time; then at most 10 steps of a binary
// search for the least device memory a rank with which greedy by time still finds a plan at most
// 2 % slower, between max(mean use, largest shard) and the first plan's use, until 10 MiB apart.
// It weighs device memory only, as TorchRec does: on a cpu it is greedy by time.
//
// Pins (ours): a table with pinned ranks considers no others.
//
// Thread-compatible: a partitioner keeps buffers from one call to the next.
#ifndef HOTBED_PLANNER_TORCHREC_PARTITIONER_H_
#define HOTBED_PLANNER_TORCHREC_PARTITIONER_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "planner/torchrec/rank_topology.h"
#include "planner/torchrec/room_tree.h"
#include "planner/torchrec/sharding_option.h"

namespace hotbed::torchrec {

enum class SortBy : uint8_t { kStorage, kPerf };

// The option of each table, by table.
using OptionsOfTables = std::vector<const ShardingOption*>;

// Ranks of the shards by table; empty for uniform options, which have shard i on rank i.
using Assignment = std::vector<std::vector<uint32_t>>;

// Why a proposal could not be placed.
struct PartitionFailure {
  uint32_t table = 0;
  Storage shard;                // the shard without a rank; for a host option all of its shards
  Storage roomiest;             // free storage of the roomiest rank (or host)
  bool grid_remainder = false;  // the grid shards are no multiple of a host's ranks
};

class GreedyPartitioner {
 public:
  // References must outlive the partitioner; `capacity` by rank, after reservations.
  GreedyPartitioner(const RankTopology& topology, const std::vector<Storage>& capacity,
                    const std::vector<std::vector<uint32_t>>& pins);

  // Fills in `assignment` and returns true, or fills in `failure` and returns false. `hbm_limit`
  // replaces the capacity of each rank.
  bool Partition(const OptionsOfTables& options, SortBy sort_by,
                 std::optional<absl::int128> hbm_limit, Assignment* assignment,
                 PartitionFailure* failure);

  // After a successful Partition: the slowest rank's time. It is added up in another order than in
  // RatePlan, so it equals that result except for rounding.
  double SlowestMs() const;

 private:
  struct Device {
    Storage free;
    TablePerf perf;
    double total_ms = 0;
  };

  void Start(std::optional<absl::int128> hbm_limit);
  // A rank's position in the order that breaks ties.
  uint32_t PlaceOf(uint32_t rank) const;
  uint32_t RankAt(uint32_t place) const;
  bool Pinned(uint32_t table, uint32_t rank) const;
  bool HostPinned(uint32_t table, uint32_t host) const;
  // Takes the storage and time of one shard on `rank`.
  void Take(uint32_t rank, const Storage& storage, const TablePerf& perf);
  // Updates the rank in by_time_, if that is kept.
  void Reorder(uint32_t rank);
  // Brings host_ms_ up to date.
  void AddUpHosts();

  // Places all uniform options.
  bool PlaceUniform(const OptionsOfTables& options);
  // Finds the uniform option that does not fit `rank`; returns false.
  bool FailUniform(const OptionsOfTables& options, uint32_t rank);
  bool PlaceOnDevices(uint32_t table, const ShardingOption& option, std::vector<uint32_t>* ranks);
  bool PlaceOnHost(uint32_t table, const ShardingOption& option, std::vector<uint32_t>* ranks);
  bool TryHost(uint32_t host, uint32_t table, const ShardingOption& option,
               std::vector<uint32_t>* ranks);
  bool PlaceOnHosts(uint32_t table, const ShardingOption& option, std::vector<uint32_t>* ranks);
  // Places shard i on devices[i]; all or none.
  bool TryInOrder(const std::vector<uint32_t>& devices, const ShardingOption& option);
  bool PlaceOne(uint32_t table, const ShardingOption& option, std::vector<uint32_t>* ranks);
  bool Fail(uint32_t table, const Storage& shard, const std::vector<uint32_t>& ranks);
  // The first of `ranks` by key that has room.
  std::optional<uint32_t> FirstWithRoom(const std::vector<uint32_t>& ranks, uint32_t local,
                                        const Storage& storage) const;

  const RankTopology& topology_;
  const std::vector<Storage>& capacity_;
  const std::vector<std::vector<uint32_t>>& pins_;
  std::vector<Device> devices_;
  std::vector<Storage> left_;  // scratch of TryInOrder and PlaceUniform
  bool ordered_ = false;       // whether by_time_ is kept
  RoomTree by_time_;
  std::vector<double> host_ms_;  // time so far of each host's ranks
  std::vector<bool> host_stale_;
  PartitionFailure failure_;
};

// The slowest rank's time, by which plans are rated (NoopPerfModel, planner/perf_models.py).
double RatePlan(const RankTopology& topology, const OptionsOfTables& options,
                const Assignment& assignment);

// As described above.
bool PartitionMemoryBalanced(const RankTopology& topology, const OptionsOfTables& options,
                             GreedyPartitioner* greedy, Assignment* assignment,
                             PartitionFailure* failure);

}  // namespace hotbed::torchrec

#endif  // HOTBED_PLANNER_TORCHREC_PARTITIONER_H_
