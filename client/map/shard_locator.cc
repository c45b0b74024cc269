#include "client/map/shard_locator.h"

#include "common/check.h"

namespace hotbed {

ShardLocator::ShardLocator(bool hashed, absl::Span<const ShardRange> ranges) {
  HOTBED_CHECK(!ranges.empty());
  for (const ShardRange& range : ranges) last_.push_back(range.last_position(hashed));
  // About four cells per shard, so that the walk is seldom longer than one step.
  const uint64_t cells = 4 * ranges.size();
  while (shift_ < 63 && (last_.back() >> shift_) >= cells) ++shift_;
  cells_.resize((last_.back() >> shift_) + 1);
  uint32_t shard = 0;
  for (uint64_t cell = 0; cell < cells_.size(); ++cell) {
    while ((cell << shift_) > last_[shard]) ++shard;
    cells_[cell] = static_cast<uint16_t>(shard);
  }
}

}  // namespace hotbed
