// RankRows: how near rows are to a vector (see kernel_body.h for how these files are compiled).
#ifndef HOTBED_SERVER_KERNELS_NEARNESS_KERNELS_H_
#define HOTBED_SERVER_KERNELS_NEARNESS_KERNELS_H_

#include "row_math/rank_rows.h"
#include "server/kernels/kernel_body.h"

namespace hotbed {
inline namespace HOTBED_ISA {

inline void RunRankRows(RankBatch* batch) {
  switch (batch->weight_type) {
    case WeightType::kFp32:
      return RankRowsOf<Fp32Codec>(batch);
    case WeightType::kFp16:
      return RankRowsOf<Fp16Codec>(batch);
    case WeightType::kBf16:
      return RankRowsOf<Bf16Codec>(batch);
  }
}

}  // namespace HOTBED_ISA
}  // namespace hotbed

#endif  // HOTBED_SERVER_KERNELS_NEARNESS_KERNELS_H_
