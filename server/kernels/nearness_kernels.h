// RankRows: how near rows are to a vector (see kernel_body.h for how these files are compiled).
#ifndef HOTBED_SERVER_KERNELS_NEARNESS_KERNELS_H_
#define HOTBED_SERVER_KERNELS_NEARNESS_KERNELS_H_

#include "row_math/float_filter.h"
#include "server/kernels/kernel_body.h"

namespace hotbed {
inline namespace HOTBED_ISA {

inline void RunRankRows(RankBatch* batch) {
  switch (batch->weight_type) {
    case WeightType::kFp32:
      return RankFloats<Fp32Codec>(batch);
    case WeightType::kFp16:
      return RankFloats<Fp16Codec>(batch);
    case WeightType::kBf16:
      return RankFloats<Bf16Codec>(batch);
  }
}

}  // namespace HOTBED_ISA
}  // namespace hotbed

#endif  // HOTBED_SERVER_KERNELS_NEARNESS_KERNELS_H_
