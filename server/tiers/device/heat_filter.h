// Which of the rows that were asked for and not found in a faster tier are worth bringing there:
// those asked for again before long.
//
// Counters of two bits in a table indexed by a hash of the position; after every `window` misses
// all are halved. Rows that share a counter may be taken for hotter than they are, never for
// colder; nothing but speed depends on it. Confined to its owner.
//
// And how many of them: in a tier that is full each takes another row's place, and nearly all rows
// of a long tail are asked for twice within a window. Without a limit they drive out each other,
// and what is better than they: with Zipf(1.05) over twice the rows that there is room for, 4.9 %
// of the ids miss and 0.31 rows come up for each, at a sixteenth 4.3 % (heat_filter_test). How fast
// a tier takes to what has become hot is the price.
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
  static constexpr uint64_t kMissesACounter = 8;         // of a window
  static constexpr uint32_t kMissesToComeUp = 2;         // of a row, within a window
  static constexpr uint64_t kMissesARow = 16;            // of all, for each row that may come up
  static constexpr uint64_t kRowsDueMax = 8192;

  // For a tier of `rows` rows.
  explicit HeatFilter(uint64_t rows) {
    uint64_t counters = kCountersMin;
    while (counters < rows && counters < kCountersMax) counters *= 2;
    bits_.resize(counters / 4);
  }

  // Counts a miss of the row; how many there were, up to 3, this one included.
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

  // How many are to come up at a time in a full tier of `rows` rows that moves `rows_max` at most:
  // many, as nothing else of a device's runs meanwhile; few where it has few.
  static uint64_t RowsTogether(uint64_t rows, uint64_t rows_max) {
    return std::clamp<uint64_t>(rows / 64, 1, rows_max);
  }
  // Rows that may come up for the misses until now, beside those that have.
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
