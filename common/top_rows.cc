#include "common/top_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "common/check.h"

namespace hotbed {
namespace {

constexpr double kNoFloor = std::numeric_limits<double>::quiet_NaN();

}  // namespace

bool ScoresBefore(const ScoredRow& a, const ScoredRow& b, bool smaller_first) {
  const bool a_none = std::isnan(a.score), b_none = std::isnan(b.score);
  if (a_none != b_none) return b_none;
  if (!a_none && a.score != b.score) return (a.score < b.score) == smaller_first;
  return a.id < b.id;
}

TopRows::TopRows(uint32_t k, bool smaller_first)
    : k_(k), smaller_first_(smaller_first), floor_(kNoFloor) {
  HOTBED_CHECK(k > 0);
}

bool TopRows::Wants(const ScoredRow& row) const {
  const bool full = rows_.size() == k_;
  if (full && !ScoresBefore(row, rows_.front(), smaller_first_)) return false;
  return !ids_.contains(row.id);
}

void TopRows::Offer(const ScoredRow& row) {
  if (!Wants(row)) return;
  const auto before = [this](const ScoredRow& a, const ScoredRow& b) {
    return ScoresBefore(a, b, smaller_first_);
  };
  ids_.insert(row.id);
  if (rows_.size() == k_) {
    std::pop_heap(rows_.begin(), rows_.end(), before);
    ids_.erase(rows_.back().id);
    rows_.pop_back();
  }
  rows_.push_back(row);
  std::push_heap(rows_.begin(), rows_.end(), before);
  if (rows_.size() == k_) floor_ = rows_.front().score;
}

std::vector<ScoredRow> TopRows::Take() {
  std::vector<ScoredRow> rows = std::exchange(rows_, {});
  ids_.clear();
  floor_ = kNoFloor;
  std::sort(rows.begin(), rows.end(), [this](const ScoredRow& a, const ScoredRow& b) {
    return ScoresBefore(a, b, smaller_first_);
  });
  return rows;
}

}  // namespace hotbed
