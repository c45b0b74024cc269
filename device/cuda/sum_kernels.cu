#include "device/cuda/launch.cuh"

namespace hotbed {
namespace device {

HOTBED_KERNEL(SumWork);

}  // namespace device
}  // namespace hotbed
