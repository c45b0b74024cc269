#include "client/rows/row_sums.h"

#define HOTBED_ROW_SUMS_WIDTH 4
#include "client/rows/row_sums_loops.h"

namespace hotbed {

const RowSums& PlainRowSums() { return kRowSums; }

const RowSums& BestRowSums() {
  static const RowSums& best = []() -> const RowSums& {
#if defined(__x86_64__)
    if (internal::kAvx2RowSums != nullptr && __builtin_cpu_supports("avx2")) {
      return *internal::kAvx2RowSums;
    }
#endif
    return kRowSums;
  }();
  return best;
}

}  // namespace hotbed
