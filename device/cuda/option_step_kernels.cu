#include "device/cuda/launch.cuh"

namespace hotbed {
namespace device {

HOTBED_KERNEL(StepWork<OptimizerKind::kSgd, StepWay::kOptions>);
HOTBED_KERNEL(StepWork<OptimizerKind::kAdagrad, StepWay::kOptions>);
HOTBED_KERNEL(StepWork<OptimizerKind::kAdam, StepWay::kOptions>);
HOTBED_KERNEL(StepWork<OptimizerKind::kMomentumSgd, StepWay::kOptions>);
HOTBED_KERNEL(StepWork<OptimizerKind::kFtrl, StepWay::kOptions>);
HOTBED_KERNEL(StepWork<OptimizerKind::kRmsProp, StepWay::kOptions>);
HOTBED_KERNEL(StepWork<OptimizerKind::kNone, StepWay::kOptions>);
HOTBED_KERNEL(StepWork<OptimizerKind::kLion, StepWay::kOptions>);
HOTBED_KERNEL(StepWork<OptimizerKind::kAdadelta, StepWay::kOptions>);

}  // namespace device
}  // namespace hotbed
