#include "device/cuda/step_launch.cuh"

namespace hotbed {
namespace device {

cudaError_t LaunchPlainSteps(OptimizerKind kind, const UpdateBatch& batch, uint32_t processors,
                             cudaStream_t stream) {
  switch (kind) {
    case OptimizerKind::kSgd:
      return LaunchSteps<OptimizerKind::kSgd, StepWay::kPlain>(batch, processors, stream);
    case OptimizerKind::kAdagrad:
      return LaunchSteps<OptimizerKind::kAdagrad, StepWay::kPlain>(batch, processors, stream);
    case OptimizerKind::kRowwiseAdagrad:
      return LaunchSteps<OptimizerKind::kRowwiseAdagrad, StepWay::kPlain>(batch, processors,
                                                                          stream);
    case OptimizerKind::kAdam:
      return LaunchSteps<OptimizerKind::kAdam, StepWay::kPlain>(batch, processors, stream);
    case OptimizerKind::kMomentumSgd:
      return LaunchSteps<OptimizerKind::kMomentumSgd, StepWay::kPlain>(batch, processors, stream);
    case OptimizerKind::kPartialRowwiseAdam:
      return LaunchSteps<OptimizerKind::kPartialRowwiseAdam, StepWay::kPlain>(batch, processors,
                                                                              stream);
    case OptimizerKind::kLamb:
      return LaunchSteps<OptimizerKind::kLamb, StepWay::kPlain>(batch, processors, stream);
    case OptimizerKind::kPartialRowwiseLamb:
      return LaunchSteps<OptimizerKind::kPartialRowwiseLamb, StepWay::kPlain>(batch, processors,
                                                                              stream);
    case OptimizerKind::kLars:
      return LaunchSteps<OptimizerKind::kLars, StepWay::kPlain>(batch, processors, stream);
    case OptimizerKind::kFtrl:
      return LaunchSteps<OptimizerKind::kFtrl, StepWay::kPlain>(batch, processors, stream);
    case OptimizerKind::kRmsProp:
      return LaunchSteps<OptimizerKind::kRmsProp, StepWay::kPlain>(batch, processors, stream);
    case OptimizerKind::kNone:
      return LaunchSteps<OptimizerKind::kNone, StepWay::kPlain>(batch, processors, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace device
}  // namespace hotbed
