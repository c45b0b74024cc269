#include "device/cuda/launch.cuh"

namespace hotbed {
namespace device {

cudaError_t LaunchOptionSteps(OptimizerKind kind, const UpdateBatch& batch, uint32_t processors,
                              cudaStream_t stream) {
  switch (kind) {
    case OptimizerKind::kSgd:
      return LaunchUnits(StepWork<OptimizerKind::kSgd, StepWay::kOptions>{batch}, processors,
                         stream);
    case OptimizerKind::kAdagrad:
      return LaunchUnits(StepWork<OptimizerKind::kAdagrad, StepWay::kOptions>{batch}, processors,
                         stream);
    case OptimizerKind::kAdam:
      return LaunchUnits(StepWork<OptimizerKind::kAdam, StepWay::kOptions>{batch}, processors,
                         stream);
    case OptimizerKind::kMomentumSgd:
      return LaunchUnits(StepWork<OptimizerKind::kMomentumSgd, StepWay::kOptions>{batch},
                         processors, stream);
    case OptimizerKind::kFtrl:
      return LaunchUnits(StepWork<OptimizerKind::kFtrl, StepWay::kOptions>{batch}, processors,
                         stream);
    case OptimizerKind::kRmsProp:
      return LaunchUnits(StepWork<OptimizerKind::kRmsProp, StepWay::kOptions>{batch}, processors,
                         stream);
    case OptimizerKind::kNone:
      return LaunchUnits(StepWork<OptimizerKind::kNone, StepWay::kOptions>{batch}, processors,
                         stream);
    default:
      return LaunchRowwiseOptionSteps(kind, batch, processors, stream);
  }
}

}  // namespace device
}  // namespace hotbed
