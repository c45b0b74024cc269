// The loops of RowCoder, compiled once per instruction set (row_math/isa.h), with the same bits.
#ifndef HOTBED_SERVING_ROWS_ROW_CODER_BODY_H_
#define HOTBED_SERVING_ROWS_ROW_CODER_BODY_H_

#include <cstdint>

#include "row_math/code_filter.h"
#include "row_math/float_filter.h"
#include "row_math/pooling.h"
#include "row_math/row_formats.h"
#include "serving/rows/row_coder.h"

namespace hotbed {
inline namespace HOTBED_ISA {

// fp16 parameters, then codes. The product of a code and an fp16 is exact in fp32, so that the sum
// is the only rounding, as in CodeToFloat.
template <uint32_t kBits>
HOTBED_ROW_FN void DecodeCodes(const uint8_t* row, uint32_t dim, float* out) {
  constexpr uint32_t kPerByte = 8 / kBits;
  const uint8_t* codes = row + 4;
  uint16_t parameters[2];
  __builtin_memcpy(parameters, row, 4);
  const float scale = Fp16ToFloat(parameters[0]), bias = Fp16ToFloat(parameters[1]);
  uint8_t block[kBlockElements];
  for (; dim >= kBlockElements; dim -= kBlockElements) {
    if constexpr (kBits == 8) {
      __builtin_memcpy(block, codes, kBlockElements);
    } else {
      for (uint32_t i = 0; i < kBlockElements; ++i) {
        block[i] = (codes[i / kPerByte] >> i % kPerByte * kBits) & ((1u << kBits) - 1);
      }
    }
    HOTBED_INDEPENDENT
    for (uint32_t i = 0; i < kBlockElements; ++i) {
      out[i] = static_cast<float>(block[i]) * scale + bias;
    }
    codes += kBlockElements / kPerByte;
    out += kBlockElements;
  }
  for (uint32_t i = 0; i < dim; ++i) {
    const uint32_t code = (codes[i / kPerByte] >> i % kPerByte * kBits) & ((1u << kBits) - 1);
    out[i] = static_cast<float>(code) * scale + bias;
  }
}

HOTBED_ROW_FN void DecodeStored(RowFormatKind kind, const uint8_t* row, uint32_t dim, float* out) {
  switch (kind) {
    case RowFormatKind::kFp16:
      return ConvertRow<Fp16Codec, Fp32Codec>(row, dim, reinterpret_cast<uint8_t*>(out));
    case RowFormatKind::kBf16:
      return ConvertRow<Bf16Codec, Fp32Codec>(row, dim, reinterpret_cast<uint8_t*>(out));
    case RowFormatKind::kTbeInt8:
      return DecodeCodes<8>(row, dim, out);
    case RowFormatKind::kTbeInt4:
      return DecodeCodes<4>(row, dim, out);
    case RowFormatKind::kTbeInt2:
      return DecodeCodes<2>(row, dim, out);
    default:
      __builtin_memcpy(out, row, 4ull * dim);
  }
}

HOTBED_ROW_FN void WriteAnswer(RowType type, const float* values, uint32_t dim, uint8_t* out) {
  const auto* const bytes = reinterpret_cast<const uint8_t*>(values);
  switch (type) {
    case RowType::kFp32:
      __builtin_memcpy(out, bytes, 4ull * dim);
      return;
    case RowType::kFp16:
      return ConvertRow<Fp32Codec, Fp16Codec>(bytes, dim, out);
    case RowType::kBf16:
      return ConvertRow<Fp32Codec, Bf16Codec>(bytes, dim, out);
    case RowType::kInt8:
      QuantizeRow<Fp32Codec>(bytes, dim, out);
      return;
  }
}

template <typename Rows>
HOTBED_ROW_FN void RankStored(RowFormatKind kind, RankBatch* batch) {
  switch (kind) {
    case RowFormatKind::kFp16:
      return RankFloats<Fp16Codec, Rows>(batch);
    case RowFormatKind::kBf16:
      return RankFloats<Bf16Codec, Rows>(batch);
    case RowFormatKind::kTbeInt8:
      return RankCodes<8, Rows>(batch);
    case RowFormatKind::kTbeInt4:
      return RankCodes<4, Rows>(batch);
    case RowFormatKind::kTbeInt2:
      return RankCodes<2, Rows>(batch);
    default:
      return RankFloats<Fp32Codec, Rows>(batch);
  }
}

struct RowLoopsOf {
  static bool Encode(RowFormatKind kind, const float* weights, uint32_t dim, uint8_t* out) {
    const RowFormat format = {.kind = kind};
    return EncodeRowFormat<Fp32Codec>(format, reinterpret_cast<const uint8_t*>(weights), dim, out);
  }
  static void Decode(RowFormatKind kind, const uint8_t* row, uint32_t dim, float* out) {
    DecodeStored(kind, row, dim, out);
  }
  static void Answer(RowType type, const float* values, uint32_t dim, uint8_t* out) {
    WriteAnswer(type, values, dim, out);
  }
  static void Add(const float* row, float weight, uint32_t dim, float* sum) {
    HOTBED_INDEPENDENT
    for (uint32_t i = 0; i < dim; ++i) sum[i] += row[i] * weight;
  }
  static void Larger(const float* row, uint32_t dim, float* largest) {
    HOTBED_INDEPENDENT
    for (uint32_t i = 0; i < dim; ++i) {
      largest[i] = IsLarger(row[i], largest[i]) ? row[i] : largest[i];
    }
  }
  static void Rank(RowFormatKind kind, RankBatch* batch) {
    if (batch->at == nullptr) return RankStored<RowsInOrder>(kind, batch);
    RankStored<RowsAt>(kind, batch);
  }
  static constexpr RowLoops Named(const char* name) {
    return {name, &Encode, &Decode, &Answer, &Add, &Larger, &Rank};
  }
};

}  // namespace HOTBED_ISA
}  // namespace hotbed

#endif  // HOTBED_SERVING_ROWS_ROW_CODER_BODY_H_
