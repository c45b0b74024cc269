// Rows as they should be, by the formulas of row_math/optimizer.h and the order of a step in
// row_math/row_update.h written out plainly, one element after another.
#ifndef HOTBED_TESTS_KERNELS_ROW_TWIN_H_
#define HOTBED_TESTS_KERNELS_ROW_TWIN_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "common/tables/shard_record.h"
#include "common/tables/table_spec.h"
#include "row_math/half.h"
#include "row_math/initializer.h"
#include "row_math/optimizer_blocks.h"
#include "row_math/powers.h"
#include "row_math/stochastic_rounding.h"

namespace hotbed {

class RowTwin {
 public:
  using Row32 = std::vector<float>;
  struct Row {
    Row32 weights;               // as they read back from the table's weight type
    std::vector<Row32> vectors;  // of state, as they read back from the state type
    float statistic = 0;
    float count = 0;
    uint32_t updates = 0;
    uint32_t last_step = 0;
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

  void Update(uint64_t id, Row32 gradient, const UpdateScalars& s) {
    Row row = Read(id);
    if (spec_.optimizer.kind != OptimizerKind::kNone) {
      Clip(s, &gradient);
      Step(gradient, s, &row);
      const float limit = spec_.optimizer.max_norm;
      if (limit > 0) ToNorm(limit, &row.weights, spec_.optimizer.max_norm_type);
      Round(id, s.step, &row);
    }
    rows_[id] = std::move(row);
  }
  void Forget(uint64_t id) { rows_.erase(id); }  // it is deleted
  // New weights; the state starts over.
  void Assign(uint64_t id, const Row32& weights) {
    Row row = First(id);
    for (uint32_t i = 0; i < dim_; ++i) row.weights[i] = Stored(weights[i]);
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
  // `s` after a trip through the table's state type.
  float StoredState(float s) const {
    return spec_.optimizer.state_type == StateType::kFp32 ? s : Bf16ToFloat(FloatToBf16(s));
  }

 private:
  Row First(uint64_t id) const {
    const OptimizerParams& p = spec_.optimizer;
    const bool adagrad = p.kind == OptimizerKind::kAdagrad ||
                         p.kind == OptimizerKind::kRowwiseAdagrad ||
                         p.kind == OptimizerKind::kRowwiseAdagradCounter;
    Row row;
    for (uint32_t i = 0; i < dim_; ++i) {
      row.weights.push_back(
          Stored(InitialValue(spec_.initializer, spec_.seed, id, range_.column_first + i)));
    }
    for (uint32_t v = 0; v < LayoutOfState(p).vectors; ++v) {
      const bool sums = adagrad || (p.kind == OptimizerKind::kFtrl && v == 1);
      row.vectors.emplace_back(dim_, sums ? StoredState(p.initial_accumulator) : 0.0f);
    }
    if (adagrad) row.statistic = p.initial_accumulator;
    return row;
  }
  static float SquareSum(const Row32& d) {
    Row32 squares;
    for (float value : d) squares.push_back(value * value);
    return Sum(squares);
  }
  static float Sum(const Row32& d) {
    Row32 lanes(32, 0.0f);
    for (size_t i = 0; i < d.size(); ++i) lanes[i % 32] += d[i];
    for (int half = 16; half > 0; half /= 2) {
      for (int l = 0; l < half; ++l) lanes[l] += lanes[l + half];
    }
    return lanes[0];
  }
  static float Norm(const Row32& x) { return std::sqrt(SquareSum(x)); }
  static void ToNorm(float limit, Row32* x, float p = 2) {
    if (p != 2) return ToPowerNorm(p, limit, x);
    const float norm = Norm(*x);
    if (!(norm > limit)) return;
    for (float& value : *x) value *= limit / norm;
  }
  static void ToPowerNorm(float p, float limit, Row32* x) {
    float largest = 0;
    for (float value : *x) largest = std::max(largest, std::abs(value) / limit);
    Row32 powers;
    for (float value : *x) {
      powers.push_back(static_cast<float>(RealPower(std::abs(value) / limit / largest, p)));
    }
    const double norm = p > 0 ? largest * RealPower(Sum(powers), 1.0 / double{p}) : largest;
    if (!(norm > 1)) return;
    for (float& value : *x) value *= static_cast<float>(1.0 / norm);
  }
  static void Clip(const UpdateScalars& s, Row32* g) {
    for (float& value : *g) {
      value *= s.gradient_scale;
      if (s.clip_value > 0) value = std::clamp(value, -s.clip_value, s.clip_value);
    }
    if (s.clip_row_norm > 0) ToNorm(s.clip_row_norm, g);
  }

  // The factor of decoupled decay for a weight in this step; 1 without it.
  float Shrink(const UpdateScalars& s, uint32_t steps) const {
    const OptimizerParams& p = spec_.optimizer;
    if (!DecaysDecoupled(p)) return 1.0f;
    const double one = 1.0 - double{s.learning_rate} * double{p.weight_decay};
    if (!p.lazy_decay) return static_cast<float>(one);
    if (p.lazy_decay_least == 0 || steps == 0) return static_cast<float>(WholePower(one, steps));
    return static_cast<float>(one *
                              std::max(WholePower(one, steps - 1), double{p.lazy_decay_least}));
  }
  // The moves after the steps since the row's last one, one after the other in the exact power.
  void MoveAverage(const UpdateScalars& s, Row* row) const {
    const AverageParams& a = spec_.optimizer.average;
    if (a.rate == 0) return;
    uint64_t moves = 0;
    for (uint64_t step = std::max(row->last_step, 1u); step < s.step; ++step) {
      moves += step % a.every == 0 && step >= a.from_step;
    }
    const auto kept = static_cast<float>(WholePower(1.0 - double{a.rate}, moves));
    for (uint32_t i = 0; i < dim_ / 2 && moves > 0; ++i) {
      const float w = row->weights[i];
      float& average = row->weights[dim_ / 2 + i];
      average = Stored(w + kept * (average - w));
    }
  }
  uint32_t StepsSince(const UpdateScalars& s, Row* row) const {
    uint32_t steps = 1;
    if (LayoutOfState(spec_.optimizer).has_last_step) {
      const auto step = static_cast<uint32_t>(s.step);
      if (row->last_step != 0) steps = step > row->last_step ? step - row->last_step : 0;
      row->last_step = std::max(row->last_step, step);
    }
    return steps;
  }

  // Row-wise Adagrad with a count; `mean`: of the squares of d.
  void CounterStepOf(const Row32& g, const UpdateScalars& s, uint32_t steps, float mean,
                     Row* row) const {
    const OptimizerParams& p = spec_.optimizer;
    const CounterParams& o = p.counter;
    const float lr = s.learning_rate, wd = p.weight_decay;
    const bool l2 = !DecaysDecoupled(p) && wd != 0;
    const double kept = o.half_life > 0 ? Exp2(-static_cast<double>(steps) / o.half_life) : 1.0;
    row->count =
        o.half_life > 0 ? static_cast<float>(1.0 + kept * double{row->count}) : row->count + 1.0f;
    row->statistic += mean;
    const float plain = lr / (std::sqrt(row->statistic) + p.epsilon);
    const float rarity = o.half_life > 0 ? o.half_life / row->count : 1.0f;
    float rate = plain, factor = 1.0f - rarity * wd * (l2 ? plain : lr);
    const bool on = s.step > o.from_step;
    if (o.mode == CounterMode::kCowClip) {
      const float length = std::sqrt(mean * static_cast<float>(dim_));
      const float limit =
          row->count * std::max(o.clip_coefficient * Norm(row->weights), o.clip_least);
      if (length > limit) rate = limit / length * plain;
      factor = 1.0f - wd * (l2 ? rate : lr);
    } else if (!on) {
      factor = 1.0f;
    } else if (o.mode == CounterMode::kAdagradW) {
      const double shrink = 1.0 - double{wd} * double{lr};
      const uint64_t most = s.step - o.from_step;
      const uint64_t counted = std::min<uint64_t>(steps, most);
      const double lazy = WholePower(shrink, counted > 0 ? counted - 1 : 0);
      rate = static_cast<float>(double{plain * std::sqrt(row->count)} * lazy);
      factor = static_cast<float>(shrink * lazy);
    } else if (row->count > o.threshold) {
      const double above = double{row->count} + 1.0;
      if (o.mode == CounterMode::kTailIncrease) {
        rate =
            plain * static_cast<float>(std::clamp(RealPower(o.most / above, o.power), 1.0, 10.0));
      } else if (o.mode == CounterMode::kTailDecrease) {
        rate = plain * static_cast<float>(std::clamp(RealPower(above / o.most, o.power), 0.1, 1.0));
      } else if (o.mode == CounterMode::kCounterSgd) {
        rate = lr / (std::sqrt(o.power * row->count) + p.epsilon);
      }
    }
    for (uint32_t i = 0; i < dim_; ++i) row->weights[i] = factor * row->weights[i] - rate * g[i];
  }

  void Step(const Row32& g, UpdateScalars s, Row* row) const {
    const OptimizerParams& p = spec_.optimizer;
    if (p.row_bias_correction && IsAdamKind(p.kind)) {
      ++row->updates;
      s.bias_correction1 = BiasCorrection(p.beta1, row->updates);
      s.bias_correction2 = BiasCorrection(p.beta2, row->updates);
    }
    MoveAverage(s, row);
    const uint32_t steps = StepsSince(s, row);
    const float shrink = Shrink(s, steps);
    const float decay = DecaysDecoupled(p) ? 0.0f : p.weight_decay;
    const bool lamb =
        p.kind == OptimizerKind::kLamb || p.kind == OptimizerKind::kPartialRowwiseLamb;
    Row32 d(dim_);
    for (uint32_t i = 0; i < dim_; ++i) d[i] = g[i] + (lamb ? 0 : decay) * row->weights[i];
    const float mean = SquareSum(d) / static_cast<float>(dim_);
    if (p.kind == OptimizerKind::kRowwiseAdagradCounter) {
      return CounterStepOf(g, s, steps, mean, row);
    }
    const float lr = s.learning_rate;
    float rate = lr;
    if (p.kind == OptimizerKind::kRowwiseAdagrad) {
      row->statistic += mean;
      rate = lr / (std::sqrt(row->statistic) + p.epsilon);
    } else if (p.kind == OptimizerKind::kRowwiseRmsProp) {
      row->statistic = p.beta2 * row->statistic + (1.0f - p.beta2) * mean;
      rate = lr / (std::sqrt(row->statistic) + p.epsilon);
    } else if (p.kind == OptimizerKind::kLars) {
      const float length = Norm(row->weights);
      const float below = Norm(g) + decay * length;
      if (length != 0 && below != 0) rate = lr * p.trust_coefficient * length / below;
    } else if (LayoutOfState(p).has_statistic) {
      row->statistic = p.beta2 * row->statistic + (1.0f - p.beta2) * mean;
    }
    if (p.kind == OptimizerKind::kFtrl) return Ftrl(g, lr, row);
    Row32 r(dim_);
    for (uint32_t i = 0; i < dim_; ++i) {
      float& w = row->weights[i];
      const float step = StepOf(d[i], i, rate, s, row);
      r[i] = step + decay * w;
      if (!lamb) w = shrink * w - step;
    }
    if (!lamb) return;
    const float length = Norm(row->weights), direction = Norm(r);
    rate = lr * (length == 0 || direction == 0 ? 1.0f : length / direction);
    for (uint32_t i = 0; i < dim_; ++i) row->weights[i] -= rate * r[i];
  }

  // The amount subtracted from weight i, or LAMB's direction without decay; updates the state.
  float StepOf(float d, uint32_t i, float rate, const UpdateScalars& s, Row* row) const {
    const OptimizerParams& p = spec_.optimizer;
    const auto state = [&](int v) -> float& { return row->vectors[v][i]; };
    const float lr = s.learning_rate;
    switch (p.kind) {
      case OptimizerKind::kMomentumSgd:
        state(0) = p.momentum * state(0) + d;
        return lr * state(0);
      case OptimizerKind::kLars:
        state(0) = p.momentum * state(0) + rate * d;
        return state(0);
      case OptimizerKind::kAdagrad:
        state(0) += d * d;
        return lr * d / (std::sqrt(state(0)) + p.epsilon);
      case OptimizerKind::kRmsProp:
        state(0) = p.beta2 * state(0) + (1.0f - p.beta2) * (d * d);
        return lr * d / (std::sqrt(state(0)) + p.epsilon);
      case OptimizerKind::kLion: {
        const float mixed = p.beta1 * state(0) + (1.0f - p.beta1) * d;
        state(0) = p.beta2 * state(0) + (1.0f - p.beta2) * d;
        return lr * static_cast<float>((mixed > 0) - (mixed < 0));
      }
      case OptimizerKind::kAdadelta: {
        state(0) = p.beta2 * state(0) + (1.0f - p.beta2) * (d * d);
        const float step = std::sqrt(state(1) + p.epsilon) / std::sqrt(state(0) + p.epsilon) * d;
        state(1) = p.beta2 * state(1) + (1.0f - p.beta2) * (step * step);
        return lr * step;
      }
      case OptimizerKind::kSgd:
      case OptimizerKind::kRowwiseAdagrad:
      case OptimizerKind::kRowwiseRmsProp:
        return rate * d;
      default:
        break;
    }
    float second = row->statistic;
    if (!LayoutOfState(p).has_statistic) {
      state(1) = p.beta2 * state(1) + (1.0f - p.beta2) * (d * d);
      second = state(1);
    }
    if (p.kind == OptimizerKind::kAmsGrad) second = state(2) = std::max(state(2), second);
    state(0) = p.beta1 * state(0) + (1.0f - p.beta1) * d;
    const float inverse1 = 1.0f / s.bias_correction1;
    const float inverse2 = 1.0f / std::sqrt(s.bias_correction2);
    const float denominator = std::sqrt(second) * inverse2 + p.epsilon;
    const bool lamb =
        p.kind == OptimizerKind::kLamb || p.kind == OptimizerKind::kPartialRowwiseLamb;
    if (LayoutOfState(p).has_statistic) {
      return (lamb ? 1.0f : lr) * (inverse1 / denominator) * state(0);
    }
    const float first = state(0) * inverse1;
    return lamb ? first / denominator : lr * first / denominator;
  }

  void Ftrl(const Row32& g, float lr, Row* row) const {
    const OptimizerParams& p = spec_.optimizer;
    if (lr <= 0) return;
    const float inverse_lr = 1.0f / lr;
    for (uint32_t i = 0; i < dim_; ++i) {
      float& w = row->weights[i];
      float& z = row->vectors[0][i];
      float& n = row->vectors[1][i];
      const float root = std::sqrt(n + g[i] * g[i]);
      z += g[i] - (root - std::sqrt(n)) * inverse_lr * w;
      n += g[i] * g[i];
      w = 0;
      if (std::abs(z) <= p.l1 || (p.ftrl_beta + root) * inverse_lr + p.l2 == 0) continue;
      w = -(z < 0 ? z + p.l1 : z - p.l1) / ((p.ftrl_beta + root) * inverse_lr + p.l2);
    }
  }

  void Round(uint64_t id, uint64_t step, Row* row) const {
    for (Row32& vector : row->vectors) {
      for (float& s : vector) s = StoredState(s);
    }
    const bool fp16 = spec_.weight_type == WeightType::kFp16;
    const bool drawn =
        spec_.optimizer.stochastic_rounding && spec_.weight_type != WeightType::kFp32;
    for (uint32_t i = 0; i < dim_; ++i) {
      float& w = row->weights[i];
      const uint32_t column = range_.column_first + i;
      uint32_t room[36];
      const uint32_t draw =
          drawn ? *RoundingDraws({spec_.seed, id, range_.column_first}, column, step, room) : 0;
      if (!drawn) {
        w = Stored(w);
      } else {
        w = fp16 ? Fp16ToFloat(RoundToFp16(w, draw)) : Bf16ToFloat(RoundToBf16(w, draw));
      }
    }
  }

  const TableSpec spec_;
  const ShardRange range_;
  uint32_t dim_ = 0;
  std::map<uint64_t, Row> rows_;
};

}  // namespace hotbed

#endif  // HOTBED_TESTS_KERNELS_ROW_TWIN_H_
