// StepWork of one kind.
#ifndef HOTBED_DEVICE_CUDA_STEP_LAUNCH_CUH_
#define HOTBED_DEVICE_CUDA_STEP_LAUNCH_CUH_

#include "device/cuda/launch.cuh"

namespace hotbed {
namespace device {

template <OptimizerKind kKind, StepWay kWay>
cudaError_t LaunchSteps(const UpdateBatch& batch, uint32_t processors, cudaStream_t stream) {
  return LaunchUnits(StepWork<kKind, kWay>{batch}, processors, stream);
}

}  // namespace device
}  // namespace hotbed

#endif  // HOTBED_DEVICE_CUDA_STEP_LAUNCH_CUH_
