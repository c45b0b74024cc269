#include "device/cuda/launch.cuh"

namespace hotbed {
namespace device {

HOTBED_KERNEL(StepWork<OptimizerKind::kRowwiseAdagrad, StepWay::kOptions>);
HOTBED_KERNEL(StepWork<OptimizerKind::kPartialRowwiseAdam, StepWay::kOptions>);
HOTBED_KERNEL(StepWork<OptimizerKind::kLamb, StepWay::kOptions>);
HOTBED_KERNEL(StepWork<OptimizerKind::kPartialRowwiseLamb, StepWay::kOptions>);
HOTBED_KERNEL(StepWork<OptimizerKind::kLars, StepWay::kOptions>);
HOTBED_KERNEL(StepWork<OptimizerKind::kRowwiseRmsProp, StepWay::kOptions>);

}  // namespace device
}  // namespace hotbed
