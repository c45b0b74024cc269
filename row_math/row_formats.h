// Rows in the formats of other systems, to the byte: for export to inference and for reading
// exported rows back.
//
//   kind        bytes of a row           layout
//   kFp32       4 dim                    IEEE binary32, little-endian, as all below
//   kFp16       2 dim                    IEEE binary16, to nearest even; overflow is infinity
//   kBf16       2 dim                    upper half of binary32, to nearest even
//   kFused8Bit  dim + 8                  u8[dim], fp32 scale, fp32 bias (row_math/quantize.h)
//   kFused4Bit  ceil(dim / 2) + 4        4-bit codes, low half first; fp16 scale, fp16 bias
//   kFused2Bit  ceil(dim / 4) + 4        2-bit codes, lowest bits first; fp16 scale, fp16 bias
//   kTbeInt8    dim + 4                  fp16 scale, fp16 bias, then kFused8Bit's codes
//   kTbeInt4    ceil(dim / 2) + 4        fp16 scale, fp16 bias, then kFused4Bit's codes
//   kTbeInt2    ceil(dim / 4) + 4        fp16 scale, fp16 bias, then kFused2Bit's codes
//   kFp8        dim                      1 sign, e exponent, 7 - e mantissa bits; no scale
//   kNfp8       dim                      E4M3 as GPUs have it: bias 7, NaN is 7f, largest 448
//
// Rounded up to `alignment`; the bytes that no element uses are zero. A constant row's 4- and 2-bit
// scale may be negative and subnormal (the bias was rounded up to fp16); readers must honour it.
//
// Sources: FBGEMM's src/QuantUtils.cc (FloatOrHalfToFused{8BitRowwiseQuantizedSBFloat,
// NBitRowwiseQuantizedSBHalf}Ref), include/fbgemm_gpu/quantize_ops_utils.h (float_to_hfp8,
// hfp8_to_float), tbe/utils/quantize.py (quantize_embs) and
// split_table_batched_embeddings_ops_inference.py (rounded_row_size_in_bytes, reverse_qparam).
// Kinds have numbers of their own: upstream's two integer codes for its formats contradict each
// other (NFP8 is 8 in one, 9 in the other).
//
// Pure functions. Rows are dim >= 1 elements, buffers need no alignment and do not overlap.
#ifndef HOTBED_ROW_MATH_ROW_FORMATS_H_
#define HOTBED_ROW_MATH_ROW_FORMATS_H_

#include <cstdint>

#include "row_math/half.h"
#include "row_math/isa.h"
#include "row_math/quantize.h"

namespace hotbed {

enum class RowFormatKind : uint8_t {
  kFp32 = 0,
  kFp16 = 1,
  kBf16 = 2,
  kFused8Bit = 3,
  kFused4Bit = 4,
  kFused2Bit = 5,
  kTbeInt8 = 6,
  kTbeInt4 = 7,
  kTbeInt2 = 8,
  kFp8 = 9,
  kNfp8 = 10,
};

struct RowFormat {
  RowFormatKind kind = RowFormatKind::kFp32;
  uint8_t alignment = 1;  // of a row's bytes: 1, 2, 4, ... 128 (upstream: 16 on GPUs, else 1)
  bool parameters_last = false;  // kTbe*: scale and bias behind the codes ("reverse_qparam")
  uint8_t exponent_bits = 4;     // kFp8: [2, 6]
  uint8_t exponent_bias = 7;     // kFp8: [0, 126]
};

inline namespace HOTBED_ISA {

// Null, or the error, with the field's name and range.
HOTBED_ROW_FN const char* RowFormatError(const RowFormat& format) {
  if (static_cast<uint8_t>(format.kind) > static_cast<uint8_t>(RowFormatKind::kNfp8)) {
    return "kind is none of the row formats 0 to 10";
  }
  if (format.alignment == 0 || format.alignment > 128 ||
      (format.alignment & (format.alignment - 1)) != 0) {
    return "alignment must be a power of two from 1 to 128 bytes";
  }
  if (format.exponent_bits < 2 || format.exponent_bits > 6) {
    return "exponent_bits must be 2 to 6";
  }
  if (format.exponent_bias > 126) return "exponent_bias must be 0 to 126";
  return nullptr;
}

// Bits of a code, 0 for the kinds without codes.
HOTBED_ROW_FN constexpr uint32_t CodeBits(RowFormatKind kind) {
  switch (kind) {
    case RowFormatKind::kFused8Bit:
    case RowFormatKind::kTbeInt8:
      return 8;
    case RowFormatKind::kFused4Bit:
    case RowFormatKind::kTbeInt4:
      return 4;
    case RowFormatKind::kFused2Bit:
    case RowFormatKind::kTbeInt2:
      return 2;
    default:
      return 0;
  }
}

HOTBED_ROW_FN constexpr uint32_t CodeBytes(uint32_t bits, uint32_t dim) {
  return bits == 8 ? dim : bits == 4 ? dim / 2 + dim % 2 : dim / 4 + (dim % 4 != 0);
}

// Bytes of one row, padding included.
HOTBED_ROW_FN uint64_t RowFormatBytes(const RowFormat& format, uint32_t dim) {
  const uint32_t bits = CodeBits(format.kind);
  uint64_t bytes = 0;
  if (bits != 0) {
    bytes = uint64_t{CodeBytes(bits, dim)} + (format.kind == RowFormatKind::kFused8Bit ? 8 : 4);
  } else if (format.kind == RowFormatKind::kFp32) {
    bytes = 4ull * dim;
  } else if (format.kind == RowFormatKind::kFp8 || format.kind == RowFormatKind::kNfp8) {
    bytes = dim;
  } else {
    bytes = 2ull * dim;
  }
  const uint64_t mask = uint64_t{format.alignment} - 1;
  return (bytes + mask) & ~mask;
}

HOTBED_ROW_FN bool IsFinite(float value) { return (FloatBits(value) & 0x7f800000u) != 0x7f800000u; }

// 4- or 2-bit codes with the fp16 bits of scale and bias. The smallest element is rounded to fp16
// first and the range taken from there, so that the bias that readers see is the one that codes
// were made with; rounded up, it leaves a constant row a small negative range. False where the row
// cannot be read back as finite numbers.
template <uint32_t kBits, typename Weight>
HOTBED_ROW_FN bool QuantizeRowNBit(const uint8_t* weights, uint32_t dim, uint8_t* codes,
                                   uint16_t* scale_bits, uint16_t* bias_bits) {
  constexpr float kCodeMax = static_cast<float>((1u << kBits) - 1);
  constexpr uint32_t kPerByte = 8 / kBits;
  for (uint32_t b = 0; b < CodeBytes(kBits, dim); ++b) codes[b] = 0;
  const RowRange extremes = RangeOfRow<Weight>(weights, dim);
  if (!extremes.finite) {
    *scale_bits = 0x3c00;
    *bias_bits = 0x7e00;
    return false;
  }
  *bias_bits = FloatToFp16(FirstSmallest<Weight>(weights, dim, extremes.low));
  const float low = Fp16ToFloat(*bias_bits);
  const float range = extremes.high - low;
  *scale_bits = FloatToFp16(range == 0.0f ? 1.0f : range / kCodeMax);
  // Too small for fp16: any scale will do. (Upstream's guard against an infinite inverse never
  // acts: the smallest fp16 has an inverse of 2^24.)
  if ((*scale_bits & 0x7fffu) == 0) *scale_bits = 0x3c00;
  const float scale = Fp16ToFloat(*scale_bits);
  const float inverse = 1.0f / scale;
  for (uint32_t i = 0; i < dim; ++i) {
    const float scaled = (Weight::Load(weights, i) - low) * inverse;
    // Written so that a NaN (a bias or a scale beyond fp16) gives code 0.
    const float bounded = scaled > 0.0f ? (scaled < kCodeMax ? scaled : kCodeMax) : 0.0f;
    const uint32_t code = FloatBits(bounded + 8388608.0f) & ((1u << kBits) - 1);
    codes[i / kPerByte] = static_cast<uint8_t>(codes[i / kPerByte] | code << i % kPerByte * kBits);
  }
  return IsFinite(scale) && IsFinite(low);
}

// Upstream's largest number of an FP8 layout: 2^(2^e - 2 - bias) * (2 - 2^(e - 7)).
HOTBED_ROW_FN float Fp8Max(uint32_t exponent_bits, uint32_t exponent_bias) {
  const uint32_t exponent = 127 + (1u << exponent_bits) - 2 - exponent_bias;
  const uint32_t mantissa = ((1u << (7 - exponent_bits)) - 1) << (16 + exponent_bits);
  return FloatFromBits((exponent << 23) | mantissa);
}

// To nearest even by adding a power of two whose ulp is the code's; beyond `max` the code of `max`
// (which is also what a NaN gets: the layout has none). Subnormal codes are kept.
HOTBED_ROW_FN uint8_t FloatToFp8(float value, uint32_t exponent_bits, uint32_t exponent_bias,
                                 float max) {
  const uint32_t mantissa_bits = 7 - exponent_bits;
  const uint32_t sign = (FloatBits(value) >> 24) & 0x80u;
  float magnitude = FloatFromBits(FloatBits(value) & 0x7fffffffu);
  magnitude = magnitude < max ? magnitude : max;
  const float smallest_normal = FloatFromBits((128 - exponent_bias) << 23);
  if (magnitude >= smallest_normal) {
    const float bouncer =
        FloatFromBits((FloatBits(magnitude) & 0xff800000u) + ((23 - mantissa_bits) << 23));
    const float rounded = (bouncer + magnitude) - bouncer;
    const uint32_t rebased = (FloatBits(rounded) - ((127 - exponent_bias) << 23))
                             << (8 - exponent_bits);
    return static_cast<uint8_t>((rebased >> 24) | sign);
  }
  const float bouncer = FloatFromBits((151 - exponent_bias - mantissa_bits) << 23);
  return static_cast<uint8_t>((FloatBits(bouncer + magnitude) & 0xffu) | sign);
}

// All 256 codes are numbers, those of the highest exponent too, which no encoder writes.
HOTBED_ROW_FN float Fp8ToFloat(uint8_t code, uint32_t exponent_bits, uint32_t exponent_bias) {
  const float unscaled = FloatFromBits(static_cast<uint32_t>(code & 0x7fu) << (16 + exponent_bits));
  const float value = unscaled * FloatFromBits((254 - exponent_bias) << 23);
  return FloatFromBits(FloatBits(value) | (static_cast<uint32_t>(code & 0x80u) << 24));
}

// As the conversion instruction with saturation: beyond 448, infinity too, is 448; any NaN is 7f.
HOTBED_ROW_FN uint8_t FloatToNfp8(float value) {
  if ((FloatBits(value) & 0x7fffffffu) > 0x7f800000u) return 0x7f;
  return FloatToFp8(value, 4, 7, 448.0f);
}

HOTBED_ROW_FN float Nfp8ToFloat(uint8_t code) {
  if ((code & 0x7fu) == 0x7fu) return FloatFromBits(0x7fc00000u);
  return Fp8ToFloat(code, 4, 7);
}

// Codes and their fp16 parameters, in front or behind.
template <uint32_t kBits, typename Weight>
HOTBED_ROW_FN bool EncodeHalfParameters(const uint8_t* weights, uint32_t dim, bool parameters_last,
                                        uint8_t* out) {
  uint8_t* const codes = parameters_last ? out : out + 4;
  uint8_t* const parameters = parameters_last ? out + CodeBytes(kBits, dim) : out;
  uint16_t bits[2];
  bool finite = true;
  if constexpr (kBits == 8) {
    float scale, bias;
    finite = QuantizeRow8<Weight>(weights, dim, codes, &scale, &bias);
    bits[0] = FloatToFp16(scale);
    bits[1] = FloatToFp16(bias);
    finite = finite && IsFinite(Fp16ToFloat(bits[0])) && IsFinite(Fp16ToFloat(bits[1]));
  } else {
    finite = QuantizeRowNBit<kBits, Weight>(weights, dim, codes, &bits[0], &bits[1]);
  }
  __builtin_memcpy(parameters, bits, 4);
  return finite;
}

// code * scale + bias, rounded once: upstream's dequantizers take the sum in double or fuse it.
// (The wire's int8 is read with two roundings, row_math/quantize.h, and may differ in the last
// place.)
HOTBED_ROW_FN float CodeToFloat(uint32_t code, float scale, float bias) {
  return static_cast<float>(static_cast<double>(code) * static_cast<double>(scale) +
                            static_cast<double>(bias));
}

template <uint32_t kBits>
HOTBED_ROW_FN void DecodeHalfParameters(const uint8_t* row, uint32_t dim, bool parameters_last,
                                        float* out) {
  constexpr uint32_t kPerByte = 8 / kBits;
  const uint8_t* const codes = parameters_last ? row : row + 4;
  uint16_t bits[2];
  __builtin_memcpy(bits, parameters_last ? row + CodeBytes(kBits, dim) : row, 4);
  const float scale = Fp16ToFloat(bits[0]), bias = Fp16ToFloat(bits[1]);
  for (uint32_t i = 0; i < dim; ++i) {
    const uint32_t code = (codes[i / kPerByte] >> i % kPerByte * kBits) & ((1u << kBits) - 1);
    out[i] = CodeToFloat(code, scale, bias);
  }
}

// A row of plain elements: whether all of them are finite as they were and as they are written.
template <typename Weight, typename To>
HOTBED_ROW_FN bool EncodeElements(const uint8_t* weights, uint32_t dim, uint8_t* out) {
  ConvertRow<Weight, To>(weights, dim, out);
  return RangeOfRow<To>(out, dim).finite;
}

template <typename Weight>
HOTBED_ROW_FN bool EncodeFp8(const RowFormat& format, const uint8_t* weights, uint32_t dim,
                             uint8_t* out) {
  const float max = Fp8Max(format.exponent_bits, format.exponent_bias);
  for (uint32_t i = 0; i < dim; ++i) {
    const float value = Weight::Load(weights, i);
    out[i] = format.kind == RowFormatKind::kNfp8
                 ? FloatToNfp8(value)
                 : FloatToFp8(value, format.exponent_bits, format.exponent_bias, max);
  }
  return RangeOfRow<Weight>(weights, dim).finite;
}

// Writes RowFormatBytes(format, dim) bytes of a row that is stored as Weight (Fp32Codec, ...). The
// format must have no RowFormatError. False if the row has elements that are not finite, or
// overflows the format so that it reads as infinite or NaN: such a row should not be published.
// (FP8 and NFP8 clamp instead, which is no overflow.)
template <typename Weight>
HOTBED_ROW_FN bool EncodeRowFormat(const RowFormat& format, const uint8_t* weights, uint32_t dim,
                                   uint8_t* out) {
  const uint64_t padded = RowFormatBytes(format, dim);
  RowFormat packed = format;
  packed.alignment = 1;
  for (uint64_t i = RowFormatBytes(packed, dim); i < padded; ++i) out[i] = 0;
  switch (format.kind) {
    case RowFormatKind::kFp32:
      return EncodeElements<Weight, Fp32Codec>(weights, dim, out);
    case RowFormatKind::kFp16:
      return EncodeElements<Weight, Fp16Codec>(weights, dim, out);
    case RowFormatKind::kBf16:
      return EncodeElements<Weight, Bf16Codec>(weights, dim, out);
    case RowFormatKind::kFused8Bit:
      return QuantizeRow<Weight>(weights, dim, out) && IsFinite(Fp32Codec::Load(out + dim, 0));
    case RowFormatKind::kFused4Bit:
      return EncodeHalfParameters<4, Weight>(weights, dim, true, out);
    case RowFormatKind::kFused2Bit:
      return EncodeHalfParameters<2, Weight>(weights, dim, true, out);
    case RowFormatKind::kTbeInt8:
      return EncodeHalfParameters<8, Weight>(weights, dim, format.parameters_last, out);
    case RowFormatKind::kTbeInt4:
      return EncodeHalfParameters<4, Weight>(weights, dim, format.parameters_last, out);
    case RowFormatKind::kTbeInt2:
      return EncodeHalfParameters<2, Weight>(weights, dim, format.parameters_last, out);
    case RowFormatKind::kFp8:
    case RowFormatKind::kNfp8:
      return EncodeFp8<Weight>(format, weights, dim, out);
  }
  return false;
}

// Reads RowFormatBytes(format, dim) bytes, writes dim floats.
HOTBED_ROW_FN void DecodeRowFormat(const RowFormat& format, const uint8_t* row, uint32_t dim,
                                   float* out) {
  switch (format.kind) {
    case RowFormatKind::kFp32:
      return DecodeRow(RowType::kFp32, row, dim, out);
    case RowFormatKind::kFp16:
      return DecodeRow(RowType::kFp16, row, dim, out);
    case RowFormatKind::kBf16:
      return DecodeRow(RowType::kBf16, row, dim, out);
    case RowFormatKind::kFused8Bit:
      for (uint32_t i = 0; i < dim; ++i) {
        out[i] = CodeToFloat(row[i], Fp32Codec::Load(row + dim, 0), Fp32Codec::Load(row + dim, 1));
      }
      return;
    case RowFormatKind::kFused4Bit:
      return DecodeHalfParameters<4>(row, dim, true, out);
    case RowFormatKind::kFused2Bit:
      return DecodeHalfParameters<2>(row, dim, true, out);
    case RowFormatKind::kTbeInt8:
      return DecodeHalfParameters<8>(row, dim, format.parameters_last, out);
    case RowFormatKind::kTbeInt4:
      return DecodeHalfParameters<4>(row, dim, format.parameters_last, out);
    case RowFormatKind::kTbeInt2:
      return DecodeHalfParameters<2>(row, dim, format.parameters_last, out);
    case RowFormatKind::kFp8:
      for (uint32_t i = 0; i < dim; ++i) {
        out[i] = Fp8ToFloat(row[i], format.exponent_bits, format.exponent_bias);
      }
      return;
    case RowFormatKind::kNfp8:
      for (uint32_t i = 0; i < dim; ++i) out[i] = Nfp8ToFloat(row[i]);
      return;
  }
}

}  // namespace HOTBED_ISA
}  // namespace hotbed

#endif  // HOTBED_ROW_MATH_ROW_FORMATS_H_
