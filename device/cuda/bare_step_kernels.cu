#include "device/cuda/launch.cuh"

namespace hotbed {
namespace device {

#define HOTBED_STEP(kind) HOTBED_KERNEL(StepWork<OptimizerKind::kind, StepWay::kBare>);
HOTBED_STEP_KINDS(HOTBED_STEP)

}  // namespace device
}  // namespace hotbed
