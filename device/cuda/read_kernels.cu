#include "device/cuda/launch.cuh"

namespace hotbed {
namespace device {

cudaError_t LaunchRead(const ReadWork& work, uint32_t processors, cudaStream_t stream) {
  return LaunchUnits(work, processors, stream);
}
cudaError_t LaunchLeft(const LeftWork& work, uint32_t processors, cudaStream_t stream) {
  return LaunchUnits(work, processors, stream);
}
cudaError_t LaunchPool(const PoolWork& work, uint32_t processors, cudaStream_t stream) {
  return LaunchUnits(work, processors, stream);
}
cudaError_t LaunchDecode(const DecodeWork& work, uint32_t processors, cudaStream_t stream) {
  return LaunchUnits(work, processors, stream);
}

}  // namespace device
}  // namespace hotbed
