// Rows on the wire: fp32, fp16, bf16, and int8 with one scale and bias per row.
//
// int8 is FBGEMM's fused 8-bit row to the byte (FloatOrHalfToFused8BitRowwiseQuantizedSBFloat of
// its QuantUtils.cc, all in fp32): dim bytes q, then fp32 scale, then fp32 bias, where bias = the
// first smallest element, scale = (largest - smallest) / 255, q = (value - bias) * (255 / (largest
// - smallest + 1e-8)) rounded to nearest even. A constant row has scale 0 and all q = 0.
//
// Readers of the wire compute q * scale + bias, rounded twice, so that every build gives the same
// bits (upstream rounds once: row_math/row_formats.h). The result is within scale / 2 + 1e-8 and
// rounding of the written value.
//
// A row that holds a NaN or an infinity gets q = 0, scale 0 and a NaN bias, so that every element
// reads as NaN: a broken row is never disguised. A row of finite elements whose range overflows has
// upstream's infinite scale, and reads as NaN too.
#ifndef HOTBED_ROW_MATH_QUANTIZE_H_
#define HOTBED_ROW_MATH_QUANTIZE_H_

#include <cstdint>

#include "row_math/half.h"
#include "row_math/isa.h"
#include "row_math/types.h"

namespace hotbed {
inline namespace HOTBED_ISA {

// The least and the greatest element of a row (0 rather than -0), and whether all are finite.
struct RowRange {
  float low;
  float high;
  bool finite;
};

template <typename Weight>
HOTBED_ROW_FN RowRange RangeOfRow(const uint8_t* weights, uint32_t dim) {
  const float first = Weight::Load(weights, 0);
  // One lane per element, which vectorises; neither result depends on the order.
  float low[kBlockElements], high[kBlockElements], block[kBlockElements];
  uint32_t magnitude[kBlockElements];
  for (uint32_t l = 0; l < kBlockElements; ++l) {
    low[l] = first;
    high[l] = first;
    block[l] = first;
    magnitude[l] = 0;
  }
  for (uint32_t at = 0; at < dim; at += kBlockElements) {
    if (dim - at >= kBlockElements) {
      BlockCodec<Weight>::Load(weights + uint64_t{Weight::kBytes} * at, block);
    } else {
      for (uint32_t l = 0; l < dim - at; ++l) block[l] = Weight::Load(weights, at + l);
    }
    HOTBED_INDEPENDENT
    for (uint32_t l = 0; l < kBlockElements; ++l) {
      const float value = block[l];
      const uint32_t bits = FloatBits(value) & 0x7fffffffu;
      low[l] = value < low[l] ? value : low[l];
      high[l] = value > high[l] ? value : high[l];
      magnitude[l] = bits > magnitude[l] ? bits : magnitude[l];
    }
  }
  for (uint32_t l = 1; l < kBlockElements; ++l) {
    low[0] = low[l] < low[0] ? low[l] : low[0];
    high[0] = high[l] > high[0] ? high[l] : high[0];
    magnitude[0] = magnitude[l] > magnitude[0] ? magnitude[l] : magnitude[0];
  }
  return {low[0] + 0.0f, high[0] + 0.0f, magnitude[0] < 0x7f800000u};
}

// The smallest element as the row has it: the first of zeros of both signs, as std::min_element
// finds it. `low` comes from RangeOfRow, which ignores the sign of zero.
template <typename Weight>
HOTBED_ROW_FN float FirstSmallest(const uint8_t* weights, uint32_t dim, float low) {
  if (low != 0.0f) return low;
  for (uint32_t i = 0; i < dim; ++i) {
    const float value = Weight::Load(weights, i);
    if (value == 0.0f) return value;
  }
  return low;
}

// Code of one element: `low` and `inverse` as below, `usable` where both are finite.
HOTBED_ROW_FN uint8_t CodeOfElement(float value, float low, float inverse, bool usable) {
  const float scaled = usable ? (value - low) * inverse : 0.0f;
  const float bounded = scaled < 0.0f ? 0.0f : scaled > 255.0f ? 255.0f : scaled;
  // Adding 2^23 rounds to an integer, to nearest even.
  return static_cast<uint8_t>(FloatBits(bounded + 8388608.0f));
}

// The parameters of a row's codes.
struct CodeScale {
  float low;
  float inverse;
  float scale;
  bool usable;
};
HOTBED_ROW_FN CodeScale CodeScaleOf(const RowRange& extremes) {
  const float range = extremes.finite ? extremes.high - extremes.low : 0.0f;
  // An infinite range has inverse 0, and infinity times 0 must not be rounded to anything.
  const bool usable = extremes.finite && (FloatBits(range) & 0x7f800000u) != 0x7f800000u;
  return {extremes.low, 255.0f / (range + 1e-8f), range / 255.0f, usable};
}
constexpr uint32_t kNoBias = 0x7fc00000u;  // NaN: the bias of a row that is not finite

// Writes the dim bytes q and returns scale and bias. False: an element is not finite.
template <typename Weight>
HOTBED_ROW_FN bool QuantizeRow8(const uint8_t* weights, uint32_t dim, uint8_t* out, float* scale,
                                float* bias) {
  const RowRange extremes = RangeOfRow<Weight>(weights, dim);
  const CodeScale codes = CodeScaleOf(extremes);
  *scale = codes.scale;
  *bias =
      extremes.finite ? FirstSmallest<Weight>(weights, dim, extremes.low) : FloatFromBits(kNoBias);
  float block[kBlockElements] = {};
  for (uint32_t at = 0; at < dim; at += kBlockElements) {
    const bool whole = dim - at >= kBlockElements;
    if (whole) {
      BlockCodec<Weight>::Load(weights + uint64_t{Weight::kBytes} * at, block);
    } else {
      for (uint32_t l = 0; l < dim - at; ++l) block[l] = Weight::Load(weights, at + l);
    }
    uint8_t q[kBlockElements];
    HOTBED_INDEPENDENT
    for (uint32_t l = 0; l < kBlockElements; ++l) {
      q[l] = CodeOfElement(block[l], codes.low, codes.inverse, codes.usable);
    }
    if (whole) {
      __builtin_memcpy(out + at, q, kBlockElements);
    } else {
      for (uint32_t l = 0; l < dim - at; ++l) out[at + l] = q[l];
    }
  }
  return extremes.finite;
}

// Reads stored weights of type Weight, writes dim + 8 bytes. False: an element is not finite.
template <typename Weight>
HOTBED_ROW_FN bool QuantizeRow(const uint8_t* weights, uint32_t dim, uint8_t* out) {
  float scale, bias;
  const bool finite = QuantizeRow8<Weight>(weights, dim, out, &scale, &bias);
  Fp32Codec::Store(out + dim, 0, scale);
  Fp32Codec::Store(out + dim, 1, bias);
  return finite;
}

// Reads dim + 8 bytes, writes dim floats.
HOTBED_ROW_FN void DequantizeRow(const uint8_t* row, uint32_t dim, float* out) {
  const float scale = Fp32Codec::Load(row + dim, 0);
  const float bias = Fp32Codec::Load(row + dim, 1);
  HOTBED_INDEPENDENT
  for (uint32_t i = 0; i < dim; ++i) out[i] = static_cast<float>(row[i]) * scale + bias;
}

// A row stored as Weight to the wire type.
template <typename Weight, typename To>
HOTBED_ROW_FN void ConvertRow(const uint8_t* weights, uint32_t dim, uint8_t* out) {
  float block[kBlockElements];
  for (; dim >= kBlockElements; dim -= kBlockElements) {
    BlockCodec<Weight>::Load(weights, block);
    BlockCodec<To>::Store(out, block);
    weights += Weight::kBytes * kBlockElements;
    out += To::kBytes * kBlockElements;
  }
  for (uint32_t i = 0; i < dim; ++i) To::Store(out, i, Weight::Load(weights, i));
}

// A wire row of any type to fp32, for clients.
HOTBED_ROW_FN void DecodeRow(RowType type, const uint8_t* row, uint32_t dim, float* out) {
  switch (type) {
    case RowType::kFp32:
      for (uint32_t i = 0; i < dim; ++i) out[i] = Fp32Codec::Load(row, i);
      return;
    case RowType::kFp16:
      for (uint32_t i = 0; i < dim; ++i) out[i] = Fp16Codec::Load(row, i);
      return;
    case RowType::kBf16:
      for (uint32_t i = 0; i < dim; ++i) out[i] = Bf16Codec::Load(row, i);
      return;
    case RowType::kInt8:
      DequantizeRow(row, dim, out);
      return;
  }
}

}  // namespace HOTBED_ISA
}  // namespace hotbed

#endif  // HOTBED_ROW_MATH_QUANTIZE_H_
