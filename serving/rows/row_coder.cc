#include "serving/rows/row_coder.h"

#include "serving/rows/row_coder_body.h"

namespace hotbed {

#if defined(HOTBED_HAVE_X86_LOOPS)
extern const RowLoops kAvx2RowLoops;    // row_coder_avx2.cc
extern const RowLoops kAvx512RowLoops;  // row_coder_avx512.cc
#endif

const RowLoops& PlainRowLoops() {
  static constexpr RowLoops kLoops = RowLoopsOf::Named("base");
  return kLoops;
}

const RowLoops& BestRowLoops() {
#if defined(HOTBED_HAVE_X86_LOOPS)
  static const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
                               __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("fma");
  static const bool has_avx512 =
      has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
  if (has_avx512) return kAvx512RowLoops;
  if (has_avx2) return kAvx2RowLoops;
#endif
  return PlainRowLoops();
}

RowCoder::RowCoder(RowFormatKind kind, uint32_t dim, const RowLoops& loops)
    : kind_(kind),
      dim_(dim),
      row_bytes_(static_cast<uint32_t>(RowFormatBytes({.kind = kind}, dim))),
      loops_(loops) {}

uint32_t RowCoder::code_bits() const {
  if (kind_ == RowFormatKind::kTbeInt8) return 8;
  if (kind_ == RowFormatKind::kTbeInt4) return 4;
  return kind_ == RowFormatKind::kTbeInt2 ? 2 : 0;
}

void RowCoder::Answer(const uint8_t* row, RowType type, float* scratch, uint8_t* out) const {
  const bool same = (kind_ == RowFormatKind::kFp32 && type == RowType::kFp32) ||
                    (kind_ == RowFormatKind::kFp16 && type == RowType::kFp16) ||
                    (kind_ == RowFormatKind::kBf16 && type == RowType::kBf16);
  if (same) {
    __builtin_memcpy(out, row, row_bytes_);
    return;
  }
  loops_.decode(kind_, row, dim_, scratch);
  loops_.answer(type, scratch, dim_, out);
}

}  // namespace hotbed
