#include "planner/sources/place_slices.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace hotbed {
namespace {

using Lists = std::vector<std::vector<uint32_t>>;

Lists RoundRobin(uint32_t workers, const std::vector<TableSlice>& slices) {
  Lists lists(workers);
  for (size_t i = 0; i < slices.size(); ++i) lists[i % workers].push_back(slices[i].table);
  return lists;
}

std::vector<TableSlice> LargestFirst(std::vector<TableSlice> slices) {
  std::sort(slices.begin(), slices.end(), [](const TableSlice& a, const TableSlice& b) {
    return std::tie(a.size, a.table) > std::tie(b.size, b.table);
  });
  return slices;
}

Lists Snake(uint32_t workers, const std::vector<TableSlice>& slices) {
  Lists lists(workers);
  const size_t period = 2 * size_t{workers};
  for (size_t i = 0; i < workers; ++i) {
    for (size_t at = i; at < slices.size(); at += period) lists[i].push_back(slices[at].table);
    for (size_t at = period - 1 - i; at < slices.size(); at += period) {
      lists[i].push_back(slices[at].table);
    }
  }
  return lists;
}

Lists LeastLoaded(uint32_t workers, const std::vector<TableSlice>& slices) {
  using Worker = std::pair<uint64_t, std::vector<uint32_t>>;  // load, tables
  // A heap keeps the first of the order on top, which is all that each step looks at; workers that
  // are equal in load and list cannot be told apart.
  const auto later = [](const Worker& a, const Worker& b) { return b < a; };
  std::vector<Worker> heap(workers);
  for (const TableSlice& slice : slices) {
    std::pop_heap(heap.begin(), heap.end(), later);
    heap.back().first += slice.size;
    heap.back().second.push_back(slice.table);
    std::push_heap(heap.begin(), heap.end(), later);
  }
  std::sort(heap.begin(), heap.end());
  Lists lists;
  lists.reserve(workers);
  for (Worker& worker : heap) lists.push_back(std::move(worker.second));
  return lists;
}

}  // namespace

Lists PlaceSlices(PlannerStrategy strategy, uint32_t workers,
                  const std::vector<TableSlice>& slices) {
  switch (strategy) {
    case PlannerStrategy::kMemoryBalanced:
      return Snake(workers, LargestFirst(slices));
    case PlannerStrategy::kMemoryOptimized:
      return LeastLoaded(workers, LargestFirst(slices));
    default:
      return RoundRobin(workers, slices);
  }
}

std::vector<std::vector<MergedSlice>> MergeSlices(const Lists& placed, const Lists& widths) {
  struct Dealt {
    size_t slices = 0;
    uint32_t columns = 0;
    size_t last_worker = SIZE_MAX;  // the last that took a slice, and where it has the table
    size_t place = 0;
  };
  std::vector<Dealt> dealt(widths.size());
  std::vector<std::vector<MergedSlice>> merged(placed.size());
  for (size_t worker = 0; worker < placed.size(); ++worker) {
    for (const uint32_t table : placed[worker]) {
      Dealt& so_far = dealt[table];
      if (so_far.last_worker != worker) {
        so_far.last_worker = worker;
        so_far.place = merged[worker].size();
        merged[worker].push_back({table, so_far.columns, so_far.columns});
      }
      so_far.columns += widths[table][so_far.slices++];
      merged[worker][so_far.place].column_limit = so_far.columns;
    }
  }
  return merged;
}

}  // namespace hotbed
