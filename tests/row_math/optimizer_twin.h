// Every optimizer in double precision, as its source has it: one function each, with no thought for
// speed or for the order of floating-point operations. `d` below is the gradient after L2 decay,
// which the caller of the formulas has added; decoupled decay has shrunk the weights before.
#ifndef HOTBED_TESTS_ROW_MATH_OPTIMIZER_TWIN_H_
#define HOTBED_TESTS_ROW_MATH_OPTIMIZER_TWIN_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "row_math/types.h"

namespace hotbed {

using Vector64 = std::vector<double>;

inline double Norm64(const Vector64& x) {
  double sum = 0;
  for (double v : x) sum += v * v;
  return std::sqrt(sum);
}

inline double MeanSquare64(const Vector64& x) {
  return Norm64(x) * Norm64(x) / static_cast<double>(x.size());
}

// 0: the largest element.
inline double PowerNorm64(double p, const Vector64& x) {
  double largest = 0, sum = 0;
  for (double v : x) largest = std::max(largest, std::abs(v));
  if (p == 0) return largest;
  for (double v : x) sum += std::pow(std::abs(v), p);
  return std::pow(sum, 1 / p);
}

class OptimizerTwin {
 public:
  OptimizerTwin(const OptimizerParams& params, Vector64 weights)
      : w(std::move(weights)), a(w.size(), 0.0), b(w.size(), 0.0), c(w.size(), 0.0), o_(params) {
    const double first = o_.initial_accumulator;
    if (o_.kind == OptimizerKind::kAdagrad) a.assign(w.size(), first);
    if (o_.kind == OptimizerKind::kRowwiseAdagrad || CountsUpdates(o_.kind)) statistic = first;
    if (o_.kind == OptimizerKind::kFtrl) b.assign(w.size(), first);
  }

  // One push of step `step`, with `t` updates or steps for the bias correction.
  void Step(Vector64 g, double lr, double scale, double step, double t) {
    if (o_.kind == OptimizerKind::kNone) return;
    for (double& x : g) x *= scale;
    for (double& x : g) {
      if (o_.clip_value > 0)
        x = std::max<double>(-o_.clip_value, std::min<double>(x, o_.clip_value));
    }
    if (o_.clip_row_norm > 0) Shorten(o_.clip_row_norm, &g);
    Decay(lr, step, &g);
    lr_ = lr;
    t_ = t;
    step_ = step;
    Formula(g);
    if (o_.max_norm > 0) Shorten(o_.max_norm, &w, o_.max_norm_type);
  }

  Vector64 w, a, b, c;  // weights; the vectors of state
  double statistic = 0;
  double count = 0;

 private:
  static void Shorten(double limit, Vector64* x, double p = 2) {
    double norm = Norm64(*x);
    if (p != 2) norm = PowerNorm64(p, *x);
    for (double& v : *x) v *= norm > limit ? limit / norm : 1.0;
  }

  void Decay(double lr, double step, Vector64* g) {
    const double gap = last_step_ == 0 ? 1 : step - last_step_;
    last_step_ = step;
    gap_ = gap;
    const double wd = o_.weight_decay;
    switch (o_.kind) {
      case OptimizerKind::kLamb:
      case OptimizerKind::kPartialRowwiseLamb:
      case OptimizerKind::kLars:
      case OptimizerKind::kFtrl:
      case OptimizerKind::kRowwiseAdagradCounter:
        return;  // have their own, or none
      default:
        break;
    }
    const bool lazy_sgd = o_.kind == OptimizerKind::kSgd && o_.lazy_decay;
    const bool always = o_.kind == OptimizerKind::kAdamW || o_.kind == OptimizerKind::kLion;
    if (always || o_.decay_mode == DecayMode::kDecoupled || lazy_sgd) {
      const double between = o_.lazy_decay ? std::pow(1 - lr * wd, gap - 1) : 1;
      for (double& x : w) x *= (1 - lr * wd) * std::max<double>(between, o_.lazy_decay_least);
    } else {
      for (size_t i = 0; i < w.size(); ++i) (*g)[i] += wd * w[i];
    }
  }

  void Formula(const Vector64& d) {
    switch (o_.kind) {
      case OptimizerKind::kSgd:
        return Sgd(d);
      case OptimizerKind::kMomentumSgd:
        return Momentum(d);
      case OptimizerKind::kAdagrad:
        return Adagrad(d);
      case OptimizerKind::kRowwiseAdagrad:
        return RowwiseAdagrad(d);
      case OptimizerKind::kRmsProp:
        return RmsProp(d);
      case OptimizerKind::kRowwiseRmsProp:
        return RowwiseRmsProp(d);
      case OptimizerKind::kLion:
        return Lion(d);
      case OptimizerKind::kAdadelta:
        return Adadelta(d);
      case OptimizerKind::kAdam:
      case OptimizerKind::kAdamW:
      case OptimizerKind::kAmsGrad:
        return Adam(d);
      case OptimizerKind::kRowwiseAdagradCounter:
        return RowwiseAdagradCounter(d);
      case OptimizerKind::kPartialRowwiseAdam:
        return PartialAdam(d);
      case OptimizerKind::kLamb:
      case OptimizerKind::kPartialRowwiseLamb:
        return Lamb(d);
      case OptimizerKind::kLars:
        return Lars(d);
      case OptimizerKind::kFtrl:
        return Ftrl(d);
      case OptimizerKind::kNone:
        return;
    }
  }

  void Sgd(const Vector64& d) {
    for (size_t i = 0; i < w.size(); ++i) w[i] -= lr_ * d[i];
  }

  void Momentum(const Vector64& d) {
    for (size_t i = 0; i < w.size(); ++i) {
      a[i] = o_.momentum * a[i] + d[i];
      w[i] -= lr_ * a[i];
    }
  }

  void Adagrad(const Vector64& d) {
    for (size_t i = 0; i < w.size(); ++i) {
      a[i] += d[i] * d[i];
      w[i] -= lr_ * d[i] / (std::sqrt(a[i]) + o_.epsilon);
    }
  }

  void RowwiseAdagrad(const Vector64& d) {
    statistic += MeanSquare64(d);
    for (size_t i = 0; i < w.size(); ++i) {
      w[i] -= lr_ * d[i] / (std::sqrt(statistic) + o_.epsilon);
    }
  }

  void RmsProp(const Vector64& d) {
    for (size_t i = 0; i < w.size(); ++i) {
      a[i] = o_.beta2 * a[i] + (1 - o_.beta2) * d[i] * d[i];
      w[i] -= lr_ * d[i] / (std::sqrt(a[i]) + o_.epsilon);
    }
  }

  void RowwiseRmsProp(const Vector64& d) {
    statistic = o_.beta2 * statistic + (1 - o_.beta2) * MeanSquare64(d);
    for (size_t i = 0; i < w.size(); ++i) {
      w[i] -= lr_ * d[i] / (std::sqrt(statistic) + o_.epsilon);
    }
  }

  void Lion(const Vector64& g) {
    for (size_t i = 0; i < w.size(); ++i) {
      const double mixed = o_.beta1 * a[i] + (1 - o_.beta1) * g[i];
      w[i] -= mixed == 0 ? 0 : std::copysign(lr_, mixed);
      a[i] = o_.beta2 * a[i] + (1 - o_.beta2) * g[i];
    }
  }

  void Adadelta(const Vector64& d) {
    for (size_t i = 0; i < w.size(); ++i) {
      a[i] = o_.beta2 * a[i] + (1 - o_.beta2) * d[i] * d[i];
      const double step = std::sqrt(b[i] + o_.epsilon) / std::sqrt(a[i] + o_.epsilon) * d[i];
      b[i] = o_.beta2 * b[i] + (1 - o_.beta2) * step * step;
      w[i] -= lr_ * step;
    }
  }

  void Adam(const Vector64& d) {
    for (size_t i = 0; i < w.size(); ++i) {
      a[i] = o_.beta1 * a[i] + (1 - o_.beta1) * d[i];
      b[i] = o_.beta2 * b[i] + (1 - o_.beta2) * d[i] * d[i];
      c[i] = std::max(c[i], b[i]);
      const double second = o_.kind == OptimizerKind::kAmsGrad ? c[i] : b[i];
      const double m = a[i] / (1 - std::pow(o_.beta1, t_));
      const double v = second / (1 - std::pow(o_.beta2, t_));
      w[i] -= lr_ * m / (std::sqrt(v) + o_.epsilon);
    }
  }

  // FBGEMM's rowwise_adagrad_with_counter.
  void RowwiseAdagradCounter(const Vector64& g) {
    const CounterParams& k = o_.counter;
    const bool l2 = o_.decay_mode == DecayMode::kL2;
    count = k.half_life > 0 ? 1 + std::exp2(-gap_ / k.half_life) * count : count + 1;
    Vector64 d = g;
    for (size_t i = 0; i < w.size(); ++i) d[i] += l2 ? o_.weight_decay * w[i] : 0;
    statistic += MeanSquare64(d);
    const double plain = lr_ / (std::sqrt(statistic) + o_.epsilon);
    const double steps = step_ - static_cast<double>(k.from_step);
    const double rarity = k.half_life > 0 ? k.half_life / count : 1;
    double rate = plain;
    double factor = 1 - rarity * o_.weight_decay * (l2 ? plain : lr_);
    if (k.mode == CounterMode::kCowClip) {
      const double limit = count * std::max<double>(k.clip_coefficient * Norm64(w), k.clip_least);
      rate *= std::min(1.0, limit / Norm64(d));
      factor = 1 - o_.weight_decay * (l2 ? rate : lr_);
    } else if (steps <= 0) {
      factor = 1;
    } else if (k.mode == CounterMode::kAdagradW) {
      const double shrink = 1 - o_.weight_decay * lr_;
      const double lazy = std::pow(shrink, std::min(gap_, steps) - 1);
      rate *= std::sqrt(count) * lazy;
      factor = shrink * lazy;
    } else if (count > k.threshold) {
      if (k.mode == CounterMode::kTailIncrease) {
        rate *= std::clamp<double>(std::pow(k.most / (count + 1), k.power), 1, 10);
      } else if (k.mode == CounterMode::kTailDecrease) {
        rate *= std::clamp<double>(std::pow((count + 1) / k.most, k.power), 0.1, 1);
      } else if (k.mode == CounterMode::kCounterSgd) {
        rate = lr_ / (std::sqrt(k.power * count) + o_.epsilon);
      }
    }
    for (size_t i = 0; i < w.size(); ++i) w[i] = factor * w[i] - rate * g[i];
  }

  void PartialAdam(const Vector64& d) {
    statistic = o_.beta2 * statistic + (1 - o_.beta2) * MeanSquare64(d);
    const double v = statistic / (1 - std::pow(o_.beta2, t_));
    for (size_t i = 0; i < w.size(); ++i) {
      a[i] = o_.beta1 * a[i] + (1 - o_.beta1) * d[i];
      const double m = a[i] / (1 - std::pow(o_.beta1, t_));
      w[i] -= lr_ * m / (std::sqrt(v) + o_.epsilon);
    }
  }

  void Lamb(const Vector64& g) {
    Vector64 r(w.size());
    statistic = o_.beta2 * statistic + (1 - o_.beta2) * MeanSquare64(g);
    for (size_t i = 0; i < w.size(); ++i) {
      a[i] = o_.beta1 * a[i] + (1 - o_.beta1) * g[i];
      b[i] = o_.beta2 * b[i] + (1 - o_.beta2) * g[i] * g[i];
      const double second = o_.kind == OptimizerKind::kLamb ? b[i] : statistic;
      const double m = a[i] / (1 - std::pow(o_.beta1, t_));
      const double v = second / (1 - std::pow(o_.beta2, t_));
      r[i] = m / (std::sqrt(v) + o_.epsilon) + o_.weight_decay * w[i];
    }
    const bool zero = Norm64(w) == 0 || Norm64(r) == 0;
    const double ratio = zero ? 1 : Norm64(w) / Norm64(r);
    for (size_t i = 0; i < w.size(); ++i) w[i] -= lr_ * ratio * r[i];
  }

  void Lars(const Vector64& g) {
    const double length = Norm64(w);
    const double below = Norm64(g) + o_.weight_decay * length;
    const double rate =
        length == 0 || below == 0 ? lr_ : lr_ * o_.trust_coefficient * length / below;
    for (size_t i = 0; i < w.size(); ++i) {
      a[i] = o_.momentum * a[i] + rate * (g[i] + o_.weight_decay * w[i]);
      w[i] -= a[i];
    }
  }

  void Ftrl(const Vector64& g) {
    if (lr_ == 0) return;
    for (size_t i = 0; i < w.size(); ++i) {
      const double sigma = (std::sqrt(b[i] + g[i] * g[i]) - std::sqrt(b[i])) / lr_;
      a[i] += g[i] - sigma * w[i];
      b[i] += g[i] * g[i];
      const double sign = a[i] < 0 ? -1 : 1;
      const double below = (o_.ftrl_beta + std::sqrt(b[i])) / lr_ + o_.l2;
      w[i] = std::abs(a[i]) <= o_.l1 || below == 0 ? 0 : -(a[i] - sign * o_.l1) / below;
    }
  }

  const OptimizerParams o_;
  double last_step_ = 0;
  double gap_ = 0;
  double step_ = 0;
  double lr_ = 0;
  double t_ = 0;
};

}  // namespace hotbed

#endif  // HOTBED_TESTS_ROW_MATH_OPTIMIZER_TWIN_H_
