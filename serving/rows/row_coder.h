// Rows as serving replicas keep them: fp32 weights in, rows of row_math/row_formats.h in memory,
// rows of the wire out. Scale and bias of codes are fp16 and stand in front (kTbeInt8, kTbeInt4,
// kTbeInt2), so that an int8 row of dim 64 takes 68 bytes.
//
// There are plain loops, loops for AVX2 and loops for AVX-512 with VNNI, with the same bits.
// Immutable; thread-safe.
#ifndef HOTBED_SERVING_ROWS_ROW_CODER_H_
#define HOTBED_SERVING_ROWS_ROW_CODER_H_

#include <cstdint>

#include "row_math/rank_batch.h"
#include "row_math/row_formats.h"
#include "row_math/types.h"

namespace hotbed {

struct RowLoops {
  const char* name;  // of the instructions: base, avx2 or avx512-vnni
  // False: the row holds elements that are not finite, or overflows the format. It reads as NaN.
  bool (*encode)(RowFormatKind kind, const float* weights, uint32_t dim, uint8_t* out);
  void (*decode)(RowFormatKind kind, const uint8_t* row, uint32_t dim, float* out);
  // fp32 to the wire.
  void (*answer)(RowType type, const float* values, uint32_t dim, uint8_t* out);
  // Pooling (row_math/pooling.h): sum += weight * row, each operation rounded; the larger elements.
  void (*add)(const float* row, float weight, uint32_t dim, float* sum);
  void (*larger)(const float* row, uint32_t dim, float* largest);
  // The rows at `batch->at` that are near to its vector; its weight_type is not looked at.
  void (*rank)(RowFormatKind kind, RankBatch* batch);
};
const RowLoops& PlainRowLoops();
const RowLoops& BestRowLoops();  // of this processor

class RowCoder {
 public:
  // `kind`: kFp32, kFp16, kBf16, kTbeInt8, kTbeInt4 or kTbeInt2.
  RowCoder(RowFormatKind kind, uint32_t dim, const RowLoops& loops = BestRowLoops());

  RowFormatKind kind() const { return kind_; }
  uint32_t dim() const { return dim_; }
  uint32_t row_bytes() const { return row_bytes_; }
  // 0: the rows hold no codes.
  uint32_t code_bits() const;
  const RowLoops& loops() const { return loops_; }
  // As RowLoops::encode.
  bool Encode(const float* weights, uint8_t* row) const {
    return loops_.encode(kind_, weights, dim_, row);
  }
  void Decode(const uint8_t* row, float* out) const { loops_.decode(kind_, row, dim_, out); }
  // As RowLoops::rank.
  void Rank(RankBatch* batch) const { loops_.rank(kind_, batch); }
  // Writes a stored row as one of the wire, RowWireBytes(type, dim) bytes; `scratch` has room for
  // dim floats.
  void Answer(const uint8_t* row, RowType type, float* scratch, uint8_t* out) const;

 private:
  const RowFormatKind kind_;
  const uint32_t dim_;
  const uint32_t row_bytes_;
  const RowLoops& loops_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVING_ROWS_ROW_CODER_H_
