// Lists the rows of a message that are not on the device.
#ifndef HOTBED_DEVICE_MISSING_H_
#define HOTBED_DEVICE_MISSING_H_

#include <cstdint>

#include "device/table.h"

namespace hotbed {
namespace device {

// Calls use(k) for each numbers[k] that is kNoRow, in order. Most rows are on the device: whole
// blocks are skipped with vectors, into which a compiler turns loops of fixed length.
template <typename Use>
void ForMissing(const uint32_t* numbers, uint32_t count, Use use) {
  constexpr uint32_t kBlock = 64;
  uint32_t first = 0;
  for (; count - first >= kBlock; first += kBlock) {
    uint32_t missing = 0;
    for (uint32_t k = 0; k < kBlock; ++k) missing += numbers[first + k] == kNoRow;
    for (uint32_t k = first; missing > 0; ++k) {
      if (numbers[k] != kNoRow) continue;
      use(k);
      --missing;
    }
  }
  for (uint32_t k = first; k < count; ++k) {
    if (numbers[k] == kNoRow) use(k);
  }
}

}  // namespace device
}  // namespace hotbed

#endif  // HOTBED_DEVICE_MISSING_H_
