// The loops of row_sums.h, for each source that compiles them for an instruction set of its own.
// All is in an unnamed namespace, so that no two of them are taken for one function. The includer
// defines HOTBED_ROW_SUMS_WIDTH: floats in a register.
#ifndef HOTBED_CLIENT_ROWS_ROW_SUMS_LOOPS_H_
#define HOTBED_CLIENT_ROWS_ROW_SUMS_LOOPS_H_

#include <cstdint>

#include "client/rows/row_sums.h"

namespace hotbed {
namespace {

constexpr uint32_t kWidth = HOTBED_ROW_SUMS_WIDTH;
typedef float FloatVector __attribute__((vector_size(4 * HOTBED_ROW_SUMS_WIDTH)));
typedef int32_t IntVector __attribute__((vector_size(4 * HOTBED_ROW_SUMS_WIDTH)));

template <typename Vector, typename Element>
inline void Load(const Element* from, Vector* to) {
  __builtin_memcpy(to, from, sizeof(Vector));
}
template <typename Vector, typename Element>
inline void Store(const Vector& from, Element* to) {
  __builtin_memcpy(to, &from, sizeof(Vector));
}

// kVectors registers of columns, over all rows: the sums never leave the registers.
template <bool kScaled, int kVectors>
inline void SumBlock(const float* const* rows, const float* c, uint32_t n, uint32_t column,
                     float* out) {
  FloatVector sum[kVectors];
#pragma GCC unroll 16
  for (int v = 0; v < kVectors; ++v) {
    Load(rows[0] + column + v * kWidth, &sum[v]);
    if (kScaled) sum[v] = sum[v] * c[0];
  }
  for (uint32_t k = 1; k < n; ++k) {
    const float* const row = rows[k] + column;
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      FloatVector x;
      Load(row + v * kWidth, &x);
      if (kScaled) x = x * c[k];
      sum[v] = sum[v] + x;
    }
  }
#pragma GCC unroll 16
  for (int v = 0; v < kVectors; ++v) Store(sum[v], out + column + v * kWidth);
}

template <bool kScaled>
void SumOf(const float* const* rows, const float* c, uint32_t n, uint32_t dim, float* out) {
  uint32_t i = 0;
  for (; i + 8 * kWidth <= dim; i += 8 * kWidth) SumBlock<kScaled, 8>(rows, c, n, i, out);
  for (; i + 4 * kWidth <= dim; i += 4 * kWidth) SumBlock<kScaled, 4>(rows, c, n, i, out);
  for (; i + kWidth <= dim; i += kWidth) SumBlock<kScaled, 1>(rows, c, n, i, out);
  for (; i < dim; ++i) {
    float sum = kScaled ? rows[0][i] * c[0] : rows[0][i];
    for (uint32_t k = 1; k < n; ++k) {
      const float x = kScaled ? rows[k][i] * c[k] : rows[k][i];
      sum = sum + x;
    }
    out[i] = sum;
  }
}

void Sum(const float* const* rows, const float* c, uint32_t n, uint32_t dim, float* out) {
  if (n == 0) {
    __builtin_memset(out, 0, 4ull * dim);
  } else if (c == nullptr) {
    SumOf<false>(rows, c, n, dim, out);
  } else {
    SumOf<true>(rows, c, n, dim, out);
  }
}

template <int kVectors>
inline void MaxBlock(const float* const* rows, uint32_t n, uint32_t column, float* out,
                     uint32_t* arg) {
  FloatVector best[kVectors];
  IntVector from[kVectors] = {};
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) Load(rows[0] + column + v * kWidth, &best[v]);
  for (uint32_t k = 1; k < n; ++k) {
    const IntVector index = IntVector{} + static_cast<int32_t>(k);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      FloatVector x;
      Load(rows[k] + column + v * kWidth, &x);
      // Larger, or the first that is not a number.
      const IntVector wins = (x > best[v]) | ((x != x) & (best[v] == best[v]));
      best[v] = wins ? x : best[v];
      from[v] = wins ? index : from[v];
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    Store(best[v], out + column + v * kWidth);
    Store(from[v], arg + column + v * kWidth);
  }
}

void Max(const float* const* rows, uint32_t n, uint32_t dim, float* out, uint32_t* arg) {
  uint32_t i = 0;
  for (; i + 4 * kWidth <= dim; i += 4 * kWidth) MaxBlock<4>(rows, n, i, out, arg);
  for (; i + kWidth <= dim; i += kWidth) MaxBlock<1>(rows, n, i, out, arg);
  for (; i < dim; ++i) {
    float best = rows[0][i];
    uint32_t from = 0;
    for (uint32_t k = 1; k < n; ++k) {
      const float x = rows[k][i];
      if (x > best || (x != x && best == best)) {
        best = x;
        from = k;
      }
    }
    out[i] = best;
    arg[i] = from;
  }
}

void AddWhere(const float* row, const uint32_t* arg, uint32_t position, float c, uint32_t dim,
              float* sum) {
  for (uint32_t i = 0; i < dim; ++i) {
    const float x = row[i] * c;
    sum[i] = arg[i] == position ? sum[i] + x : sum[i];
  }
}

void Scale(const float* row, float c, uint32_t dim, float* out) {
  for (uint32_t i = 0; i < dim; ++i) out[i] = row[i] * c;
}

void Divide(float c, uint32_t dim, float* row) {
  for (uint32_t i = 0; i < dim; ++i) row[i] = row[i] / c;
}

double Squares(const float* row, uint32_t dim) {
  double lane[8] = {};
  uint32_t i = 0;
  for (; i + 8 <= dim; i += 8) {
    for (uint32_t j = 0; j < 8; ++j) {
      const double x = row[i + j];
      lane[j] = lane[j] + x * x;
    }
  }
  for (; i < dim; ++i) {
    const double x = row[i];
    lane[i % 8] = lane[i % 8] + x * x;
  }
  return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

constexpr RowSums kRowSums = {Sum, Max, AddWhere, Scale, Divide, Squares};

}  // namespace
}  // namespace hotbed

#endif  // HOTBED_CLIENT_ROWS_ROW_SUMS_LOOPS_H_
