#include "device/cuda/launch.cuh"

namespace hotbed {
namespace device {

cudaError_t LaunchPlainSteps(OptimizerKind kind, const UpdateBatch& batch, uint32_t processors,
                             cudaStream_t stream) {
  switch (kind) {
    case OptimizerKind::kSgd:
      return LaunchUnits(StepWork<OptimizerKind::kSgd, StepWay::kPlain>{batch}, processors, stream);
    case OptimizerKind::kAdagrad:
      return LaunchUnits(StepWork<OptimizerKind::kAdagrad, StepWay::kPlain>{batch}, processors,
                         stream);
    case OptimizerKind::kRowwiseAdagrad:
      return LaunchUnits(StepWork<OptimizerKind::kRowwiseAdagrad, StepWay::kPlain>{batch},
                         processors, stream);
    case OptimizerKind::kAdam:
      return LaunchUnits(StepWork<OptimizerKind::kAdam, StepWay::kPlain>{batch}, processors,
                         stream);
    case OptimizerKind::kMomentumSgd:
      return LaunchUnits(StepWork<OptimizerKind::kMomentumSgd, StepWay::kPlain>{batch}, processors,
                         stream);
    case OptimizerKind::kPartialRowwiseAdam:
      return LaunchUnits(StepWork<OptimizerKind::kPartialRowwiseAdam, StepWay::kPlain>{batch},
                         processors, stream);
    case OptimizerKind::kLamb:
      return LaunchUnits(StepWork<OptimizerKind::kLamb, StepWay::kPlain>{batch}, processors,
                         stream);
    case OptimizerKind::kPartialRowwiseLamb:
      return LaunchUnits(StepWork<OptimizerKind::kPartialRowwiseLamb, StepWay::kPlain>{batch},
                         processors, stream);
    case OptimizerKind::kLars:
      return LaunchUnits(StepWork<OptimizerKind::kLars, StepWay::kPlain>{batch}, processors,
                         stream);
    case OptimizerKind::kFtrl:
      return LaunchUnits(StepWork<OptimizerKind::kFtrl, StepWay::kPlain>{batch}, processors,
                         stream);
    case OptimizerKind::kRmsProp:
      return LaunchUnits(StepWork<OptimizerKind::kRmsProp, StepWay::kPlain>{batch}, processors,
                         stream);
    case OptimizerKind::kNone:
      return LaunchUnits(StepWork<OptimizerKind::kNone, StepWay::kPlain>{batch}, processors,
                         stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace device
}  // namespace hotbed
