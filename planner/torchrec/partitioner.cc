#include "planner/torchrec/partitioner.h"

#include <algorithm>
#include <numeric>

namespace hotbed::torchrec {
namespace {

// Calls `place(shard, run)` for every shard in order until one returns false.
template <typename Place>
bool ForEachShard(const ShardingOption& option, Place place) {
  uint32_t shard = 0;
  for (const StoredRun& run : option.runs) {
    for (uint32_t i = 0; i < run.count; ++i) {
      if (!place(shard++, run)) return false;
    }
  }
  return true;
}

}  // namespace

GreedyPartitioner::GreedyPartitioner(const RankTopology& topology,
                                     const std::vector<Storage>& capacity,
                                     const std::vector<std::vector<uint32_t>>& pins)
    : topology_(topology), capacity_(capacity), pins_(pins) {}

void GreedyPartitioner::Start(std::optional<absl::int128> hbm_limit) {
  devices_.assign(topology_.ranks, {});
  for (uint32_t r = 0; r < topology_.ranks; ++r) {
    devices_[r].free = capacity_[r];
    // Ours: a limit above what a rank has would let it overflow, where capacities differ.
    if (hbm_limit) devices_[r].free.hbm = std::min(*hbm_limit, capacity_[r].hbm);
  }
  ordered_ = false;
  host_ms_.assign(topology_.hosts(), 0);
  host_stale_.assign(topology_.hosts(), true);
}

uint32_t GreedyPartitioner::PlaceOf(uint32_t rank) const {
  return rank % topology_.ranks_per_host * topology_.hosts() + rank / topology_.ranks_per_host;
}

uint32_t GreedyPartitioner::RankAt(uint32_t place) const {
  return place % topology_.hosts() * topology_.ranks_per_host + place / topology_.hosts();
}

void GreedyPartitioner::Reorder(uint32_t rank) {
  if (ordered_) by_time_.Set(PlaceOf(rank), devices_[rank].total_ms, devices_[rank].free);
}

bool GreedyPartitioner::Pinned(uint32_t table, uint32_t rank) const {
  const std::vector<uint32_t>& pins = pins_[table];
  return pins.empty() || std::binary_search(pins.begin(), pins.end(), rank);
}

bool GreedyPartitioner::HostPinned(uint32_t table, uint32_t host) const {
  for (uint32_t i = 0; i < topology_.ranks_per_host; ++i) {
    if (!Pinned(table, host * topology_.ranks_per_host + i)) return false;
  }
  return true;
}

void GreedyPartitioner::Take(uint32_t rank, const Storage& storage, const TablePerf& perf) {
  Device& device = devices_[rank];
  device.free -= storage;
  device.perf += perf;
  device.total_ms = TotalMs(device.perf);
  Reorder(rank);
  host_stale_[rank / topology_.ranks_per_host] = true;
}

void GreedyPartitioner::AddUpHosts() {
  const uint32_t local = topology_.ranks_per_host;
  for (uint32_t host = 0; host < topology_.hosts(); ++host) {
    if (!host_stale_[host]) continue;
    double sum = 0;
    for (uint32_t i = 0; i < local; ++i) sum += devices_[host * local + i].total_ms;
    host_ms_[host] = sum;
    host_stale_[host] = false;
  }
}

bool GreedyPartitioner::Fail(uint32_t table, const Storage& shard,
                             const std::vector<uint32_t>& ranks) {
  failure_ = {.table = table, .shard = shard};
  for (size_t i = 0; i < ranks.size(); ++i) {
    const Storage& free = devices_[ranks[i]].free;
    if (i == 0 || failure_.roomiest < free) failure_.roomiest = free;
  }
  return false;
}

bool GreedyPartitioner::PlaceUniform(const OptionsOfTables& options) {
  // All ranks start alike and get the same times, so that one sum stands for all; the bytes of runs
  // of ranks are added up as changes from one rank to the next.
  Device sum;
  left_.assign(topology_.ranks + 1, {});
  for (const ShardingOption* const option : options) {
    if (option->partition_by() != PartitionBy::kUniform) continue;
    sum.perf += option->perf;
    uint32_t rank = 0;
    for (const StoredRun& run : option->runs) {
      left_[rank] += run.storage;
      left_[rank += run.count] -= run.storage;
    }
  }
  sum.total_ms = TotalMs(sum.perf);
  Storage taken;
  for (uint32_t rank = 0; rank < topology_.ranks; ++rank) {
    taken += left_[rank];
    if (!taken.FitsIn(devices_[rank].free)) return FailUniform(options, rank);
    devices_[rank].free -= taken;
    devices_[rank].perf = sum.perf;
    devices_[rank].total_ms = sum.total_ms;
  }
  return true;
}

bool GreedyPartitioner::FailUniform(const OptionsOfTables& options, uint32_t rank) {
  for (uint32_t t = 0; t < options.size(); ++t) {
    if (options[t]->partition_by() != PartitionBy::kUniform) continue;
    uint32_t limit = 0;
    const StoredRun* at = nullptr;
    for (const StoredRun& run : options[t]->runs) {
      limit += run.count;
      at = &run;
      if (rank < limit) break;
    }
    if (!at->storage.FitsIn(devices_[rank].free)) return Fail(t, at->storage, {rank});
    devices_[rank].free -= at->storage;
  }
  return false;
}

std::optional<uint32_t> GreedyPartitioner::FirstWithRoom(const std::vector<uint32_t>& ranks,
                                                         uint32_t local,
                                                         const Storage& storage) const {
  std::optional<uint32_t> best;
  const auto before = [&](uint32_t a, uint32_t b) {
    const double a_ms = devices_[a].total_ms;
    const double b_ms = devices_[b].total_ms;
    if (a_ms != b_ms) return a_ms < b_ms;
    return a % local != b % local ? a % local < b % local : a < b;
  };
  for (const uint32_t rank : ranks) {
    if (storage.FitsIn(devices_[rank].free) && (!best || before(rank, *best))) best = rank;
  }
  return best;
}

bool GreedyPartitioner::PlaceOnDevices(uint32_t table, const ShardingOption& option,
                                       std::vector<uint32_t>* ranks) {
  const std::vector<uint32_t>& pins = pins_[table];
  if (pins.empty() && !ordered_) {
    ordered_ = true;
    by_time_.Reset(topology_.ranks);
    for (uint32_t r = 0; r < topology_.ranks; ++r) Reorder(r);
  }
  return ForEachShard(option, [&](uint32_t, const StoredRun& run) {
    std::optional<uint32_t> found;
    if (pins.empty()) {
      const std::optional<uint32_t> place = by_time_.First(run.storage);
      if (place) found = RankAt(*place);
    } else {
      found = FirstWithRoom(pins, topology_.ranks_per_host, run.storage);
    }
    if (!found) {
      std::vector<uint32_t> all = pins;
      if (all.empty()) {
        all.resize(topology_.ranks);
        std::iota(all.begin(), all.end(), 0);
      }
      return Fail(table, run.storage, all);
    }
    Take(*found, run.storage, option.perf);
    ranks->push_back(*found);
    return true;
  });
}

bool GreedyPartitioner::TryInOrder(const std::vector<uint32_t>& devices,
                                   const ShardingOption& option) {
  // A rank may stand in `devices` more than once.
  left_.resize(devices_.size());
  for (const uint32_t rank : devices) left_[rank] = devices_[rank].free;
  const bool fits = ForEachShard(option, [&](uint32_t shard, const StoredRun& run) {
    Storage& left = left_[devices[shard]];
    if (!run.storage.FitsIn(left)) return false;
    left -= run.storage;
    return true;
  });
  if (!fits) return false;
  return ForEachShard(option, [&](uint32_t shard, const StoredRun& run) {
    Take(devices[shard], run.storage, option.perf);
    return true;
  });
}

bool GreedyPartitioner::TryHost(uint32_t host, uint32_t table, const ShardingOption& option,
                                std::vector<uint32_t>* ranks) {
  const uint32_t local = topology_.ranks_per_host;
  std::vector<uint32_t> devices(local);
  std::iota(devices.begin(), devices.end(), host * local);
  if (option.sharding == Sharding::kTableRowWise) {
    if (!HostPinned(table, host) || !TryInOrder(devices, option)) return false;
    *ranks = devices;
    return true;
  }
  std::erase_if(devices, [&](uint32_t rank) { return !Pinned(table, rank); });
  std::vector<Device> before;
  for (const uint32_t rank : devices) before.push_back(devices_[rank]);
  std::vector<uint32_t> chosen;
  const bool fits = ForEachShard(option, [&](uint32_t, const StoredRun& run) {
    const std::optional<uint32_t> rank = FirstWithRoom(devices, local, run.storage);
    if (!rank) return false;
    Take(*rank, run.storage, option.perf);
    chosen.push_back(*rank);
    return true;
  });
  if (fits) {
    *ranks = std::move(chosen);
    return true;
  }
  for (size_t i = 0; i < devices.size(); ++i) {
    devices_[devices[i]] = before[i];
    Reorder(devices[i]);
  }
  return false;
}

bool GreedyPartitioner::PlaceOnHost(uint32_t table, const ShardingOption& option,
                                    std::vector<uint32_t>* ranks) {
  const uint32_t local = topology_.ranks_per_host;
  failure_ = {.table = table, .shard = option.sum};
  AddUpHosts();
  // The next by (time so far, host) after the last one tried; most often the first one does.
  std::optional<std::pair<double, uint32_t>> last;
  while (true) {
    std::optional<std::pair<double, uint32_t>> next;
    for (uint32_t host = 0; host < topology_.hosts(); ++host) {
      const std::pair<double, uint32_t> key = {host_ms_[host], host};
      if ((!last || *last < key) && (!next || key < *next)) next = key;
    }
    if (!next) return false;
    Storage free;
    for (uint32_t i = 0; i < local; ++i) free += devices_[next->second * local + i].free;
    if (failure_.roomiest < free) failure_.roomiest = free;
    if (option.sum.FitsIn(free) && TryHost(next->second, table, option, ranks)) return true;
    last = next;
  }
}

bool GreedyPartitioner::PlaceOnHosts(uint32_t table, const ShardingOption& option,
                                     std::vector<uint32_t>* ranks) {
  const uint32_t local = topology_.ranks_per_host;
  failure_ = {.table = table, .shard = option.largest};
  if (option.shards % local != 0) {
    failure_.grid_remainder = true;
    return false;
  }
  AddUpHosts();
  std::vector<uint32_t> hosts(topology_.hosts());
  std::iota(hosts.begin(), hosts.end(), 0);
  std::stable_sort(hosts.begin(), hosts.end(),
                   [&](uint32_t a, uint32_t b) { return host_ms_[a] < host_ms_[b]; });
  std::erase_if(hosts, [&](uint32_t host) { return !HostPinned(table, host); });
  const uint32_t needed = option.shards / local;
  const bool all = needed >= hosts.size();
  const size_t tries = hosts.empty() ? 0 : (all ? 1 : hosts.size() - needed + 1);
  for (size_t first = 0; first < tries; ++first) {
    std::vector<uint32_t> devices;
    for (uint32_t i = 0; i < needed; ++i) {
      const uint32_t host = hosts[(first + i) % hosts.size()];
      for (uint32_t j = 0; j < local; ++j) devices.push_back(host * local + j);
    }
    if (TryInOrder(devices, option)) {
      *ranks = std::move(devices);
      return true;
    }
  }
  for (const Device& device : devices_) {
    if (failure_.roomiest < device.free) failure_.roomiest = device.free;
  }
  return false;
}

bool GreedyPartitioner::PlaceOne(uint32_t table, const ShardingOption& option,
                                 std::vector<uint32_t>* ranks) {
  switch (option.partition_by()) {
    case PartitionBy::kDevice:
      return PlaceOnDevices(table, option, ranks);
    case PartitionBy::kHost:
      return PlaceOnHost(table, option, ranks);
    case PartitionBy::kMultiHost:
      return PlaceOnHosts(table, option, ranks);
    case PartitionBy::kUniform:
      break;
  }
  return true;
}

bool GreedyPartitioner::Partition(const OptionsOfTables& options, SortBy sort_by,
                                  std::optional<absl::int128> hbm_limit, Assignment* assignment,
                                  PartitionFailure* failure) {
  Start(hbm_limit);
  assignment->resize(options.size());
  std::vector<uint32_t> others;
  for (uint32_t t = 0; t < options.size(); ++t) {
    (*assignment)[t].clear();
    if (options[t]->partition_by() != PartitionBy::kUniform) others.push_back(t);
  }
  if (!PlaceUniform(options)) {
    *failure = failure_;
    return false;
  }
  std::stable_sort(others.begin(), others.end(), [&](uint32_t a, uint32_t b) {
    return sort_by == SortBy::kStorage ? options[b]->sum < options[a]->sum
                                       : options[b]->sum_ms < options[a]->sum_ms;
  });
  for (const uint32_t t : others) {
    if (!PlaceOne(t, *options[t], &(*assignment)[t])) {
      *failure = failure_;
      return false;
    }
  }
  return true;
}

double GreedyPartitioner::SlowestMs() const {
  double slowest = 0;
  for (const Device& device : devices_) slowest = std::max(slowest, device.total_ms);
  return slowest;
}

double RatePlan(const RankTopology& topology, const OptionsOfTables& options,
                const Assignment& assignment) {
  std::vector<double> ms(topology.ranks, 0);
  for (size_t t = 0; t < options.size(); ++t) {
    const double shard_ms = options[t]->shard_ms;
    if (options[t]->partition_by() == PartitionBy::kUniform) {
      for (double& rank_ms : ms) rank_ms += shard_ms;
    } else {
      for (const uint32_t rank : assignment[t]) ms[rank] += shard_ms;
    }
  }
  return *std::max_element(ms.begin(), ms.end());
}

bool PartitionMemoryBalanced(const RankTopology& topology, const OptionsOfTables& options,
                             GreedyPartitioner* greedy, Assignment* assignment,
                             PartitionFailure* failure) {
  constexpr int kStepsMax = 10;
  constexpr double kTolerance = 0.02;
  const absl::int128 close_enough = absl::int128(10) << 20;
  if (!greedy->Partition(options, SortBy::kPerf, std::nullopt, assignment, failure)) return false;
  const double first_ms = RatePlan(topology, options, *assignment);
  std::vector<absl::int128> used(topology.ranks, 0);
  absl::int128 sum = 0;
  absl::int128 largest = 0;
  for (size_t t = 0; t < options.size(); ++t) {
    ForEachShard(*options[t], [&](uint32_t shard, const StoredRun& run) {
      const bool uniform = options[t]->partition_by() == PartitionBy::kUniform;
      used[uniform ? shard : (*assignment)[t][shard]] += run.storage.hbm;
      sum += run.storage.hbm;
      largest = std::max(largest, run.storage.hbm);
      return true;
    });
  }
  absl::int128 high = *std::max_element(used.begin(), used.end());
  absl::int128 low = std::max(sum / topology.ranks, largest);
  Assignment candidate;
  PartitionFailure ignored;
  for (int step = 0; step < kStepsMax && low + close_enough < high; ++step) {
    const absl::int128 middle = (high + low) / 2;
    if (!greedy->Partition(options, SortBy::kPerf, middle, &candidate, &ignored) ||
        RatePlan(topology, options, candidate) > first_ms * (1 + kTolerance)) {
      low = middle;
    } else {
      high = middle;
      std::swap(*assignment, candidate);
    }
  }
  return true;
}

}  // namespace hotbed::torchrec
