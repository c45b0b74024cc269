#include "device/cuda/step_launch.cuh"

namespace hotbed {
namespace device {

cudaError_t LaunchRowwiseOptionSteps(OptimizerKind kind, const UpdateBatch& batch,
                                     uint32_t processors, cudaStream_t stream) {
  switch (kind) {
    case OptimizerKind::kRowwiseAdagrad:
      return LaunchSteps<OptimizerKind::kRowwiseAdagrad, StepWay::kOptions>(batch, processors,
                                                                            stream);
    case OptimizerKind::kPartialRowwiseAdam:
      return LaunchSteps<OptimizerKind::kPartialRowwiseAdam, StepWay::kOptions>(batch, processors,
                                                                                stream);
    case OptimizerKind::kLamb:
      return LaunchSteps<OptimizerKind::kLamb, StepWay::kOptions>(batch, processors, stream);
    case OptimizerKind::kPartialRowwiseLamb:
      return LaunchSteps<OptimizerKind::kPartialRowwiseLamb, StepWay::kOptions>(batch, processors,
                                                                                stream);
    case OptimizerKind::kLars:
      return LaunchSteps<OptimizerKind::kLars, StepWay::kOptions>(batch, processors, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace device
}  // namespace hotbed
