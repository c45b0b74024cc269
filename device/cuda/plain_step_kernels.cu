#include "device/cuda/launch.cuh"

namespace hotbed {
namespace device {

HOTBED_KERNEL(StepWork<OptimizerKind::kSgd, StepWay::kPlain>);
HOTBED_KERNEL(StepWork<OptimizerKind::kAdagrad, StepWay::kPlain>);
HOTBED_KERNEL(StepWork<OptimizerKind::kRowwiseAdagrad, StepWay::kPlain>);
HOTBED_KERNEL(StepWork<OptimizerKind::kAdam, StepWay::kPlain>);
HOTBED_KERNEL(StepWork<OptimizerKind::kMomentumSgd, StepWay::kPlain>);
HOTBED_KERNEL(StepWork<OptimizerKind::kPartialRowwiseAdam, StepWay::kPlain>);
HOTBED_KERNEL(StepWork<OptimizerKind::kLamb, StepWay::kPlain>);
HOTBED_KERNEL(StepWork<OptimizerKind::kPartialRowwiseLamb, StepWay::kPlain>);
HOTBED_KERNEL(StepWork<OptimizerKind::kLars, StepWay::kPlain>);
HOTBED_KERNEL(StepWork<OptimizerKind::kFtrl, StepWay::kPlain>);
HOTBED_KERNEL(StepWork<OptimizerKind::kRmsProp, StepWay::kPlain>);
HOTBED_KERNEL(StepWork<OptimizerKind::kNone, StepWay::kPlain>);
HOTBED_KERNEL(StepWork<OptimizerKind::kRowwiseRmsProp, StepWay::kPlain>);
HOTBED_KERNEL(StepWork<OptimizerKind::kLion, StepWay::kPlain>);
HOTBED_KERNEL(StepWork<OptimizerKind::kAdadelta, StepWay::kPlain>);

}  // namespace device
}  // namespace hotbed
