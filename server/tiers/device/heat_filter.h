// Decides which rows that missed in a faster tier are worth bringing up: rows that are asked for
// again before long.
//
// Two-bit counters in a table indexed by a hash of the position; after every `window` misses all
// counters are halved. Rows that share a counter may look hotter than they are, never colder; only
// speed depends on it. Confined to its owner.
//
// Also limits how many rows come up. In a full tier each takes the place of another row, and nearly
// all rows of a long tail are asked for twice within a window. Without a limit they drive out each
// other and better rows: with Zipf(1.05) over twice the rows that fit, 4.9 % of the ids miss and
// 0.31 rows come up per miss; limited to a sixteenth, 4.3 % miss (heat_filter_test). The price is
// that the tier adapts more slowly to rows that have become hot.
#ifndef HOTBED_SERVER_TIERS_DEVICE_HEAT_FILTER_H_
#define HOTBED_SERVER_TIERS_DEVICE_HEAT_FILTER_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "row_math/position.h"

namespace hotbed {

class HeatFilter {
 public:
  static constexpr uint64_t kCountersMin = 1024;
  static constexpr uint64_t kCountersMax = 16ull << 20;  // 4 MiB
  static constexpr uint64_t kMissesACounter = 8;         // per window
  static constexpr uint32_t kMissesToComeUp = 2;         // per row, within a window
  static constexpr uint64_t kMissesARow = 16;  // of any rows, for each row that may come up
  static constexpr uint64_t kRowsDueMax = 8192;

  // `rows`: of the tier.
  explicit HeatFilter(uint64_t rows) {
    uint64_t counters = kCountersMin;
    while (counters < rows && counters < kCountersMax) counters *= 2;
    bits_.resize(counters / 4);
  }

  // Counts a miss of the row; returns how many there were, up to 3, this one included.
  uint32_t Miss(uint64_t position) {
    if (++misses_ >= window()) Halve();
    due_ = std::min(due_ + 1, kRowsDueMax * kMissesARow);
    const uint64_t counter = Mix64(position ^ kSalt) & (bits_.size() * 4 - 1);
    uint8_t* const at = &bits_[counter / 4];
    const uint32_t shift = 2 * (counter % 4);
    const uint32_t count = std::min(3u, (*at >> shift & 3u) + 1);
    *at = static_cast<uint8_t>((*at & ~(3u << shift)) | count << shift);
    return count;
  }

  // How many rows should come up together in a full tier of `rows` rows that moves at most
  // `rows_max`: many, as the device runs nothing else meanwhile; few if the tier is small.
  static uint64_t RowsTogether(uint64_t rows, uint64_t rows_max) {
    return std::clamp<uint64_t>(rows / 64, 1, rows_max);
  }
  // Rows that may come up for the misses so far, in addition to those that have.
  uint64_t rows_due() const { return due_ / kMissesARow; }
  void CameUp(uint64_t rows) { due_ -= std::min(due_, rows * kMissesARow); }

  uint64_t window() const { return bits_.size() * 4 * kMissesACounter; }
  uint64_t bytes() const { return bits_.size(); }

 private:
  // Positions of hashed tables are mixed once already.
  static constexpr uint64_t kSalt = 0x5bd1e995c3a5c85cull;

  void Halve() {
    misses_ = 0;
    for (uint8_t& four : bits_) four = (four >> 1) & 0x55;
  }

  std::vector<uint8_t> bits_;
  uint64_t misses_ = 0;
  uint64_t due_ = 0;  // misses
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_TIERS_DEVICE_HEAT_FILTER_H_
