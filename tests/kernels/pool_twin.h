// Pooling by the text of row_math/pooling.h, one element after another.
#ifndef HOTBED_TESTS_KERNELS_POOL_TWIN_H_
#define HOTBED_TESTS_KERNELS_POOL_TWIN_H_

#include <cmath>
#include <cstdint>
#include <vector>

#include "row_math/types.h"

namespace hotbed {

struct PooledBag {
  std::vector<float> row;
  std::vector<uint32_t> arg_max;
};

// `weights`: one per row, or empty.
inline PooledBag PoolByHand(RowPooling pooling, uint32_t dim,
                            const std::vector<std::vector<float>>& rows,
                            const std::vector<float>& weights = {}) {
  PooledBag bag{std::vector<float>(dim, 0.0f), std::vector<uint32_t>(dim, 0xffffffffu)};
  for (uint32_t i = 0; i < dim; ++i) {
    for (uint32_t k = 0; k < rows.size(); ++k) {
      const float value = rows[k][i];
      if (pooling == RowPooling::kSum) {
        const float term = weights.empty() ? value : value * weights[k];
        bag.row[i] = bag.row[i] + term;
        continue;
      }
      const bool wins =
          k == 0 || (std::isnan(value) ? !std::isnan(bag.row[i]) : value > bag.row[i]);
      if (!wins) continue;
      bag.row[i] = value;
      bag.arg_max[i] = k;
    }
  }
  return bag;
}

}  // namespace hotbed

#endif  // HOTBED_TESTS_KERNELS_POOL_TWIN_H_
