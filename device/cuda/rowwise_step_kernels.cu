#include "device/cuda/step_launch.cuh"

namespace hotbed {
namespace device {

cudaError_t LaunchRowwiseSteps(OptimizerKind kind, const UpdateBatch& batch, uint32_t processors,
                               cudaStream_t stream) {
  switch (kind) {
    case OptimizerKind::kRowwiseAdagrad:
      return LaunchSteps<OptimizerKind::kRowwiseAdagrad>(batch, processors, stream);
    case OptimizerKind::kPartialRowwiseAdam:
      return LaunchSteps<OptimizerKind::kPartialRowwiseAdam>(batch, processors, stream);
    case OptimizerKind::kLamb:
      return LaunchSteps<OptimizerKind::kLamb>(batch, processors, stream);
    case OptimizerKind::kPartialRowwiseLamb:
      return LaunchSteps<OptimizerKind::kPartialRowwiseLamb>(batch, processors, stream);
    case OptimizerKind::kLars:
      return LaunchSteps<OptimizerKind::kLars>(batch, processors, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace device
}  // namespace hotbed
