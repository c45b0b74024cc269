#include "device/cuda/launch.cuh"

namespace hotbed {
namespace device {

cudaError_t LaunchRowwiseOptionSteps(OptimizerKind kind, const UpdateBatch& batch,
                                     uint32_t processors, cudaStream_t stream) {
  switch (kind) {
    case OptimizerKind::kRowwiseAdagrad:
      return LaunchUnits(StepWork<OptimizerKind::kRowwiseAdagrad, StepWay::kOptions>{batch},
                         processors, stream);
    case OptimizerKind::kPartialRowwiseAdam:
      return LaunchUnits(StepWork<OptimizerKind::kPartialRowwiseAdam, StepWay::kOptions>{batch},
                         processors, stream);
    case OptimizerKind::kLamb:
      return LaunchUnits(StepWork<OptimizerKind::kLamb, StepWay::kOptions>{batch}, processors,
                         stream);
    case OptimizerKind::kPartialRowwiseLamb:
      return LaunchUnits(StepWork<OptimizerKind::kPartialRowwiseLamb, StepWay::kOptions>{batch},
                         processors, stream);
    case OptimizerKind::kLars:
      return LaunchUnits(StepWork<OptimizerKind::kLars, StepWay::kOptions>{batch}, processors,
                         stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace device
}  // namespace hotbed
