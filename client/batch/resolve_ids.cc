#include "client/batch/resolve_ids.h"

#include <algorithm>

namespace hotbed {
namespace {

uint64_t ModuloRows(uint64_t id, uint64_t rows) {
  if (id >> 63 == 0) return id % rows;
  // For a negative id, -(id + 1) equals ~id, which does not overflow at -2^63.
  return rows - 1 - ~id % rows;
}

uint8_t* Skipped(size_t size, ResolvedIds* out) {
  if (out->skip == nullptr) {
    out->skipped.assign(size, 0);
    out->skip = out->skipped.data();
  }
  return out->skipped.data();
}

void SkipPadding(uint64_t padding_id, ResolvedIds* out) {
  const absl::Span<const uint64_t> ids = out->ids;
  if (std::find(ids.begin(), ids.end(), padding_id) == ids.end()) return;
  uint8_t* const skip = Skipped(ids.size(), out);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] == padding_id && skip[i] == 0) skip[i] = kIdPadding;
  }
}

bool AllBelow(absl::Span<const uint64_t> ids, uint64_t rows) {
  uint64_t largest = 0;
  for (uint64_t id : ids) largest = std::max(largest, id);
  return largest < rows;
}

}  // namespace

size_t ResolveIds(const TableSpec& table, absl::Span<const uint64_t> ids, ResolvedIds* out) {
  out->ids = ids;
  out->skip = nullptr;
  out->zeroed = 0;
  if (table.has_padding_id) SkipPadding(table.padding_id, out);
  if (ids.empty() || table.hashed || AllBelow(ids, table.rows)) return ids.size();
  const auto outside = [&](size_t i) {
    return ids[i] >= table.rows && (out->skip == nullptr || out->skip[i] == 0);
  };
  size_t first = 0;
  while (first < ids.size() && !outside(first)) ++first;
  if (first == ids.size()) return first;
  switch (table.bounds_mode) {
    case BoundsMode::kError:
      return first;
    case BoundsMode::kZero: {
      uint8_t* const skip = Skipped(ids.size(), out);
      for (size_t i = first; i < ids.size(); ++i) {
        if (!outside(i)) continue;
        skip[i] = kIdZeroed;
        ++out->zeroed;
      }
      break;
    }
    case BoundsMode::kModulo: {
      out->changed.assign(ids.begin(), ids.end());
      for (size_t i = first; i < ids.size(); ++i) {
        if (outside(i)) out->changed[i] = ModuloRows(ids[i], table.rows);
      }
      out->ids = out->changed;
      if (table.has_padding_id) SkipPadding(table.padding_id, out);
      break;
    }
  }
  return ids.size();
}

}  // namespace hotbed
