#include "device/cuda/step_launch.cuh"

namespace hotbed {
namespace device {

cudaError_t LaunchRowwiseSteps(OptimizerKind kind, const UpdateBatch& batch, uint32_t blocks_max,
                               cudaStream_t stream) {
  switch (kind) {
    case OptimizerKind::kRowwiseAdagrad:
      return LaunchSteps<OptimizerKind::kRowwiseAdagrad>(batch, blocks_max, stream);
    case OptimizerKind::kPartialRowwiseAdam:
      return LaunchSteps<OptimizerKind::kPartialRowwiseAdam>(batch, blocks_max, stream);
    case OptimizerKind::kLamb:
      return LaunchSteps<OptimizerKind::kLamb>(batch, blocks_max, stream);
    case OptimizerKind::kPartialRowwiseLamb:
      return LaunchSteps<OptimizerKind::kPartialRowwiseLamb>(batch, blocks_max, stream);
    case OptimizerKind::kLars:
      return LaunchSteps<OptimizerKind::kLars>(batch, blocks_max, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace device
}  // namespace hotbed
