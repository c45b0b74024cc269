#include "device/cuda/step_launch.cuh"

namespace hotbed {
namespace device {

cudaError_t LaunchOptionSteps(OptimizerKind kind, const UpdateBatch& batch, uint32_t processors,
                              cudaStream_t stream) {
  switch (kind) {
    case OptimizerKind::kSgd:
      return LaunchSteps<OptimizerKind::kSgd, StepWay::kOptions>(batch, processors, stream);
    case OptimizerKind::kAdagrad:
      return LaunchSteps<OptimizerKind::kAdagrad, StepWay::kOptions>(batch, processors, stream);
    case OptimizerKind::kAdam:
      return LaunchSteps<OptimizerKind::kAdam, StepWay::kOptions>(batch, processors, stream);
    case OptimizerKind::kMomentumSgd:
      return LaunchSteps<OptimizerKind::kMomentumSgd, StepWay::kOptions>(batch, processors, stream);
    case OptimizerKind::kFtrl:
      return LaunchSteps<OptimizerKind::kFtrl, StepWay::kOptions>(batch, processors, stream);
    case OptimizerKind::kRmsProp:
      return LaunchSteps<OptimizerKind::kRmsProp, StepWay::kOptions>(batch, processors, stream);
    case OptimizerKind::kNone:
      return LaunchSteps<OptimizerKind::kNone, StepWay::kOptions>(batch, processors, stream);
    default:
      return LaunchRowwiseOptionSteps(kind, batch, processors, stream);
  }
}

}  // namespace device
}  // namespace hotbed
