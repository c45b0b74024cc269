#include "device/cuda/launch.cuh"

namespace hotbed {
namespace device {

HOTBED_KERNEL(ReadWork);
HOTBED_KERNEL(LeftWork);
HOTBED_KERNEL(PoolWork);

}  // namespace device
}  // namespace hotbed
