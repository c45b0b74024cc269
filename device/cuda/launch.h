// The kernels that the CUDA device launches. Each kernel is compiled in the one file of kernels
// that names its work; sorts are CUB's.
#ifndef HOTBED_DEVICE_CUDA_LAUNCH_H_
#define HOTBED_DEVICE_CUDA_LAUNCH_H_

#include <cuda_runtime.h>

#include <cstdint>

namespace hotbed {
namespace device {

// Launches the kernel of a work over all its units; nothing for 0 units.
template <typename Work>
cudaError_t LaunchUnits(const Work& work, uint32_t processors, cudaStream_t stream);

uint64_t SortBytes(uint32_t count);
cudaError_t LaunchSort(const uint32_t* keys, const uint32_t* counted, uint32_t count, uint32_t bits,
                       uint32_t* sorted, uint32_t* order, uint8_t* scratch, cudaStream_t stream);

}  // namespace device
}  // namespace hotbed

#endif  // HOTBED_DEVICE_CUDA_LAUNCH_H_
