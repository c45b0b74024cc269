// A row and how near it is to a vector (row_math/nearness.h).
#ifndef HOTBED_COMMON_SCORED_ROW_H_
#define HOTBED_COMMON_SCORED_ROW_H_

#include <cstdint>

namespace hotbed {

struct ScoredRow {
  uint64_t id = 0;
  double score = 0;
  friend bool operator==(const ScoredRow&, const ScoredRow&) = default;
};

}  // namespace hotbed

#endif  // HOTBED_COMMON_SCORED_ROW_H_
