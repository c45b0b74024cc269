// Rows as they should be, by the formulas of row_math/optimizer.h written out plainly, one element
// after another.
#ifndef HOTBED_TESTS_KERNELS_ROW_TWIN_H_
#define HOTBED_TESTS_KERNELS_ROW_TWIN_H_

#include <cmath>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "common/shard_record.h"
#include "common/table_spec.h"
#include "row_math/half.h"
#include "row_math/initializer.h"

namespace hotbed {

class RowTwin {
 public:
  struct Row {
    std::vector<float> weights;  // as they read back from the table's weight type
    std::vector<float> state;
  };
  RowTwin(const TableSpec& spec, const ShardRange& range) : spec_(spec), range_(range) {
    dim_ = range.column_limit - range.column_first;
  }

  Row Read(uint64_t id) const {
    const auto it = rows_.find(id);
    return it != rows_.end() ? it->second : First(id);
  }
  bool Exists(uint64_t id) const { return rows_.count(id) > 0; }
  void Set(uint64_t id, Row row) { rows_[id] = std::move(row); }

  void Update(uint64_t id, const std::vector<float>& gradient, const UpdateScalars& s) {
    Row row = Read(id);
    const OptimizerParams& p = spec_.optimizer;
    std::vector<float> d(dim_);
    for (uint32_t i = 0; i < dim_; ++i) d[i] = gradient[i] + p.weight_decay * row.weights[i];
    float step = 0;
    if (p.kind == OptimizerKind::kRowwiseAdagrad) {
      row.state[0] += SquareSum(d) / static_cast<float>(dim_);
      step = s.learning_rate / (std::sqrt(row.state[0]) + p.epsilon);
    }
    for (uint32_t i = 0; i < dim_; ++i) {
      float& w = row.weights[i];
      switch (p.kind) {
        case OptimizerKind::kSgd:
          w -= s.learning_rate * d[i];
          break;
        case OptimizerKind::kAdagrad:
          row.state[i] += d[i] * d[i];
          w -= s.learning_rate * d[i] / (std::sqrt(row.state[i]) + p.epsilon);
          break;
        case OptimizerKind::kRowwiseAdagrad:
          w -= step * d[i];
          break;
        case OptimizerKind::kAdam: {
          float& m = row.state[i];
          float& v = row.state[dim_ + i];
          m = p.beta1 * m + (1.0f - p.beta1) * d[i];
          v = p.beta2 * v + (1.0f - p.beta2) * (d[i] * d[i]);
          w -= s.learning_rate * (m / s.bias_correction1) /
               (std::sqrt(v / s.bias_correction2) + p.epsilon);
          break;
        }
        default:
          break;
      }
      w = Stored(w);
    }
    rows_[id] = std::move(row);
  }

  const std::map<uint64_t, Row>& rows() const { return rows_; }
  void Clear() { rows_.clear(); }

  // `w` after a trip through the table's weight type.
  float Stored(float w) const {
    switch (spec_.weight_type) {
      case WeightType::kFp32:
        return w;
      case WeightType::kFp16:
        return Fp16ToFloat(FloatToFp16(w));
      case WeightType::kBf16:
        return Bf16ToFloat(FloatToBf16(w));
    }
    return w;
  }

 private:
  Row First(uint64_t id) const {
    Row row;
    for (uint32_t i = 0; i < dim_; ++i) {
      row.weights.push_back(
          Stored(InitialValue(spec_.initializer, spec_.seed, id, range_.column_first + i)));
    }
    row.state.assign(StateBytes(spec_.optimizer, dim_) / 4, InitialState(spec_.optimizer));
    return row;
  }
  float SquareSum(const std::vector<float>& d) const {
    std::vector<float> lanes(32, 0.0f);
    for (uint32_t i = 0; i < dim_; ++i) lanes[i % 32] += d[i] * d[i];
    for (int half = 16; half > 0; half /= 2) {
      for (int l = 0; l < half; ++l) lanes[l] += lanes[l + half];
    }
    return lanes[0];
  }

  const TableSpec spec_;
  const ShardRange range_;
  uint32_t dim_ = 0;
  std::map<uint64_t, Row> rows_;
};

}  // namespace hotbed

#endif  // HOTBED_TESTS_KERNELS_ROW_TWIN_H_
