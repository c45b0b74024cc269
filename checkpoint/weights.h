// Weights of the types of tables, one at a time: for files, where speed is the disk's.
#ifndef HOTBED_CHECKPOINT_WEIGHTS_H_
#define HOTBED_CHECKPOINT_WEIGHTS_H_

#include <cstdint>
#include <cstring>

#include "row_math/half.h"
#include "row_math/types.h"

namespace hotbed {

inline float LoadWeight(const uint8_t* from, WeightType type) {
  if (type == WeightType::kFp32) {
    float wide;
    std::memcpy(&wide, from, sizeof(wide));
    return wide;
  }
  uint16_t half;
  std::memcpy(&half, from, sizeof(half));
  return type == WeightType::kFp16 ? Fp16ToFloat(half) : Bf16ToFloat(half);
}

// Rounds to nearest even.
inline void StoreWeight(float weight, WeightType type, uint8_t* to) {
  if (type == WeightType::kFp32) {
    std::memcpy(to, &weight, sizeof(weight));
    return;
  }
  const uint16_t half = type == WeightType::kFp16 ? FloatToFp16(weight) : FloatToBf16(weight);
  std::memcpy(to, &half, sizeof(half));
}

}  // namespace hotbed

#endif  // HOTBED_CHECKPOINT_WEIGHTS_H_
