// Maps a position to the index of its shard, for one column slice of a table: an array of cells
// gives the first candidate, and a short walk the shard. Immutable after construction.
#ifndef HOTBED_CLIENT_MAP_SHARD_LOCATOR_H_
#define HOTBED_CLIENT_MAP_SHARD_LOCATOR_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/tables/shard_record.h"

namespace hotbed {

class ShardLocator {
 public:
  ShardLocator() = default;
  // `ranges` tile the table's positions in order of the shard index; their columns are ignored.
  ShardLocator(bool hashed, absl::Span<const ShardRange> ranges);

  uint32_t shard_count() const { return static_cast<uint32_t>(last_.size()); }

  // `position` is inside the table.
  uint32_t Find(uint64_t position) const {
    uint32_t shard = cells_[position >> shift_];
    // The processor cannot predict the first step, so it is no branch; further steps are rare.
    shard += position > last_[shard] ? 1 : 0;
    while (position > last_[shard]) ++shard;
    return shard;
  }

 private:
  std::vector<uint64_t> last_;   // last position of each shard
  std::vector<uint16_t> cells_;  // shard of the first position of each cell
  int shift_ = 0;
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_MAP_SHARD_LOCATOR_H_
