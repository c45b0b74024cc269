#include "device/cuda/launch.cuh"

namespace hotbed {
namespace device {

HOTBED_KERNEL(BucketWork);
HOTBED_KERNEL(InsertWork);
HOTBED_KERNEL(ExchangeWork);
HOTBED_KERNEL(FirstValueWork);
HOTBED_KERNEL(TakeWork);
HOTBED_KERNEL(ReleaseWork);

}  // namespace device
}  // namespace hotbed
