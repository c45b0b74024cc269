#include "client/batch/gradient_sum.h"

#include <algorithm>
#include <cstring>

#include "client/rows/row_convert.h"
#include "client/rows/row_sums.h"
#include "row_math/touches.h"

namespace hotbed {
namespace {

// How many unique ids have their rows prefetched before the first of them is summed, and how many
// terms of one id at most.
constexpr uint32_t kBlock = 16;
constexpr uint32_t kFetchedMax = 32;

uint64_t StrideOf(const PushFeature& feature) {
  return feature.gradient_stride != 0 ? feature.gradient_stride : feature.table->dim();
}

// The gradient of an input of the feature, all columns.
const float* RowOf(const PushFeature& feature, uint32_t input) {
  const uint64_t row = feature.gradient_rows != nullptr ? feature.gradient_rows[input] : input;
  return feature.gradients + StrideOf(feature) * row;
}

void FetchAhead(const float* row, uint32_t columns) {
  for (uint32_t c = 0; c < columns; c += 16) __builtin_prefetch(row + c, 0, 2);
}

uint32_t SliceOf(const TableSpec& table, uint32_t column) {
  uint32_t slice = 0;
  while (SliceColumns(table.dim, table.column_slices, slice).limit <= column) ++slice;
  return slice;
}

}  // namespace

void GradientSum::Collect(const TableGroup& group, uint32_t unique, Columns columns) {
  const UniqueIds& ids = group.ids;
  // The inputs of a chain increase, so the runs are walked along with it; the first run is
  // searched.
  uint32_t i = ids.first[unique];
  const TableGroup::Run* run =
      std::partition_point(group.runs.data(), group.runs.data() + group.runs.size(),
                           [i](const TableGroup::Run& r) { return r.end <= i; });
  for (uint32_t n = 0; i != kNoIndex; i = ids.next[i], ++n) {
    while (i >= run->end) ++run;
    const PushFeature& feature = features_[run->feature];
    const uint32_t input = i - run->begin;
    const float* const from = RowOf(feature, input) + columns.first;
    const float coefficient =
        feature.coefficients != nullptr ? scale_ * feature.coefficients[input] : scale_;
    terms_.push_back({from, coefficient, &feature, input});
    if (n < kFetchedMax) FetchAhead(from, columns.count);
  }
}

const float* GradientSum::SumTerms(uint32_t begin, uint32_t end, Columns columns, float* sum) {
  bool plain = true;  // all coefficients are 1
  bool masked = false;
  rows_.clear();
  coefficients_.clear();
  for (uint32_t t = begin; t < end; ++t) {
    rows_.push_back(terms_[t].row);
    coefficients_.push_back(terms_[t].coefficient);
    plain &= terms_[t].coefficient == 1.0f;
    masked |= terms_[t].feature->arg_max != nullptr;
  }
  const RowSums& sums = BestRowSums();
  if (!masked) {
    if (plain && end - begin == 1) return rows_[0];
    sums.sum(rows_.data(), plain ? nullptr : coefficients_.data(), end - begin, columns.count, sum);
    return sum;
  }
  std::memset(sum, 0, 4ull * columns.count);
  for (uint32_t t = begin; t < end; ++t) {
    const PushFeature& feature = *terms_[t].feature;
    const uint32_t input = terms_[t].input;
    if (feature.arg_max == nullptr) {
      // The sum so far, and one more term.
      const float* const two[2] = {sum, terms_[t].row};
      const float ones[2] = {1.0f, terms_[t].coefficient};
      sums.sum(two, ones, 2, columns.count, scaled_.data());
      std::memcpy(sum, scaled_.data(), 4ull * columns.count);
      continue;
    }
    const uint64_t row = feature.gradient_rows != nullptr ? feature.gradient_rows[input] : input;
    const uint32_t* const arg_max = feature.arg_max + row * feature.table->dim() + columns.first;
    sums.add_where(terms_[t].row, arg_max, feature.bag_positions[input], terms_[t].coefficient,
                   columns.count, sum);
  }
  return sum;
}

template <typename Take>
void GradientSum::ForEachSum(const TableGroup& group, const uint32_t* order, uint32_t begin,
                             uint32_t end, Columns columns, Take take) {
  sum_.resize(columns.count);
  scaled_.resize(columns.count);
  if (const PushFeature* const plain = PlainFeature(group); plain != nullptr) {
    return ForEachPlainSum(group, *plain, order, begin, end, columns, take);
  }
  for (uint32_t k = begin; k < end; k += kBlock) {
    const uint32_t block_end = std::min(end, k + kBlock);
    terms_.clear();
    uint32_t term_begin[kBlock + 1];
    for (uint32_t j = k; j < block_end; ++j) {
      term_begin[j - k] = static_cast<uint32_t>(terms_.size());
      Collect(group, order == nullptr ? j : order[j], columns);
    }
    term_begin[block_end - k] = static_cast<uint32_t>(terms_.size());
    for (uint32_t j = k; j < block_end; ++j) {
      take(SumTerms(term_begin[j - k], term_begin[j - k + 1], columns, sum_.data()));
    }
  }
}

// Only addresses are recorded: recording terms took most of the client's time for a push.
template <typename Take>
void GradientSum::ForEachPlainSum(const TableGroup& group, const PushFeature& feature,
                                  const uint32_t* order, uint32_t begin, uint32_t end,
                                  Columns columns, Take take) {
  const RowSums& sums = BestRowSums();
  const uint32_t* const next = group.ids.next.data();
  const uint32_t* const first = group.ids.first.data();
  const uint32_t* const gradient_rows = feature.gradient_rows;
  const uint64_t stride = StrideOf(feature);
  const uint32_t run_begin = group.runs[0].begin;
  const float* const gradients = feature.gradients + columns.first;
  for (uint32_t k = begin; k < end; k += kBlock) {
    const uint32_t block_end = std::min(end, k + kBlock);
    rows_.clear();
    uint32_t row_begin[kBlock + 1];
    for (uint32_t j = k; j < block_end; ++j) {
      row_begin[j - k] = static_cast<uint32_t>(rows_.size());
      uint32_t fetched = 0;
      for (uint32_t i = first[order == nullptr ? j : order[j]]; i != kNoIndex; i = next[i]) {
        const uint32_t input = i - run_begin;
        const uint64_t row = gradient_rows != nullptr ? gradient_rows[input] : input;
        rows_.push_back(gradients + stride * row);
        if (fetched++ < kFetchedMax) FetchAhead(rows_.back(), columns.count);
      }
    }
    row_begin[block_end - k] = static_cast<uint32_t>(rows_.size());
    for (uint32_t j = k; j < block_end; ++j) {
      const float* const* const rows = rows_.data() + row_begin[j - k];
      const uint32_t count = row_begin[j - k + 1] - row_begin[j - k];
      if (count > 1) sums.sum(rows, nullptr, count, columns.count, sum_.data());
      take(count > 1 ? sum_.data() : rows[0]);
    }
  }
}

const PushFeature* GradientSum::PlainFeature(const TableGroup& group) const {
  if (group.runs.size() != 1 || scale_ != 1.0f) return nullptr;
  const PushFeature& feature = features_[group.runs[0].feature];
  return feature.coefficients == nullptr && feature.arg_max == nullptr ? &feature : nullptr;
}

const float* GradientSum::Scaled(const float* row, float scale, uint32_t columns) {
  if (scale == 1.0f) return row;
  BestRowSums().scale(row, scale, columns, scaled_.data());
  return scaled_.data();
}

bool GradientSum::HasShows(const TableGroup& group) const {
  return std::any_of(group.runs.begin(), group.runs.end(), [this](const TableGroup::Run& run) {
    return features_[run.feature].shows != nullptr || features_[run.feature].clicks != nullptr;
  });
}

void GradientSum::GatherShows(const TableGroup& group, const PlanPart& part, uint8_t* out) const {
  if (!HasShows(group)) return;
  const uint32_t row_bytes = RowBytes(group, part.columns);
  out += RowWireBytes(wire_type_, part.columns);
  for (uint32_t p = part.begin; p < part.end; ++p, out += row_bytes) {
    RowShows sum;
    const TableGroup::Run* run = group.runs.data();
    for (uint32_t i = group.ids.first[group.split.order[p]]; i != kNoIndex; i = group.ids.next[i]) {
      while (i >= run->end) ++run;
      const PushFeature& feature = features_[run->feature];
      if (feature.shows == nullptr && feature.clicks == nullptr) continue;
      sum.shows += feature.shows != nullptr ? feature.shows[i - run->begin] : 1.0f;
      sum.clicks += feature.clicks != nullptr ? feature.clicks[i - run->begin] : 0.0f;
    }
    StoreShows(sum, out);
  }
}

uint32_t GradientSum::Gather(const TableGroup& group, const PlanPart& part,
                             const SummedGradients& summed, uint8_t* out) {
  const auto from_floats = BestRowConverters().from_floats[static_cast<int>(wire_type_)];
  const TableSpec& table = group.table->options();
  const uint32_t row_bytes = RowBytes(group, part.columns);
  GatherShows(group, part, out);
  const float scale = summed.scale_of_slice.empty()
                          ? 1.0f
                          : summed.scale_of_slice[SliceOf(table, part.column_first)];
  const uint32_t* const order = group.split.order.data();
  uint32_t first_bad = kNoIndex;
  uint32_t k = 0;
  const auto write = [&](const float* row) {
    if (!from_floats(Scaled(row, scale, part.columns), part.columns, out) &&
        first_bad == kNoIndex) {
      first_bad = k;
    }
    out += row_bytes;
    ++k;
  };
  // Looks at all columns, because a row that is skipped in one slice is skipped in every slice.
  const auto write_or_skip = [&](const float* row) {
    write(row + part.column_first);
    if (!FiniteOnTheWire(table, summed, row)) {
      std::memset(out - row_bytes, 0xff, RowWireBytes(wire_type_, 1));  // a NaN of every type
    }
  };
  const bool skips = table.nan_policy == NanPolicy::kSkip && part.columns != table.dim;
  if (summed.rows.empty() && skips) {
    ForEachSum(group, order, part.begin, part.end, {0, table.dim}, write_or_skip);
    return first_bad;
  }
  if (summed.rows.empty()) {
    ForEachSum(group, order, part.begin, part.end, {part.column_first, part.columns}, write);
    return first_bad;
  }
  scaled_.resize(table.dim);
  for (uint32_t p = part.begin; p < part.end; ++p) {
    const float* const row = summed.rows.data() + uint64_t{order[p]} * table.dim;
    if (skips) {
      write_or_skip(row);
    } else {
      write(row + part.column_first);
    }
  }
  return first_bad;
}

bool GradientSum::FiniteOnTheWire(const TableSpec& table, const SummedGradients& summed,
                                  const float* row) {
  const auto from_floats = BestRowConverters().from_floats[static_cast<int>(wire_type_)];
  wire_.resize(RowWireBytes(wire_type_, table.dim));
  for (uint32_t slice = 0; slice < table.column_slices; ++slice) {
    const ColumnRange range = SliceColumns(table.dim, table.column_slices, slice);
    const float scale = summed.scale_of_slice.empty() ? 1.0f : summed.scale_of_slice[slice];
    const float* const scaled = Scaled(row + range.first, scale, range.columns());
    if (!from_floats(scaled, range.columns(), wire_.data())) return false;
  }
  return true;
}

void GradientSum::SumAll(const TableGroup& group, uint32_t dim, float* out) {
  const uint32_t rows = static_cast<uint32_t>(group.ids.unique.size());
  ForEachSum(group, nullptr, 0, rows, {0, dim}, [&](const float* row) {
    std::memcpy(out, row, 4ull * dim);
    out += dim;
  });
}

}  // namespace hotbed
