// Lists the rows of a message that are not on the device.
#ifndef HOTBED_DEVICE_MISSING_H_
#define HOTBED_DEVICE_MISSING_H_

#include <cstdint>

#include "device/buckets.h"

namespace hotbed {
namespace device {

// Words of bits for `ids` ids.
constexpr uint32_t MissingWords(uint32_t ids) { return (ids + 31) / 32; }

// Calls use(k) for each id k < ids whose bit ReadWork::missing has, in order.
template <typename Use>
void ForMissing(const uint32_t* missing, uint32_t ids, Use use) {
  for (uint32_t word = 0; word < MissingWords(ids); ++word) {
    for (uint32_t left = missing[word]; left != 0; left &= left - 1) {
      use(32 * word + LowestBit(left));
    }
  }
}

}  // namespace device
}  // namespace hotbed

#endif  // HOTBED_DEVICE_MISSING_H_
