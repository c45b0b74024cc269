// Sums, maxima and norms of scattered rows of floats, for pooling and for sums of gradients. The
// scalar order is the contract, so that every instruction set gives the same bits: elements are
// independent, rows are taken in the order given, and a product is rounded before it is added.
// Thread-safe; pointers must be aligned to floats and no further.
#ifndef HOTBED_CLIENT_ROWS_ROW_SUMS_H_
#define HOTBED_CLIENT_ROWS_ROW_SUMS_H_

#include <cstdint>

namespace hotbed {

struct RowSums {
  // out = c[0] * rows[0] + c[1] * rows[1] + ..., from the left; c null: all 1. n 0: zeros. `out`
  // overlaps no row.
  void (*sum)(const float* const* rows, const float* c, uint32_t n, uint32_t dim, float* out);
  // out[i] = the largest rows[k][i], arg[i] = its k, the first of equals. The first NaN is larger
  // than everything. n > 0.
  void (*max)(const float* const* rows, uint32_t n, uint32_t dim, float* out, uint32_t* arg);
  // sum[i] += c * row[i] where arg[i] == position.
  void (*add_where)(const float* row, const uint32_t* arg, uint32_t position, float c, uint32_t dim,
                    float* sum);
  // out = c * row; `out` may be `row`.
  void (*scale)(const float* row, float c, uint32_t dim, float* out);
  // row /= c, c not 0.
  void (*divide)(float c, uint32_t dim, float* row);
  // Sum of squares in double precision: eight lanes (lane j takes the elements j, j + 8, ...), then
  // ((0 + 4) + (2 + 6)) + ((1 + 5) + (3 + 7)).
  double (*squares)(const float* row, uint32_t dim);
};

const RowSums& PlainRowSums();
const RowSums& BestRowSums();  // of this processor

namespace internal {
// Null where the build has no AVX2.
extern const RowSums* const kAvx2RowSums;
}  // namespace internal

}  // namespace hotbed

#endif  // HOTBED_CLIENT_ROWS_ROW_SUMS_H_
