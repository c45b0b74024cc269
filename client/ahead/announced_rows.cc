#include "client/ahead/announced_rows.h"

#include <algorithm>
#include <utility>

namespace hotbed {

size_t AnnouncedRows::AddFeature(const ResolvedIds& resolved) {
  const size_t first = inputs_.size();
  for (size_t i = 0; i < resolved.ids.size(); ++i) {
    if (resolved.skip != nullptr && resolved.skip[i] != 0) {
      inputs_.push_back(kNoIndex);
      continue;
    }
    const auto [at, fresh] =
        index_.try_emplace(resolved.ids[i], static_cast<uint32_t>(ids_.size()));
    if (fresh) ids_.push_back(resolved.ids[i]);
    inputs_.push_back(at->second);
  }
  return first;
}

void AnnouncedRows::MakeRows() {
  rows_.resize(ids_.size() * uint64_t{table_->dim()});
  changed_.resize(ids_.size());
}

void AnnouncedRows::NoteChanged(absl::Span<const uint64_t> ids, uint64_t number) {
  for (const uint64_t id : ids) {
    const auto at = index_.find(id);
    if (at == index_.end()) continue;
    Changed& changed = changed_[at->second];
    if (changed.first == 0) {
      changed.first = number;
      to_refresh_.push_back(at->second);
    }
    changed.last = number;
  }
}

std::vector<uint32_t> AnnouncedRows::TakeChanged(uint64_t number) {
  std::vector<uint32_t> taken, kept;
  for (const uint32_t row : to_refresh_) {
    Changed& changed = changed_[row];
    if (changed.first > number) {
      kept.push_back(row);
      continue;
    }
    taken.push_back(row);
    if (changed.last > number) {
      changed.first = number + 1;
      kept.push_back(row);
    } else {
      changed = {};
    }
  }
  to_refresh_ = std::move(kept);
  return taken;
}

void AnnouncedRows::SetRow(uint32_t row, const float* from) {
  std::copy_n(from, table_->dim(),
              rows_.begin() + static_cast<ptrdiff_t>(uint64_t{row} * table_->dim()));
}

void AnnouncedRows::CopyTo(size_t first, size_t count, float* out) const {
  const uint64_t dim = table_->dim();
  for (size_t i = first; i < first + count; ++i, out += dim) {
    if (inputs_[i] == kNoIndex) {
      std::fill_n(out, dim, 0.0f);
    } else {
      std::copy_n(rows_.begin() + static_cast<ptrdiff_t>(inputs_[i] * dim), dim, out);
    }
  }
}

}  // namespace hotbed
