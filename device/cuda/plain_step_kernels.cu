#include "device/cuda/step_launch.cuh"

namespace hotbed {
namespace device {

cudaError_t LaunchSums(const SumWork& work, uint32_t processors, cudaStream_t stream) {
  return LaunchUnits(work, processors, stream);
}

cudaError_t LaunchPlainSteps(OptimizerKind kind, const UpdateBatch& batch, uint32_t processors,
                             cudaStream_t stream) {
  switch (kind) {
    case OptimizerKind::kSgd:
      return LaunchSteps<OptimizerKind::kSgd>(batch, processors, stream);
    case OptimizerKind::kAdagrad:
      return LaunchSteps<OptimizerKind::kAdagrad>(batch, processors, stream);
    case OptimizerKind::kAdam:
      return LaunchSteps<OptimizerKind::kAdam>(batch, processors, stream);
    case OptimizerKind::kMomentumSgd:
      return LaunchSteps<OptimizerKind::kMomentumSgd>(batch, processors, stream);
    case OptimizerKind::kFtrl:
      return LaunchSteps<OptimizerKind::kFtrl>(batch, processors, stream);
    case OptimizerKind::kRmsProp:
      return LaunchSteps<OptimizerKind::kRmsProp>(batch, processors, stream);
    case OptimizerKind::kNone:
      return LaunchSteps<OptimizerKind::kNone>(batch, processors, stream);
    default:
      return LaunchRowwiseSteps(kind, batch, processors, stream);
  }
}

}  // namespace device
}  // namespace hotbed
