#include "device/cuda/step_launch.cuh"

namespace hotbed {
namespace device {

cudaError_t LaunchPieces(const PieceWork& work, uint32_t blocks_max, cudaStream_t stream) {
  return LaunchUnits(work, blocks_max, stream);
}

cudaError_t LaunchPlainSteps(OptimizerKind kind, const UpdateBatch& batch, uint32_t blocks_max,
                             cudaStream_t stream) {
  switch (kind) {
    case OptimizerKind::kSgd:
      return LaunchSteps<OptimizerKind::kSgd>(batch, blocks_max, stream);
    case OptimizerKind::kAdagrad:
      return LaunchSteps<OptimizerKind::kAdagrad>(batch, blocks_max, stream);
    case OptimizerKind::kAdam:
      return LaunchSteps<OptimizerKind::kAdam>(batch, blocks_max, stream);
    case OptimizerKind::kMomentumSgd:
      return LaunchSteps<OptimizerKind::kMomentumSgd>(batch, blocks_max, stream);
    case OptimizerKind::kFtrl:
      return LaunchSteps<OptimizerKind::kFtrl>(batch, blocks_max, stream);
    case OptimizerKind::kRmsProp:
      return LaunchSteps<OptimizerKind::kRmsProp>(batch, blocks_max, stream);
    case OptimizerKind::kNone:
      return LaunchSteps<OptimizerKind::kNone>(batch, blocks_max, stream);
    default:
      return LaunchRowwiseSteps(kind, batch, blocks_max, stream);
  }
}

}  // namespace device
}  // namespace hotbed
