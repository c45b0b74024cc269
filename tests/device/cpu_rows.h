// Rows as the CPU makes them, with the code of row_math that the CPU kernels run: the twin of the
// device's.
#ifndef HOTBED_TESTS_DEVICE_CPU_ROWS_H_
#define HOTBED_TESTS_DEVICE_CPU_ROWS_H_

#include <cstdint>
#include <cstring>
#include <vector>

#include "device/buckets.h"
#include "device/step_kinds.h"
#include "device/table.h"
#include "row_math/initializer.h"
#include "row_math/optimizer.h"
#include "row_math/quantize.h"
#include "row_math/row_update.h"
#include "tests/device/case.h"

namespace hotbed {
namespace device {

using Bytes = std::vector<uint8_t>;

// f(codec) for the codec of a type that is not int8.
template <typename F>
void WithCodec(RowType type, F f) {
  if (type == RowType::kFp16) return f(Fp16Codec());
  if (type == RowType::kBf16) return f(Bf16Codec());
  f(Fp32Codec());
}

inline std::vector<float> DecodedRow(RowType type, const uint8_t* row, uint32_t dim) {
  std::vector<float> values(dim);
  DecodeRow(type, row, dim, values.data());
  return values;
}

inline Bytes EncodedRow(RowType type, const std::vector<float>& values) {
  const auto dim = static_cast<uint32_t>(values.size());
  Bytes bytes(RowWireBytes(type, dim));
  const auto* const from = reinterpret_cast<const uint8_t*>(values.data());
  if (type == RowType::kInt8) {
    QuantizeRow<Fp32Codec>(from, dim, bytes.data());
  } else {
    WithCodec(type,
              [&](auto codec) { ConvertRow<Fp32Codec, decltype(codec)>(from, dim, bytes.data()); });
  }
  return bytes;
}

// A row before its first update, as it is stored.
inline Bytes FirstStored(const RowShape& shape, uint64_t id) {
  std::vector<float> values(shape.dim);
  InitialRow(shape.initializer, shape.seed, id, shape.column_first, shape.dim, values.data());
  Bytes bytes = EncodedRow(static_cast<RowType>(shape.weight_type), values);
  bytes.resize(shape.stored_bytes());
  FirstState(shape.optimizer, shape.dim, bytes.data() + shape.weight_bytes());
  return bytes;
}

inline Bytes WireOfStored(const RowShape& shape, const Bytes& stored, RowType type) {
  Bytes bytes(RowWireBytes(type, shape.dim));
  WithCodec(static_cast<RowType>(shape.weight_type), [&](auto weight) {
    using Weight = decltype(weight);
    if (type == RowType::kInt8) {
      QuantizeRow<Weight>(stored.data(), shape.dim, bytes.data());
    } else {
      WithCodec(type, [&](auto codec) {
        ConvertRow<Weight, decltype(codec)>(stored.data(), shape.dim, bytes.data());
      });
    }
  });
  return bytes;
}

inline void StepStored(const RowShape& shape, uint64_t id, const UpdateScalars& scalars,
                       RowType type, const uint8_t* gradient, Bytes* stored) {
  const UpdatePlan plan{shape.optimizer, scalars, shape.weight_type, type, shape.dim};
  const RowKey key{shape.seed, id, shape.column_first};
  ForStepKind(shape.optimizer.kind, [&](auto of) {
    UpdateRowWithOptions<decltype(of)::kKind>(plan, key, stored->data(),
                                              stored->data() + shape.weight_bytes(), gradient);
  });
}

inline void AssignStored(const RowShape& shape, uint64_t id, RowType type, const uint8_t* values,
                         Bytes* stored) {
  const UpdatePlan plan{shape.optimizer, {}, shape.weight_type, type, shape.dim};
  *stored = FirstStored(shape, id);
  AssignWeights(plan, stored->data(), values);
}

// The sum of the gradients of one row, as device/update_work.h defines it.
inline std::vector<float> SumOfRuns(const std::vector<std::vector<float>>& gradients) {
  std::vector<float> total;
  for (size_t from = 0; from < gradients.size(); from += kPieceRows) {
    std::vector<float> piece = gradients[from];
    for (size_t k = from + 1; k < gradients.size() && k < from + kPieceRows; ++k) {
      for (size_t i = 0; i < piece.size(); ++i) piece[i] += gradients[k][i];
    }
    if (from == 0) {
      total = piece;
    } else {
      for (size_t i = 0; i < piece.size(); ++i) total[i] += piece[i];
    }
  }
  return total;
}

inline RowShape RandomShape(CaseRandom* random, uint32_t dim) {
  RowShape shape;
  shape.seed = random->Next();
  shape.dim = dim;
  shape.column_first = random->Below(3) * 8;
  shape.hashed = true;
  shape.weight_type = static_cast<WeightType>(random->Below(3));
  shape.initializer = {static_cast<InitializerKind>(random->Below(5)), -0.25f, 0.5f};
  OptimizerParams& o = shape.optimizer;
  o.kind = static_cast<OptimizerKind>(random->Below(static_cast<uint32_t>(kLastOptimizerKind) + 1));
  o.initial_accumulator = random->OneIn(2) ? 0.125f : 0.0f;
  o.weight_decay = random->OneIn(2) ? 0.01f : 0.0f;
  o.l1 = 0.001f;
  o.l2 = 0.01f;
  o.max_norm = random->OneIn(4) ? 0.5f : 0.0f;
  o.decay_mode = random->OneIn(2) ? DecayMode::kL2 : DecayMode::kDecoupled;
  o.max_norm_type = static_cast<float>(random->Below(4));
  o.lazy_decay = random->OneIn(4);
  o.lazy_decay_least = random->OneIn(2) ? 0.999f : 0.0f;
  o.counter.mode = static_cast<CounterMode>(random->Below(6));
  o.counter.half_life = random->OneIn(2) ? 2.5f : 0.0f;
  o.counter.from_step = random->Below(3);
  o.counter.threshold = random->OneIn(2) ? 2.0f : 0.0f;
  o.counter.most = 6;
  o.counter.power = random->OneIn(2) ? 0.3f : 1.5f;
  o.counter.clip_coefficient = 0.1f;
  o.counter.clip_least = random->OneIn(2) ? 0.05f : 0.0f;
  o.row_bias_correction = random->OneIn(3);
  if (dim % 2 == 0 && random->OneIn(3)) o.average = {0.4f, 1 + random->Below(2), random->Below(3)};
  o.stochastic_rounding = random->OneIn(3);
  o.state_type = random->OneIn(3) ? StateType::kBf16 : StateType::kFp32;
  return shape;
}

inline UpdateScalars RandomScalars(CaseRandom* random, const RowShape& shape, uint64_t step) {
  UpdateScalars scalars = ResolveScalars(shape.optimizer, random->OneIn(8) ? 0.0f : 0.05f, step);
  if (random->OneIn(4)) scalars.gradient_scale = 0.25f;
  if (random->OneIn(4)) scalars.clip_value = 0.3f;
  if (random->OneIn(4)) scalars.clip_row_norm = 0.7f;
  return scalars;
}

}  // namespace device
}  // namespace hotbed

#endif  // HOTBED_TESTS_DEVICE_CPU_ROWS_H_
