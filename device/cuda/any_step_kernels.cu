#include "device/cuda/launch.cuh"

namespace hotbed {
namespace device {

HOTBED_KERNEL(AnyStepWork);

}  // namespace device
}  // namespace hotbed
