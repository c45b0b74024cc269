#include "device/cuda/launch.cuh"

namespace hotbed {
namespace device {

cudaError_t LaunchBuckets(const BucketWork& work, uint32_t blocks_max, cudaStream_t stream) {
  return LaunchUnits(work, blocks_max, stream);
}
cudaError_t LaunchInsert(const InsertWork& work, uint32_t blocks_max, cudaStream_t stream) {
  return LaunchUnits(work, blocks_max, stream);
}
cudaError_t LaunchTake(const TakeWork& work, uint32_t blocks_max, cudaStream_t stream) {
  return LaunchUnits(work, blocks_max, stream);
}
cudaError_t LaunchRelease(const ReleaseWork& work, uint32_t blocks_max, cudaStream_t stream) {
  return LaunchUnits(work, blocks_max, stream);
}

}  // namespace device
}  // namespace hotbed
