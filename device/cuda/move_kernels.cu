#include "device/cuda/launch.cuh"

namespace hotbed {
namespace device {

cudaError_t LaunchBuckets(const BucketWork& work, uint32_t processors, cudaStream_t stream) {
  return LaunchUnits(work, processors, stream);
}
cudaError_t LaunchInsert(const InsertWork& work, uint32_t processors, cudaStream_t stream) {
  return LaunchUnits(work, processors, stream);
}
cudaError_t LaunchFirstValues(const FirstValueWork& work, uint32_t processors,
                              cudaStream_t stream) {
  return LaunchUnits(work, processors, stream);
}
cudaError_t LaunchTake(const TakeWork& work, uint32_t processors, cudaStream_t stream) {
  return LaunchUnits(work, processors, stream);
}
cudaError_t LaunchRelease(const ReleaseWork& work, uint32_t processors, cudaStream_t stream) {
  return LaunchUnits(work, processors, stream);
}

}  // namespace device
}  // namespace hotbed
