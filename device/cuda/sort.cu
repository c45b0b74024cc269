#include <cub/device/device_radix_sort.cuh>

#include "device/cuda/launch.h"

namespace hotbed {
namespace device {

// By all 32 bits, which takes the most.
uint64_t SortBytes(uint32_t count) {
  size_t bytes = 0;
  cub::DeviceRadixSort::SortPairs<uint32_t, uint32_t>(nullptr, bytes, nullptr, nullptr, nullptr,
                                                      nullptr, static_cast<int>(count));
  return bytes;
}

cudaError_t LaunchSort(const uint32_t* keys, const uint32_t* counted, uint32_t count, uint32_t bits,
                       uint32_t* sorted, uint32_t* order, uint8_t* scratch, cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  size_t bytes = SortBytes(count);
  return cub::DeviceRadixSort::SortPairs(scratch, bytes, keys, sorted, counted, order,
                                         static_cast<int>(count), 0, static_cast<int>(bits),
                                         stream);
}

}  // namespace device
}  // namespace hotbed
