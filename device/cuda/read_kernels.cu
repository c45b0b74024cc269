#include "device/cuda/launch.cuh"

namespace hotbed {
namespace device {

cudaError_t LaunchRead(const ReadWork& work, uint32_t blocks_max, cudaStream_t stream) {
  return LaunchUnits(work, blocks_max, stream);
}
cudaError_t LaunchPool(const PoolWork& work, uint32_t blocks_max, cudaStream_t stream) {
  return LaunchUnits(work, blocks_max, stream);
}
cudaError_t LaunchDecode(const DecodeWork& work, uint32_t blocks_max, cudaStream_t stream) {
  return LaunchUnits(work, blocks_max, stream);
}

}  // namespace device
}  // namespace hotbed
