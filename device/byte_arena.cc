#include "device/byte_arena.h"

#include <algorithm>
#include <iterator>

namespace hotbed {
namespace device {

ByteArena::ByteArena(uint64_t bytes) : free_bytes_(bytes / kUnit * kUnit) {
  if (free_bytes_ > 0) free_[0] = free_bytes_;
}

uint64_t ByteArena::Take(uint64_t bytes) {
  const uint64_t wanted = (std::max<uint64_t>(bytes, 1) + kUnit - 1) / kUnit * kUnit;
  const auto fits = std::find_if(free_.begin(), free_.end(),
                                 [&](const auto& hole) { return hole.second >= wanted; });
  if (fits == free_.end()) return kNone;
  const uint64_t offset = fits->first, rest = fits->second - wanted;
  free_.erase(fits);
  if (rest > 0) free_[offset + wanted] = rest;
  taken_[offset] = wanted;
  free_bytes_ -= wanted;
  return offset;
}

void ByteArena::Give(uint64_t offset) {
  const auto given = taken_.find(offset);
  uint64_t bytes = given->second;
  taken_.erase(given);
  free_bytes_ += bytes;
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && next->first == offset + bytes) {
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += bytes;
      return;
    }
  }
  free_[offset] = bytes;
}

uint64_t ByteArena::largest_free() const {
  uint64_t largest = 0;
  for (const auto& hole : free_) largest = std::max(largest, hole.second);
  return largest;
}

}  // namespace device
}  // namespace hotbed
