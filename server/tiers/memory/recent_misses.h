// Which rows have missed twice within a short time: more memory would have kept them.
//
// Two windows of bits, indexed by a hash of the position. Rows that share a bit may look as if they
// had missed before; the windows grow until at most an eighth of the bits is set, so few do. Memory
// follows the misses: about two bytes for each in a window, never more than 2 MiB. Confined to its
// owner.
#ifndef HOTBED_SERVER_TIERS_MEMORY_RECENT_MISSES_H_
#define HOTBED_SERVER_TIERS_MEMORY_RECENT_MISSES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "row_math/position.h"

namespace hotbed {

class RecentMisses {
 public:
  static constexpr uint64_t kBitsMin = 1ull << 12;
  static constexpr uint64_t kBitsMax = 1ull << 23;
  static constexpr uint64_t kBitsPerMiss = 8;

  // Notes a miss; true: the row has missed in this window or the one before.
  bool Note(uint64_t position) {
    if (now_.empty()) now_.resize(kBitsMin / 64);
    const uint64_t hash = Mix64(position ^ kSalt);
    const bool again = Has(now_, hash) || Has(before_, hash);
    now_[(hash & (now_.size() * 64 - 1)) / 64] |= 1ull << (hash & 63);
    if (++misses_ * kBitsPerMiss > now_.size() * 64 && now_.size() * 64 < kBitsMax) {
      const size_t words =
          now_.size();  // a position's bit is in both halves, whichever it hashes to
      now_.resize(2 * words);
      std::copy_n(now_.begin(), words, now_.begin() + words);
    }
    return again;
  }

  void NextWindow() {
    if (misses_ == 0 && before_.empty()) return;
    uint64_t bits = kBitsMin;
    while (bits < misses_ * kBitsPerMiss && bits < kBitsMax) bits *= 2;
    before_ = std::move(now_);
    now_.clear();
    if (misses_ == 0) return before_.clear();
    now_.resize(bits / 64);
    misses_ = 0;
  }

 private:
  // Positions of hashed tables are mixed once already.
  static constexpr uint64_t kSalt = 0x5bd1e995c3a5c85cull;

  static bool Has(const std::vector<uint64_t>& window, uint64_t hash) {
    if (window.empty()) return false;
    return (window[(hash & (window.size() * 64 - 1)) / 64] >> (hash & 63) & 1) != 0;
  }

  std::vector<uint64_t> now_, before_;  // each of a power of two bits, or empty
  uint64_t misses_ = 0;                 // in this window
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_TIERS_MEMORY_RECENT_MISSES_H_
