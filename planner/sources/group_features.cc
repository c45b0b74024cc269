#include "planner/sources/group_features.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

namespace hotbed {
namespace {

// The source's rule, whose groups need not hold each feature once. `sorted` is largest first.
class DifferenceRule {
 public:
  DifferenceRule(const std::vector<uint64_t>& rows, const std::vector<uint32_t>& sorted,
                 uint32_t groups)
      : rows_(rows),
        sorted_(sorted),
        group_count_(groups),
        balance_(static_cast<int64_t>(std::accumulate(rows.begin(), rows.end(), uint64_t{0}))),
        mean_(balance_ / groups),
        tolerance_(balance_ % groups),
        last_(static_cast<int64_t>(sorted.size()) - 1) {}

  FeatureGroups Run() {
    for (int64_t at = 0; at < static_cast<int64_t>(sorted_.size()); ++at) {
      if (groups_.size() + 1 == group_count_) {  // what is left
        groups_.emplace_back();
        for (int64_t i = at; i <= last_ && i < static_cast<int64_t>(sorted_.size()); ++i) {
          groups_.back().push_back(sorted_[i]);
        }
        break;
      }
      const int64_t size = RowsAt(at);
      if (size > mean_ || mean_ - size <= tolerance_) {
        groups_.push_back({sorted_[at]});
        balance_ -= size;
      } else {
        groups_.push_back(Fill(at));
      }
      mean_ = FloorDivide(balance_, static_cast<int64_t>(group_count_ - groups_.size()));
    }
    return std::move(groups_);
  }

 private:
  int64_t RowsAt(int64_t at) const { return static_cast<int64_t>(rows_[sorted_[at]]); }

  // Balances go below zero where rows are taken off twice; the source's division rounds down.
  static int64_t FloorDivide(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

  std::vector<uint32_t> Fill(int64_t at) {
    std::vector<uint32_t> group = {sorted_[at]};
    int64_t sum = RowsAt(at);
    const int64_t later_groups = static_cast<int64_t>(group_count_ - groups_.size()) - 1;
    const int64_t end = static_cast<int64_t>(sorted_.size()) - 1;  // the source would run past it
    for (int64_t small = std::min(last_, end); small > at; --small) {
      visited_ = small;
      if (sum >= mean_) break;
      sum += RowsAt(small);
      balance_ -= RowsAt(small);
      group.push_back(sorted_[small]);
      if (balance_ < mean_ * later_groups) break;
    }
    if (group.size() > 1) group.pop_back();
    last_ = visited_ + 1;
    return group;
  }

  const std::vector<uint64_t>& rows_;
  const std::vector<uint32_t>& sorted_;
  const size_t group_count_;
  int64_t balance_;
  int64_t mean_;
  const int64_t tolerance_;
  int64_t last_;
  int64_t visited_ = 0;  // outlives a Fill, as the source's loop variable does
  FeatureGroups groups_;
};

// Each feature exactly once, in exactly `group_count` groups.
FeatureGroups Repaired(FeatureGroups groups, const std::vector<uint64_t>& rows,
                       uint32_t group_count) {
  groups.resize(group_count);
  std::vector<bool> held(rows.size());
  std::vector<uint64_t> sums(group_count);
  for (size_t g = 0; g < groups.size(); ++g) {
    std::vector<uint32_t> kept;
    for (const uint32_t feature : groups[g]) {
      if (held[feature]) continue;
      held[feature] = true;
      sums[g] += rows[feature];
      kept.push_back(feature);
    }
    groups[g] = std::move(kept);
  }
  for (uint32_t feature = 0; feature < rows.size(); ++feature) {
    if (held[feature]) continue;
    const size_t least = std::min_element(sums.begin(), sums.end()) - sums.begin();
    sums[least] += rows[feature];
    groups[least].push_back(feature);
  }
  return groups;
}

std::vector<uint32_t> Ascending(const std::vector<uint64_t>& rows) {
  std::vector<uint32_t> order(rows.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return rows[a] < rows[b]; });
  return order;
}

FeatureGroups Runs(const std::vector<uint32_t>& order, uint32_t group_count) {
  const size_t run = std::max<size_t>(1, order.size() / group_count);
  FeatureGroups groups(group_count);
  for (size_t i = 0; i < order.size(); ++i) {
    groups[std::min<size_t>(i / run, group_count - 1)].push_back(order[i]);
  }
  return groups;
}

}  // namespace

FeatureGroups GroupByDifference(const std::vector<uint64_t>& rows, uint32_t groups) {
  if (groups == 1) return Runs(Ascending(std::vector<uint64_t>(rows.size())), 1);
  std::vector<uint32_t> sorted = Ascending(rows);
  std::reverse(sorted.begin(), sorted.end());
  return Repaired(DifferenceRule(rows, sorted, groups).Run(), rows, groups);
}

FeatureGroups GroupAscending(const std::vector<uint64_t>& rows, uint32_t groups) {
  return Runs(Ascending(rows), groups);
}

FeatureGroups GroupShuffled(uint32_t features, uint32_t groups, uint64_t seed) {
  std::vector<uint32_t> order(features);
  std::iota(order.begin(), order.end(), 0);
  // The C++ standard fixes every number of mt19937; numpy seeds it alike, goes from the last item
  // to the second, and draws masked words until one is small enough.
  std::mt19937 words(static_cast<uint32_t>(seed ^ (seed >> 32)));
  for (uint32_t last = features; last-- > 1;) {
    uint32_t mask = last;
    for (int shift = 1; shift < 32; shift *= 2) mask |= mask >> shift;
    uint32_t other = words() & mask;
    while (other > last) other = words() & mask;
    std::swap(order[last], order[other]);
  }
  return Runs(order, groups);
}

}  // namespace hotbed
