#include "client/gradient_sum.h"

#include <cstring>

#include "client/row_convert.h"

namespace hotbed {
namespace {

constexpr uint32_t kLookahead = 8;  // rows

}  // namespace

const float* GradientSum::RowOf(const TableGroup& group, uint32_t input,
                                uint32_t column_first) const {
  const TableGroup::Run* run = group.runs.data();
  while (input >= run->end) ++run;
  return gradients_[run->feature] + uint64_t{input - run->begin} * group.table->dim() +
         column_first;
}

const float* GradientSum::Sum(const TableGroup& group, uint32_t first, uint32_t column_first,
                              uint32_t columns) {
  const UniqueIds& ids = group.ids;
  const float* const row = RowOf(group, first, column_first);
  if (ids.next[first] == kNoIndex) return row;
  sum_.resize(columns);
  std::memcpy(sum_.data(), row, 4ull * columns);
  for (uint32_t i = ids.next[first]; i != kNoIndex; i = ids.next[i]) {
    BestRowConverters().add(RowOf(group, i, column_first), columns, sum_.data());
  }
  return sum_.data();
}

uint32_t GradientSum::Gather(const TableGroup& group, const PlanPart& part, uint8_t* out) {
  const TableOptions& table = group.table->options();
  if (part.columns != table.dim && table.nan_policy == NanPolicy::kSkip) {
    return GatherOfWholeRows(group, part, out);
  }
  const auto from_floats = BestRowConverters().from_floats[static_cast<int>(wire_type_)];
  const uint32_t row_bytes = RowWireBytes(wire_type_, part.columns);
  const uint32_t* const order = group.split.order.data();
  uint32_t first_bad = kNoIndex;
  for (uint32_t k = part.begin; k < part.end; ++k, out += row_bytes) {
    if (k + kLookahead < part.end) {
      const char* ahead = reinterpret_cast<const char*>(
          RowOf(group, group.ids.first[order[k + kLookahead]], part.column_first));
      for (uint32_t b = 0; b < 4 * part.columns; b += 64) __builtin_prefetch(ahead + b);
    }
    const float* row = Sum(group, group.ids.first[order[k]], part.column_first, part.columns);
    if (!from_floats(row, part.columns, out) && first_bad == kNoIndex) first_bad = k - part.begin;
  }
  return first_bad;
}

uint32_t GradientSum::GatherOfWholeRows(const TableGroup& group, const PlanPart& part,
                                        uint8_t* out) {
  const uint32_t dim = group.table->dim();
  const uint32_t element_bytes = RowWireBytes(wire_type_, 1);
  const uint32_t row_bytes = RowWireBytes(wire_type_, part.columns);
  uint32_t first_bad = kNoIndex;
  whole_.resize(RowWireBytes(wire_type_, dim));
  for (uint32_t k = part.begin; k < part.end; ++k, out += row_bytes) {
    const float* row = Sum(group, group.ids.first[group.split.order[k]], 0, dim);
    const bool finite =
        BestRowConverters().from_floats[static_cast<int>(wire_type_)](row, dim, whole_.data());
    std::memcpy(out, whole_.data() + uint64_t{element_bytes} * part.column_first, row_bytes);
    if (finite) continue;
    std::memset(out, 0xff, element_bytes);  // a NaN of every type
    if (first_bad == kNoIndex) first_bad = k - part.begin;
  }
  return first_bad;
}

}  // namespace hotbed
