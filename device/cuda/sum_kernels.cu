#include "device/cuda/launch.cuh"

namespace hotbed {
namespace device {

cudaError_t LaunchSums(const SumWork& work, uint32_t processors, cudaStream_t stream) {
  return LaunchUnits(work, processors, stream);
}

}  // namespace device
}  // namespace hotbed
