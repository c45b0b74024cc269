#include "client/batch/pooled_join.h"

#include <algorithm>
#include <cstring>

#include "client/batch/resolve_ids.h"
#include "client/rows/row_convert.h"
#include "row_math/pooling.h"

namespace hotbed {
namespace {

float* RowOf(const PooledFeature& feature, uint32_t bag) {
  return feature.rows + feature.row_stride * bag;
}
uint32_t* ArgOf(const PooledFeature& feature, uint32_t bag) {
  return feature.arg_max + uint64_t{feature.table->dim()} * bag;
}

// Takes the elements of `row` that are larger. Of equals it keeps the first in the bag, where the
// positions are known.
void TakeLarger(const float* row, const uint32_t* arg, uint32_t dim, float* largest,
                uint32_t* largest_arg) {
  for (uint32_t i = 0; i < dim; ++i) {
    const bool equal = !IsLarger(largest[i], row[i]);  // it is not larger
    const bool wins =
        IsLarger(row[i], largest[i]) || (arg != nullptr && equal && arg[i] < largest_arg[i]);
    if (!wins) continue;
    largest[i] = row[i];
    if (arg != nullptr) largest_arg[i] = arg[i];
  }
}

}  // namespace

void PooledJoin::Begin(const PooledPlan& plan) {
  waiting_.resize(plan.joined_floats());
  waiting_args_.clear();
  for (const PooledFeature& feature : plan.features()) {
    const uint32_t dim = feature.table->dim();
    if (feature.arg_max != nullptr) waiting_args_.resize(plan.joined_floats());
    if (feature.exists != nullptr) std::memset(feature.exists, 0, feature.ids.size());
    begun_.assign(feature.lengths.size(), 0);
    for (uint32_t p = feature.begin; p < feature.end; ++p) begun_[plan.partials()[p].bag] = 1;
    for (uint32_t bag = 0; bag < feature.lengths.size(); ++bag) {
      if (begun_[bag] != 0) continue;
      std::fill_n(RowOf(feature, bag), dim, 0.0f);
      if (feature.arg_max != nullptr) std::fill_n(ArgOf(feature, bag), dim, kArgMaxOfNothing);
    }
  }
}

bool PooledJoin::Take(const PooledPlan& plan, const PooledPart& part, const Rows& rows) {
  const PooledFeature& feature = plan.features()[part.feature];
  const auto to_floats = BestRowConverters().to_floats[static_cast<int>(rows.wire_type)];
  const uint8_t* args = rows.arg_max;
  for (uint32_t p = part.begin; p < part.end; ++p) {
    const PartialBag& partial = plan.partials()[p];
    const bool alone = partial.row_at == PartialBag::kAlone;
    float* const row = alone ? RowOf(feature, partial.bag) : waiting_.data() + partial.row_at;
    to_floats(rows.rows[p - part.begin], part.columns, row + part.column_first);
    if (args == nullptr) continue;
    uint32_t* const arg =
        alone ? ArgOf(feature, partial.bag) : waiting_args_.data() + partial.row_at;
    for (uint32_t c = 0; c < part.columns; ++c, args += 4) {
      uint32_t k;
      std::memcpy(&k, args, 4);
      if (k >= plan.lengths()[p]) return false;
      const uint64_t input = plan.inputs()[partial.id_at + k];
      arg[part.column_first + c] = static_cast<uint32_t>(input - partial.first);
    }
  }
  if (rows.flags == nullptr || feature.exists == nullptr) return true;
  for (uint32_t k = 0; k < part.ids; ++k) {
    if ((rows.flags[k] & 1) == 0) continue;
    // Answers of several slices may write this element concurrently.
    uint8_t* const exists = &feature.exists[plan.inputs()[part.id_at + k]];
    __atomic_store_n(exists, uint8_t{1}, __ATOMIC_RELAXED);
  }
  return true;
}

void PooledJoin::Finish(const PooledPlan& plan) {
  for (const PooledFeature& feature : plan.features()) {
    JoinBags(plan, feature);
    if (feature.pooling == BagPooling::kMean) Divide(feature);
  }
}

uint64_t PooledJoin::MarkMissing(const PooledPlan& plan, const PooledPart& part) {
  const PooledFeature& feature = plan.features()[part.feature];
  const uint32_t dim = feature.table->dim();
  uint64_t marked = 0;
  for (uint32_t p = part.begin; p < part.end; ++p) {
    const uint32_t bag = plan.partials()[p].bag;
    marked += feature.missing[bag] == 0 ? 1 : 0;
    feature.missing[bag] = 1;
    std::fill_n(RowOf(feature, bag), dim, 0.0f);
    if (feature.arg_max != nullptr) std::fill_n(ArgOf(feature, bag), dim, kArgMaxOfNothing);
  }
  return marked;
}

void PooledJoin::JoinBags(const PooledPlan& plan, const PooledFeature& feature) {
  const uint32_t dim = feature.table->dim();
  begun_.assign(feature.lengths.size(), 0);
  for (uint32_t p = feature.begin; p < feature.end; ++p) {
    const PartialBag& partial = plan.partials()[p];
    if (partial.row_at == PartialBag::kAlone) continue;
    const float* const row = waiting_.data() + partial.row_at;
    const uint32_t* const arg =
        feature.arg_max == nullptr ? nullptr : waiting_args_.data() + partial.row_at;
    float* const to = RowOf(feature, partial.bag);
    if (begun_[partial.bag] == 0) {
      begun_[partial.bag] = 1;
      std::copy_n(row, dim, to);
      if (arg != nullptr) std::copy_n(arg, dim, ArgOf(feature, partial.bag));
    } else if (feature.pooling == BagPooling::kMax) {
      TakeLarger(row, arg, dim, to, arg == nullptr ? nullptr : ArgOf(feature, partial.bag));
    } else {
      BestRowConverters().add(row, dim, to);
    }
  }
}

void PooledJoin::Divide(const PooledFeature& feature) {
  const uint32_t dim = feature.table->dim();
  uint64_t input = 0;
  for (uint32_t bag = 0; bag < feature.lengths.size(); ++bag) {
    uint64_t number = 0;
    float weight = 0.0f;
    for (const uint64_t limit = input + feature.lengths[bag]; input < limit; ++input) {
      if (feature.skip != nullptr && feature.skip[input] == kIdPadding) continue;
      ++number;
      if (feature.weights != nullptr) weight += feature.weights[input];
    }
    if (number == 0) continue;
    const float divisor = feature.weights != nullptr ? weight : static_cast<float>(number);
    float* const row = RowOf(feature, bag);
    for (uint32_t i = 0; i < dim; ++i) row[i] /= divisor;
  }
}

}  // namespace hotbed
