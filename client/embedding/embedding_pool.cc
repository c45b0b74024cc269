#include "client/embedding/embedding_pool.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "client/batch/dedupe.h"
#include "client/rows/row_sums.h"

namespace hotbed {
namespace {

constexpr uint64_t kRowLookahead = 32;  // rows

// A bag without its skipped ids.
struct Bag {
  std::vector<const float*> rows;
  std::vector<float> weights;
  std::vector<uint32_t> positions;  // in the caller's bag
};

void Collect(const BoundFeature& bound, const IndexedRows& from, uint64_t begin, uint64_t end,
             Bag* bag) {
  const uint64_t dim = bound.dim();
  bag->rows.clear();
  bag->weights.clear();
  bag->positions.clear();
  for (uint64_t i = begin; i < end; ++i) {
    const uint64_t ahead = i + kRowLookahead;
    if (ahead < bound.ids.size() && from.index[ahead] != kNoIndex) {
      const float* const row = from.rows + dim * from.index[ahead];
      for (uint64_t c = 0; c < dim; c += 16) __builtin_prefetch(row + c, 0, 2);
    }
    if (bound.skips(i)) continue;
    bag->rows.push_back(from.rows + dim * from.index[i]);
    if (bound.weights != nullptr) bag->weights.push_back(bound.weights[i]);
    bag->positions.push_back(static_cast<uint32_t>(i - begin));
  }
}

void MaxOf(const Bag& bag, uint32_t dim, float* out, uint32_t* arg_max) {
  if (bag.rows.empty()) {
    std::memset(out, 0, 4ull * dim);
    std::fill_n(arg_max, dim, kNoIndex);
    return;
  }
  const uint32_t n = static_cast<uint32_t>(bag.rows.size());
  BestRowSums().max(bag.rows.data(), n, dim, out, arg_max);
  if (bag.positions.back() == n - 1) return;  // no id was skipped
  for (uint32_t c = 0; c < dim; ++c) arg_max[c] = bag.positions[arg_max[c]];
}

}  // namespace

void PoolBags(const BoundFeature& bound, const IndexedRows& from, float* out, uint64_t stride,
              uint32_t* arg_max) {
  const RowSums& sums = BestRowSums();
  const uint32_t dim = bound.dim();
  const Pooling pooling = bound.feature->pooling;
  thread_local Bag bag;
  uint64_t begin = 0;
  for (uint32_t length : bound.lengths) {
    const uint64_t end = begin + length;
    Collect(bound, from, begin, end, &bag);
    if (pooling == Pooling::kMax) {
      MaxOf(bag, dim, out, arg_max);
      arg_max += dim;
    } else {
      const float divisor = pooling == Pooling::kMean ? bound.Divisor(begin, end) : 1.0f;
      const uint32_t n = divisor == 0 ? 0 : static_cast<uint32_t>(bag.rows.size());
      sums.sum(bag.rows.data(), bound.weights != nullptr ? bag.weights.data() : nullptr, n, dim,
               out);
      if (divisor != 1.0f && n != 0) sums.divide(divisor, dim, out);
    }
    out += stride;
    begin = end;
  }
}

void DivideBags(const BoundFeature& bound, float* out, uint64_t stride) {
  if (bound.feature->pooling != Pooling::kMean) return;
  uint64_t begin = 0;
  for (uint32_t length : bound.lengths) {
    const float divisor = bound.Divisor(begin, begin + length);
    if (divisor == 0) {
      std::memset(out, 0, 4ull * bound.dim());
    } else if (divisor != 1.0f) {
      BestRowSums().divide(divisor, bound.dim(), out);
    }
    out += stride;
    begin += length;
  }
}

}  // namespace hotbed
