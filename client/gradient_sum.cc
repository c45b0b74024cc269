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

uint32_t GradientSum::Gather(const TableGroup& group, const PlanPart& part, uint8_t* out) {
  const RowConverters& convert = BestRowConverters();
  const auto from_floats = convert.from_floats[static_cast<int>(wire_type_)];
  const uint32_t dim = part.columns;
  const uint32_t row_bytes = RowWireBytes(wire_type_, dim);
  const UniqueIds& ids = group.ids;
  const uint32_t* const order = group.split.order.data();
  uint32_t first_bad = kNoIndex;
  sum_.resize(dim);
  for (uint32_t k = part.begin; k < part.end; ++k, out += row_bytes) {
    if (k + kLookahead < part.end) {
      const char* ahead = reinterpret_cast<const char*>(
          RowOf(group, ids.first[order[k + kLookahead]], part.column_first));
      for (uint32_t b = 0; b < 4 * dim; b += 64) __builtin_prefetch(ahead + b);
    }
    const uint32_t first = ids.first[order[k]];
    const float* row = RowOf(group, first, part.column_first);
    if (ids.next[first] != kNoIndex) {
      std::memcpy(sum_.data(), row, 4ull * dim);
      for (uint32_t i = ids.next[first]; i != kNoIndex; i = ids.next[i]) {
        convert.add(RowOf(group, i, part.column_first), dim, sum_.data());
      }
      row = sum_.data();
    }
    if (!from_floats(row, dim, out) && first_bad == kNoIndex) first_bad = k - part.begin;
  }
  return first_bad;
}

}  // namespace hotbed
