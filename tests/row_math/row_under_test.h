// One row in memory as a table keeps it, updated by row_math/row_update.h.
#ifndef HOTBED_TESTS_ROW_MATH_ROW_UNDER_TEST_H_
#define HOTBED_TESTS_ROW_MATH_ROW_UNDER_TEST_H_

#include <cstdint>
#include <cstring>
#include <vector>

#include "row_math/initializer.h"
#include "row_math/row_update.h"

namespace hotbed {

inline float LoadAs(RowType type, const uint8_t* from, uint32_t i) {
  return type == RowType::kFp32   ? Fp32Codec::Load(from, i)
         : type == RowType::kFp16 ? Fp16Codec::Load(from, i)
                                  : Bf16Codec::Load(from, i);
}

inline void StoreAs(RowType type, uint8_t* to, uint32_t i, float value) {
  if (type == RowType::kFp32) return Fp32Codec::Store(to, i, value);
  type == RowType::kFp16 ? Fp16Codec::Store(to, i, value) : Bf16Codec::Store(to, i, value);
}

template <int kKind = 0>
void UpdateAnyRow(const UpdatePlan& plan, const RowKey& key, uint8_t* weights, uint8_t* state,
                  const uint8_t* gradient) {
  constexpr auto kThis = static_cast<OptimizerKind>(kKind);
  if (plan.params.kind == kThis) {
    return UpdateRowWithOptions<kThis>(plan, key, weights, state, gradient);
  }
  if constexpr (kThis != kLastOptimizerKind) {
    UpdateAnyRow<kKind + 1>(plan, key, weights, state, gradient);
  }
}

// Buffers begin at an odd address: no pointer to a row needs alignment.
class RowUnderTest {
 public:
  RowUnderTest(const OptimizerParams& params, WeightType weight_type, uint32_t dim)
      : weights_(1 + 4 * dim), state_(1 + StateBytes(params, dim)) {
    plan.params = params;
    plan.weight_type = weight_type;
    plan.dim = dim;
    FirstState(params, dim, state());
  }

  void Step(const std::vector<float>& gradient, const UpdateScalars& scalars) {
    std::vector<uint8_t> wire(1 + 4 * plan.dim);
    for (uint32_t i = 0; i < plan.dim; ++i) {
      StoreAs(plan.gradient_type, wire.data() + 1, i, gradient[i]);
    }
    plan.scalars = scalars;
    UpdateAnyRow(plan, key, weights(), state(), wire.data() + 1);
  }

  uint8_t* weights() { return weights_.data() + 1; }
  uint8_t* state() { return state_.data() + 1; }
  float weight(uint32_t i) { return LoadAs(static_cast<RowType>(plan.weight_type), weights(), i); }
  void SetWeight(uint32_t i, float value) {
    StoreAs(static_cast<RowType>(plan.weight_type), weights(), i, value);
  }
  float vector(uint32_t v, uint32_t i) {
    const bool fp32 = plan.params.state_type == StateType::kFp32;
    return LoadAs(fp32 ? RowType::kFp32 : RowType::kBf16, state(), v * plan.dim + i);
  }
  float statistic() {
    return Fp32Codec::Load(
        state() + LayoutOfState(plan.params).VectorBytes(plan.params.state_type, plan.dim), 0);
  }
  std::vector<uint8_t> Bytes() const {
    std::vector<uint8_t> bytes = weights_;
    bytes.insert(bytes.end(), state_.begin(), state_.end());
    return bytes;
  }

  UpdatePlan plan;
  RowKey key;

 private:
  std::vector<uint8_t> weights_, state_;
};

}  // namespace hotbed

#endif  // HOTBED_TESTS_ROW_MATH_ROW_UNDER_TEST_H_
