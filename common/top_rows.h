// The k best of rows that are offered with scores, in an order that knows no chance: by score, then
// by id, smaller ids first. A score that is no number comes after all others. An id that is offered
// again while it is among the k counts once, with its first score. Thread-compatible.
#ifndef HOTBED_COMMON_TOP_ROWS_H_
#define HOTBED_COMMON_TOP_ROWS_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "common/scored_row.h"

namespace hotbed {

// Whether `a` comes before `b`.
bool ScoresBefore(const ScoredRow& a, const ScoredRow& b, bool smaller_first);

class TopRows {
 public:
  // `k` is at least 1.
  TopRows(uint32_t k, bool smaller_first);

  void Offer(const ScoredRow& row);
  // Whether an offer of `row` would change anything.
  bool Wants(const ScoredRow& row) const;
  // No row with a worse score can come in. No number while any row can.
  double floor() const { return floor_; }
  uint32_t k() const { return k_; }
  // The rows in order; none are left.
  std::vector<ScoredRow> Take();

 private:
  uint32_t k_;
  bool smaller_first_;
  double floor_;
  std::vector<ScoredRow> rows_;  // a heap, the last in order at its top
  absl::flat_hash_set<uint64_t> ids_;
};

}  // namespace hotbed

#endif  // HOTBED_COMMON_TOP_ROWS_H_
