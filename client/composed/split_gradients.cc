// The backward pass of composed rows.
//
// A unit is what one gradient row belongs to: a bag, or an id where no gradient_rows are given.
// With g the gradient of a unit's row, c_i the coefficient of its id i, and q_i, r_i, x_i rows of
// the parts:
//
//   joined per id      row = sum of c_i * (q_i join r_i); multiply: dq_i = c_i * g * r_i;
//                      add: dq_i = c_i * g
//   pooled first       row = Q join R, Q = sum of c_i * q_i; multiply: dq_i = c_i * g * R
//   blocks             row = sum over blocks of P * transposed map, P = sum of c_i * x_i;
//                      dx_i = c_i * (g * map), dmap = outer(g, P)
//   max                Q, R, P are maxima, and an element's gradient goes to the first row that has
//                      it; over blocks, to the first block
#include <algorithm>
#include <vector>

#include "client/composed/composed_calls.h"
#include "client/composed/join_loops.h"

namespace hotbed {
namespace {

struct Units {
  explicit Units(const PushFeature& push, uint32_t dim)
      : push_(push), stride_(push.gradient_stride != 0 ? push.gradient_stride : dim) {}

  uint64_t count() const {
    return push_.gradient_rows != nullptr ? push_.gradient_row_count : push_.ids.size();
  }
  uint64_t Of(uint64_t i) const {
    return push_.gradient_rows != nullptr ? push_.gradient_rows[i] : i;
  }
  const float* Gradient(uint64_t unit) const { return push_.gradients + unit * stride_; }
  float Coefficient(uint64_t i) const {
    return push_.coefficients != nullptr ? push_.coefficients[i] : 1.0f;
  }

 private:
  const PushFeature& push_;
  const uint64_t stride_;
};

// One row per unit, pooled from the rows of a stream, and of a maximum the id of each element.
class PooledUnits {
 public:
  PooledUnits(const PushFeature& push, const Units& units, const ComposedRows& rows,
              uint32_t stream)
      : dim_(rows.stream_dim(stream)), rows_(units.count() * dim_), used_(units.count()) {
    const bool max = push.arg_max != nullptr;
    if (max) arg_.resize(rows_.size());
    for (uint32_t i = 0; i < push.ids.size(); ++i) {
      const uint32_t index = rows.skips(i) ? kNoIndex : rows.IndexOf(stream, i);
      if (index == kNoIndex) continue;
      const uint64_t unit = units.Of(i);
      float* const sum = rows_.data() + unit * dim_;
      const float* const row = rows.Row(stream, index);
      if (!max) {
        AddScaled(row, units.Coefficient(i), dim_, sum);
      } else {
        for (uint32_t d = 0; d < dim_; ++d) {
          if (used_[unit] != 0 && !(row[d] > sum[d])) continue;
          sum[d] = row[d];
          arg_[unit * dim_ + d] = i;
        }
      }
      used_[unit] = 1;
    }
  }

  bool Has(uint64_t unit) const { return used_[unit] != 0; }
  const float* Row(uint64_t unit) const { return rows_.data() + unit * dim_; }
  // The id of each element of a maximum.
  const uint32_t* Arg(uint64_t unit) const { return arg_.data() + unit * dim_; }

 private:
  const uint64_t dim_;
  std::vector<float> rows_;
  std::vector<uint8_t> used_;
  std::vector<uint32_t> arg_;
};

void SplitPerId(const PushFeature& push, const Units& units, ComposedRows* rows) {
  const uint32_t dim = rows->dim();
  const Combine combine = rows->composition().combine;
  std::vector<float> masked(dim);
  for (uint32_t i = 0; i < push.ids.size(); ++i) {
    if (rows->skips(i)) continue;
    const uint64_t unit = units.Of(i);
    const float* gradient = units.Gradient(unit);
    if (push.arg_max != nullptr) {
      const uint32_t* const arg = push.arg_max + unit * dim;
      for (uint32_t d = 0; d < dim; ++d) {
        masked[d] = arg[d] == push.bag_positions[i] ? gradient[d] : 0.0f;
      }
      gradient = masked.data();
    }
    const float c = units.Coefficient(i);
    const uint32_t q = rows->IndexOf(0, i);
    const uint32_t r = rows->IndexOf(1, i);
    if (combine == Combine::kMultiply) {
      AddProduct(gradient, rows->Row(1, r), c, dim, rows->GradientOf(0, q));
      AddProduct(gradient, rows->Row(0, q), c, dim, rows->GradientOf(1, r));
    } else {
      const uint32_t second = combine == Combine::kConcatenate ? dim / 2 : 0;
      AddScaled(gradient, c, rows->stream_dim(0), rows->GradientOf(0, q));
      AddScaled(gradient + second, c, rows->stream_dim(1), rows->GradientOf(1, r));
    }
  }
}

// Gives `gradient`, one row of a stream's dim per unit, to the rows that were pooled.
void SpreadOver(const PushFeature& push, const Units& units, const std::vector<float>& gradient,
                const PooledUnits* pooled, uint32_t stream, ComposedRows* rows) {
  const uint64_t dim = rows->stream_dim(stream);
  const bool max = push.arg_max != nullptr;
  for (uint32_t i = 0; i < push.ids.size(); ++i) {
    const uint32_t index = rows->skips(i) ? kNoIndex : rows->IndexOf(stream, i);
    if (index == kNoIndex) continue;
    const uint64_t unit = units.Of(i);
    const float* const from = gradient.data() + unit * dim;
    float* const to = rows->GradientOf(stream, index);
    if (!max) {
      AddScaled(from, units.Coefficient(i), static_cast<uint32_t>(dim), to);
      continue;
    }
    const uint32_t* const arg = pooled->Arg(unit);
    for (uint64_t d = 0; d < dim; ++d) {
      if (arg[d] == i) to[d] += from[d];
    }
  }
}

void SplitPooledPair(const PushFeature& push, const Units& units, ComposedRows* rows) {
  const Combine combine = rows->composition().combine;
  const bool max = push.arg_max != nullptr;
  const bool needs_rows = max || combine == Combine::kMultiply;
  std::vector<PooledUnits> pooled;
  for (uint32_t s = 0; needs_rows && s < 2; ++s) pooled.emplace_back(push, units, *rows, s);
  for (uint32_t s = 0; s < 2; ++s) {
    const uint32_t dim = rows->stream_dim(s);
    const uint32_t first = combine == Combine::kConcatenate ? s * dim : 0;
    std::vector<float> gradient(units.count() * dim);
    for (uint64_t unit = 0; unit < units.count(); ++unit) {
      float* const to = gradient.data() + unit * dim;
      const float* const from = units.Gradient(unit) + first;
      if (combine == Combine::kMultiply) {
        MultiplyInto(from, pooled[1 - s].Row(unit), dim, to);
      } else {
        std::copy_n(from, dim, to);
      }
    }
    SpreadOver(push, units, gradient, max ? &pooled[s] : nullptr, s, rows);
  }
}

// Leaves each element of a unit's gradient to the first of the blocks with the largest value, and
// zeros to `stream` where that is another one.
void KeepWon(const std::vector<PooledUnits>& pooled, uint64_t unit, uint32_t stream,
             const ComposedRows& rows, float* gradient) {
  const uint32_t dim = rows.dim();
  std::vector<float> own(dim);
  rows.Mapped(stream, pooled[stream].Row(unit), own.data());
  std::vector<float> other(dim);
  for (uint32_t s = 0; s < rows.streams(); ++s) {
    if (s == stream || !pooled[s].Has(unit)) continue;
    rows.Mapped(s, pooled[s].Row(unit), other.data());
    for (uint32_t d = 0; d < dim; ++d) {
      if (s < stream ? other[d] >= own[d] : other[d] > own[d]) gradient[d] = 0.0f;
    }
  }
}

void SplitBlocks(const PushFeature& push, const Units& units, ComposedRows* rows) {
  const bool max = push.arg_max != nullptr;
  std::vector<PooledUnits> pooled;
  for (uint32_t s = 0; s < rows->streams(); ++s) pooled.emplace_back(push, units, *rows, s);
  std::vector<float> won(rows->dim());
  for (uint32_t s = 0; s < rows->streams(); ++s) {
    const uint64_t dim = rows->stream_dim(s);
    std::vector<float> narrow(units.count() * dim);
    for (uint64_t unit = 0; unit < units.count(); ++unit) {
      if (!pooled[s].Has(unit)) continue;
      const float* gradient = units.Gradient(unit);
      if (max && rows->streams() > 1) {
        std::copy_n(gradient, rows->dim(), won.data());
        KeepWon(pooled, unit, s, *rows, won.data());
        gradient = won.data();
      }
      rows->Unmapped(s, gradient, pooled[s].Row(unit), narrow.data() + unit * dim);
    }
    SpreadOver(push, units, narrow, max ? &pooled[s] : nullptr, s, rows);
  }
}

}  // namespace

bool DependsOnRows(const PushFeature& push, const ComposedRows& rows) {
  if (!rows.quotient_remainder()) return true;
  if (rows.composition().combine == Combine::kMultiply) return true;
  return push.arg_max != nullptr && rows.pools_first();
}

void SplitGradients(const PushFeature& push, ComposedRows* rows) {
  const Units units(push, rows->dim());
  if (!rows->quotient_remainder()) return SplitBlocks(push, units, rows);
  if (rows->pools_first() && (push.gradient_rows != nullptr || push.arg_max != nullptr)) {
    return SplitPooledPair(push, units, rows);
  }
  SplitPerId(push, units, rows);
}

}  // namespace hotbed
