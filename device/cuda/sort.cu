#include <cub/device/device_radix_sort.cuh>

#include "device/cuda/launch.cuh"

namespace hotbed {
namespace device {
namespace {

__global__ void Count(uint32_t* numbers, uint32_t count) {
  const uint32_t i = blockIdx.x * kBlockThreads + threadIdx.x;
  if (i < count) numbers[i] = i;
}

uint64_t NumbersBytes(uint32_t count) { return (4ull * count + 255) / 256 * 256; }

uint64_t RadixBytes(uint32_t count) {
  size_t bytes = 0;
  cub::DeviceRadixSort::SortPairs<uint32_t, uint32_t>(nullptr, bytes, nullptr, nullptr, nullptr,
                                                      nullptr, static_cast<int>(count));
  return bytes;
}

}  // namespace

uint64_t SortBytes(uint32_t count) { return NumbersBytes(count) + RadixBytes(count); }

cudaError_t LaunchSort(const uint32_t* keys, uint32_t count, uint32_t bits, uint32_t* sorted,
                       uint32_t* order, uint8_t* scratch, cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  auto* const numbers = reinterpret_cast<uint32_t*>(scratch);
  Count<<<(count + kBlockThreads - 1) / kBlockThreads, kBlockThreads, 0, stream>>>(numbers, count);
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return error;
  size_t bytes = RadixBytes(count);
  return cub::DeviceRadixSort::SortPairs(scratch + NumbersBytes(count), bytes, keys, sorted,
                                         numbers, order, static_cast<int>(count), 0,
                                         static_cast<int>(bits), stream);
}

}  // namespace device
}  // namespace hotbed
