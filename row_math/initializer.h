// The first value of a row: a pure function of (table seed, id, column) and the initializer's
// parameters.
//
// No libm, whose bits vary: the inverse normal distribution is M. Wichura's PPND7 ("Algorithm
// AS 241", Applied Statistics 37, 1988; about seven digits) over a logarithm of our own and IEEE
// square roots. The bits are part of the format: rows never updated are stored nowhere.
#ifndef HOTBED_ROW_MATH_INITIALIZER_H_
#define HOTBED_ROW_MATH_INITIALIZER_H_

#include <cstdint>

#include "row_math/half.h"
#include "row_math/isa.h"
#include "row_math/philox.h"
#include "row_math/types.h"

namespace hotbed {
inline namespace HOTBED_ISA {

// Natural logarithm of a normal, positive float, within 2 ulp: x = m * 2^e with m in [sqrt(1/2),
// sqrt(2)), and log m = 2 atanh(s), s = (m - 1) / (m + 1), by its odd series up to s^9.
HOTBED_ROW_FN float LogPositive(float x) {
  const uint32_t bits = FloatBits(x);
  const uint32_t shifted = bits - 0x3f3504f3u;  // sqrt(1/2)
  const int32_t exponent = static_cast<int32_t>(shifted) >> 23;
  const float m = FloatFromBits(bits - (static_cast<uint32_t>(exponent) << 23));
  const float s = (m - 1.0f) / (m + 1.0f);
  const float z = s * s;
  const float series = z * (0.333333333f + z * (0.2f + z * (0.142857143f + z * 0.111111111f)));
  const float log_m = 2.0f * (s + s * series);
  const float e = static_cast<float>(exponent);
  // ln 2 in two pieces, so that the product with a small integer is exact in its upper part.
  return e * 0.693145752f + (e * 1.42860677e-6f + log_m);
}

// z with P(Z < z) = p, for p in (0, 1).
HOTBED_ROW_FN float InverseNormal(float p) {
  const float q = p - 0.5f;
  const float rc = 0.180625f - q * q;
  const float central =
      q * (((59.109374720f * rc + 159.29113202f) * rc + 50.434271938f) * rc + 3.3871327179f) /
      (((67.187563600f * rc + 78.757757664f) * rc + 17.895169469f) * rc + 1.0f);
  const float tail = q < 0.0f ? p : 1.0f - p;
  const float r = __builtin_sqrtf(-LogPositive(tail));
  const float rn = r - 1.6f;
  const float near =
      (((0.17023821103f * rn + 1.3067284816f) * rn + 2.7568153900f) * rn + 1.4234372777f) /
      ((0.12021132975f * rn + 0.73700164250f) * rn + 1.0f);
  const float rf = r - 5.0f;
  const float far =
      (((0.017337203997f * rf + 0.42868294337f) * rf + 3.0812263860f) * rf + 6.6579051150f) /
      ((0.012258202635f * rf + 0.24197894225f) * rf + 1.0f);
  const float magnitude = r <= 5.0f ? near : far;
  const float outer = q < 0.0f ? -magnitude : magnitude;
  const float absolute = q < 0.0f ? -q : q;
  return absolute <= 0.425f ? central : outer;
}

// Uniform in (0, 1), symmetric about 1/2, exact in fp32.
HOTBED_ROW_FN float OpenUnit(uint32_t draw) {
  return (static_cast<float>(static_cast<int32_t>(draw >> 9)) + 0.5f) * 1.1920928955078125e-7f;
}

// Uniform in [0, 1).
HOTBED_ROW_FN float HalfOpenUnit(uint32_t draw) {
  return static_cast<float>(static_cast<int32_t>(draw >> 8)) * 5.9604644775390625e-8f;
}

HOTBED_ROW_FN bool IsZero(InitializerKind kind) {
  return kind == InitializerKind::kZero || kind == InitializerKind::kScaled;
}

HOTBED_ROW_FN float InitialFromDraw(const InitializerParams& params, uint32_t draw) {
  switch (params.kind) {
    case InitializerKind::kScaled:
    case InitializerKind::kZero:
      return 0.0f;
    case InitializerKind::kConstant:
      return params.a;
    case InitializerKind::kUniform: {
      const float value = params.a + HalfOpenUnit(draw) * (params.b - params.a);
      return value < params.b ? value : params.a;  // the sum may round up to b
    }
    case InitializerKind::kNormal:
      return params.a + params.b * InverseNormal(OpenUnit(draw));
    case InitializerKind::kTruncatedNormal: {
      // P(Z < -2) and P(-2 < Z < 2).
      const float z = InverseNormal(0.0227501319f + 0.954499736f * OpenUnit(draw));
      const float bounded = z < -2.0f ? -2.0f : z > 2.0f ? 2.0f : z;
      return params.a + params.b * bounded;
    }
  }
  return 0.0f;
}

// One column of one row: the definition. InitialBlock fills rows in blocks, with the same
// bits.
HOTBED_ROW_FN float InitialValue(const InitializerParams& params, uint64_t seed, uint64_t id,
                                 uint32_t column) {
  if (IsZero(params.kind)) return 0.0f;
  if (params.kind == InitializerKind::kConstant) return params.a;
  return InitialFromDraw(params, RowDraws(seed, id, column / 4).v[column % 4]);
}

// Columns [column, column + kWidth) of a row; column need not be a multiple of 4. The lanes are
// independent, so that it vectorises.
template <uint32_t kWidth>
HOTBED_ROW_FN void InitialBlock(const InitializerParams& params, uint64_t seed, uint64_t id,
                                uint32_t column, float* out) {
  uint32_t draws[kWidth + 4];
  const uint32_t quad = column / 4;
  for (uint32_t q = 0; q < kWidth / 4 + 1; ++q) {
    const PhiloxDraws d = RowDraws(seed, id, quad + q);
    for (uint32_t i = 0; i < 4; ++i) draws[4 * q + i] = d.v[i];
  }
  const uint32_t* from = draws + column % 4;
  switch (params.kind) {
    case InitializerKind::kUniform:
      for (uint32_t i = 0; i < kWidth; ++i) {
        const float value = params.a + HalfOpenUnit(from[i]) * (params.b - params.a);
        out[i] = value < params.b ? value : params.a;
      }
      break;
    case InitializerKind::kNormal:
      for (uint32_t i = 0; i < kWidth; ++i) {
        out[i] = params.a + params.b * InverseNormal(OpenUnit(from[i]));
      }
      break;
    default:
      for (uint32_t i = 0; i < kWidth; ++i) out[i] = InitialFromDraw(params, from[i]);
  }
}

// `dim` columns from `column_first`, as fp32.
HOTBED_ROW_FN void InitialRow(const InitializerParams& params, uint64_t seed, uint64_t id,
                              uint32_t column_first, uint32_t dim, float* out) {
  if (IsZero(params.kind) || params.kind == InitializerKind::kConstant) {
    const float value = IsZero(params.kind) ? 0.0f : params.a;
    for (uint32_t i = 0; i < dim; ++i) out[i] = value;
    return;
  }
  uint32_t done = 0;
  for (; done + 32 <= dim; done += 32) {
    InitialBlock<32>(params, seed, id, column_first + done, out + done);
  }
  for (; done + 8 <= dim; done += 8) {
    InitialBlock<8>(params, seed, id, column_first + done, out + done);
  }
  if (done == dim) return;
  float rest[8];
  InitialBlock<8>(params, seed, id, column_first + done, rest);
  for (uint32_t i = 0; done + i < dim; ++i) out[done + i] = rest[i];
}

// The value before the first update of each element of the optimizer's state vector `vector`, or of
// the row's statistic: initial_accumulator for the sums of the Adagrad kinds and for FTRL's sum of
// squares, else 0.
HOTBED_ROW_FN float FirstStateElement(const OptimizerParams& params, uint32_t vector) {
  const bool sum = params.kind == OptimizerKind::kAdagrad ||
                   params.kind == OptimizerKind::kRowwiseAdagrad ||
                   params.kind == OptimizerKind::kRowwiseAdagradCounter ||
                   (params.kind == OptimizerKind::kFtrl && vector == 1);
  return sum ? params.initial_accumulator : 0.0f;
}

// A row's optimizer state before its first update: StateBytes(params, dim) at `state`.
HOTBED_ROW_CALL void FirstState(const OptimizerParams& params, uint32_t dim, uint8_t* state) {
  const StateLayout layout = LayoutOfState(params);
  const uint32_t scalars = layout.VectorBytes(params.state_type, dim);
  const uint32_t bytes = layout.Bytes(params.state_type, dim);
  for (uint32_t i = 0; i < bytes / 4; ++i) Fp32Codec::Store(state, i, 0.0f);
  for (uint32_t v = 0; v < layout.vectors; ++v) {
    const float first = FirstStateElement(params, v);
    for (uint32_t i = 0; i < dim && first != 0.0f; ++i) {
      params.state_type == StateType::kFp32 ? Fp32Codec::Store(state, v * dim + i, first)
                                            : Bf16Codec::Store(state, v * dim + i, first);
    }
  }
  if (layout.has_statistic) Fp32Codec::Store(state + scalars, 0, FirstStateElement(params, 0));
}

}  // namespace HOTBED_ISA
}  // namespace hotbed

#endif  // HOTBED_ROW_MATH_INITIALIZER_H_
