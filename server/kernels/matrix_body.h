// The matrix kernels, written once and compiled once per instruction set (matrix_*.cc), as
// kernel_body.h. Vectors are those of the compiler.
//
// The product is blocked after K. Goto and R. van de Geijn, "Anatomy of high-performance matrix
// multiplication" (2008): a block of b is copied into panels of one tile's width, which stay in the
// second-level cache; of a, a few rows into panels of one tile's height, which stay in the first;
// the sums of a tile stay in registers.
#ifndef HOTBED_SERVER_KERNELS_MATRIX_BODY_H_
#define HOTBED_SERVER_KERNELS_MATRIX_BODY_H_

#include <cstdint>

#include "row_math/isa.h"
#include "server/kernels/matrix_kernels.h"

namespace hotbed {
inline namespace HOTBED_ISA {

#if defined(__AVX512F__)
constexpr uint32_t kLanes = 16;
constexpr uint32_t kTileRows = 12;  // 24 registers of sums, 2 of b, 1 of a
#elif defined(__AVX2__)
constexpr uint32_t kLanes = 8;
constexpr uint32_t kTileRows = 6;
#else
constexpr uint32_t kLanes = 4;
constexpr uint32_t kTileRows = 4;
#endif
constexpr uint32_t kTileColumns = 2 * kLanes;
constexpr uint32_t kDepthMax = 256;  // of a block
constexpr uint32_t kColumnsMax = 256;
constexpr uint32_t kRowsMax = 120;  // a multiple of every kTileRows
static_assert(kRowsMax % kTileRows == 0 && kColumnsMax % kTileColumns == 0);
static_assert(kDepthMax * (kRowsMax + kColumnsMax) <= kMatrixScratchFloats);

typedef float Lanes __attribute__((vector_size(4 * kLanes)));
typedef float UnalignedLanes __attribute__((vector_size(4 * kLanes), aligned(4)));
typedef int32_t IntLanes __attribute__((vector_size(4 * kLanes)));

HOTBED_ROW_FN Lanes LoadLanes(const float* from) {
  return *reinterpret_cast<const UnalignedLanes*>(from);
}
HOTBED_ROW_FN void StoreLanes(Lanes lanes, float* to) {
  *reinterpret_cast<UnalignedLanes*>(to) = lanes;
}
HOTBED_ROW_FN Lanes AllLanes(float value) { return Lanes{} + value; }

HOTBED_ROW_FN uint32_t AtMost(uint32_t value, uint32_t limit) {
  return value < limit ? value : limit;
}

// Panels of kTileColumns columns, padded with zeros.
inline void PackB(const MatrixProduct& p, uint32_t k0, uint32_t depth, uint32_t j0,
                  uint32_t columns, float* to) {
  for (uint32_t j = 0; j < columns; j += kTileColumns) {
    const uint32_t width = AtMost(columns - j, kTileColumns);
    const float* from = p.b + p.b_row * k0 + j0 + j;
    for (uint32_t k = 0; k < depth; ++k, from += p.b_row, to += kTileColumns) {
      if (width == kTileColumns) {
        StoreLanes(LoadLanes(from), to);
        StoreLanes(LoadLanes(from + kLanes), to + kLanes);
        continue;
      }
      for (uint32_t i = 0; i < kTileColumns; ++i) to[i] = i < width ? from[i] : 0.0f;
    }
  }
}

// Panels of kTileRows rows, padded with zeros.
inline void PackA(const MatrixProduct& p, uint32_t i0, uint32_t rows, uint32_t k0, uint32_t depth,
                  float* to) {
  for (uint32_t i = 0; i < rows; i += kTileRows, to += kTileRows * depth) {
    const uint32_t height = AtMost(rows - i, kTileRows);
    const float* const from = p.a + p.a_row * (i0 + i) + p.a_column * k0;
    if (height == kTileRows && p.a_row == 1) {
      for (uint32_t k = 0; k < depth; ++k) {
        const float* const column = from + p.a_column * k;
        for (uint32_t r = 0; r < kTileRows; ++r) to[k * kTileRows + r] = column[r];
      }
      continue;
    }
    for (uint32_t r = 0; r < kTileRows; ++r) {
      const float* const row = from + p.a_row * r;
      for (uint32_t k = 0; k < depth; ++k) {
        to[k * kTileRows + r] = r < height ? row[p.a_column * k] : 0.0f;
      }
    }
  }
}

// One tile of c: kTileRows x kTileColumns, of which `height` x `width` exist.
HOTBED_ROW_CALL void MultiplyTile(const float* a, const float* b, uint32_t depth, float* c,
                                  uint64_t c_row, uint32_t height, uint32_t width, bool add) {
  Lanes sums[kTileRows][2] = {};
  for (uint32_t k = 0; k < depth; ++k, a += kTileRows, b += kTileColumns) {
    const Lanes b0 = LoadLanes(b);
    const Lanes b1 = LoadLanes(b + kLanes);
#pragma GCC unroll 12
    for (uint32_t r = 0; r < kTileRows; ++r) {
      const Lanes of_a = AllLanes(a[r]);
      sums[r][0] += of_a * b0;
      sums[r][1] += of_a * b1;
    }
  }
#pragma GCC unroll 12
  for (uint32_t r = 0; r < kTileRows; ++r) {
    if (r >= height) break;
    float* const row = c + c_row * r;
    if (width == kTileColumns) {
      StoreLanes(add ? LoadLanes(row) + sums[r][0] : sums[r][0], row);
      StoreLanes(add ? LoadLanes(row + kLanes) + sums[r][1] : sums[r][1], row + kLanes);
      continue;
    }
    for (uint32_t j = 0; j < width; ++j) {
      const float sum = j < kLanes ? sums[r][0][j] : sums[r][1][j - kLanes];
      row[j] = add ? row[j] + sum : sum;
    }
  }
}

inline void RunMultiply(const MatrixProduct& p) {
  float* const packed_b = p.scratch;
  float* const packed_a = packed_b + kDepthMax * kColumnsMax;
  for (uint32_t j0 = 0; j0 < p.n; j0 += kColumnsMax) {
    const uint32_t columns = AtMost(p.n - j0, kColumnsMax);
    for (uint32_t k0 = 0; k0 < p.k; k0 += kDepthMax) {
      const uint32_t depth = AtMost(p.k - k0, kDepthMax);
      const bool add = p.add || k0 > 0;
      PackB(p, k0, depth, j0, columns, packed_b);
      for (uint32_t i0 = 0; i0 < p.m; i0 += kRowsMax) {
        const uint32_t rows = AtMost(p.m - i0, kRowsMax);
        PackA(p, i0, rows, k0, depth, packed_a);
        for (uint32_t j = 0; j < columns; j += kTileColumns) {
          for (uint32_t i = 0; i < rows; i += kTileRows) {
            MultiplyTile(packed_a + i * depth, packed_b + j * depth, depth,
                         p.c + p.c_row * (i0 + i) + j0 + j, p.c_row, AtMost(rows - i, kTileRows),
                         AtMost(columns - j, kTileColumns), add);
          }
        }
      }
    }
  }
}

// exp(x) to about 1e-7 of its value: 2^n exp(r) with n the nearest integer to x / ln 2, and exp(r)
// by the polynomial of Cephes' expf. Below -87 it is 0, above 88 that of 88.
HOTBED_ROW_FN Lanes Exponential(Lanes x) {
  const Lanes lowest = AllLanes(-87.0f);
  const Lanes highest = AllLanes(88.0f);
  const IntLanes is_zero = x < lowest;
  x = x > highest ? highest : x;
  const Lanes round = AllLanes(12582912.0f);  // 1.5 x 2^23: the sum has no digits behind the point
  const Lanes n = (x * 1.44269504f + round) - round;
  const Lanes r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  Lanes y = AllLanes(1.9875691500e-4f);
  y = y * r + 1.3981999507e-3f;
  y = y * r + 8.3334519073e-3f;
  y = y * r + 4.1665795894e-2f;
  y = y * r + 1.6666665459e-1f;
  y = y * r + 5.0000001201e-1f;
  y = y * r * r + r + 1.0f;
  const IntLanes power = (__builtin_convertvector(n, IntLanes) + 127) << 23;
  const Lanes result = y * reinterpret_cast<Lanes>(power);
  return is_zero ? Lanes{} : result;
}

// Calls visit(first token, count): kLanes tokens at a time, and the rest.
template <typename Visit>
HOTBED_ROW_FN void ForEachLanes(uint32_t tokens, Visit visit) {
  for (uint32_t t = 0; t < tokens; t += kLanes) visit(t, AtMost(tokens - t, kLanes));
}

HOTBED_ROW_FN Lanes LoadSome(const float* from, uint32_t count) {
  if (count == kLanes) return LoadLanes(from);
  Lanes lanes = {};
  for (uint32_t i = 0; i < count; ++i) lanes[i] = from[i];
  return lanes;
}
HOTBED_ROW_FN void StoreSome(Lanes lanes, float* to, uint32_t count) {
  if (count == kLanes) return StoreLanes(lanes, to);
  for (uint32_t i = 0; i < count; ++i) to[i] = lanes[i];
}

inline void RunRaiseMaxima(const LogitBlock& block, float* maxima) {
  ForEachLanes(block.tokens, [&](uint32_t t, uint32_t count) HOTBED_ALWAYS_INLINE {
    Lanes most = LoadSome(maxima + t, count);
    const float* from = block.logits + t;
    for (uint32_t r = 0; r < block.rows; ++r, from += block.tokens) {
      const Lanes logits = LoadSome(from, count);
      most = logits > most ? logits : most;
    }
    StoreSome(most, maxima + t, count);
  });
}

// So many rows are summed in fp32, and such sums in fp64.
constexpr uint32_t kRowsPerSum = 32;

inline void RunAddExponentials(const LogitBlock& block, const float* maxima, double* sums,
                               double* totals) {
  ForEachLanes(block.tokens, [&](uint32_t t, uint32_t count) HOTBED_ALWAYS_INLINE {
    const Lanes most = LoadSome(maxima + t, count);
    for (uint32_t r = 0; r < block.rows; r += kRowsPerSum) {
      const uint32_t limit = AtMost(r + kRowsPerSum, block.rows);
      Lanes sum = {};
      Lanes total = {};
      for (uint32_t i = r; i < limit; ++i) {
        const Lanes logits = LoadSome(block.logits + uint64_t{block.tokens} * i + t, count);
        sum += Exponential(logits - most);
        total += logits;
      }
      for (uint32_t i = 0; i < count; ++i) {
        sums[t + i] += static_cast<double>(sum[i]);
        totals[t + i] += static_cast<double>(total[i]);
      }
    }
  });
}

inline void RunToGradients(const LogitBlock& block, const float* maxima, const float* scales,
                           const float* floors) {
  for (uint32_t r = 0; r < block.rows; ++r) {
    float* const row = block.logits + uint64_t{block.tokens} * r;
    ForEachLanes(block.tokens, [&](uint32_t t, uint32_t count) HOTBED_ALWAYS_INLINE {
      const Lanes scaled = LoadSome(scales + t, count) *
                           Exponential(LoadSome(row + t, count) - LoadSome(maxima + t, count));
      StoreSome(scaled - LoadSome(floors + t, count), row + t, count);
    });
  }
}

}  // namespace HOTBED_ISA
}  // namespace hotbed

#endif  // HOTBED_SERVER_KERNELS_MATRIX_BODY_H_
