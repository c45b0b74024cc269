// A GPU as a Device: a stream of one CUDA device for each queue. Includes no CUDA header, so that
// whoever opens one needs none.
//
// Used on any thread, one at a time (but for PinStaging and UnpinStaging); it becomes the thread's
// current device. Memory is plain cudaMalloc, staging is pinned. The first CUDA error is for good
// (they are sticky).
#ifndef HOTBED_DEVICE_CUDA_CUDA_DEVICE_H_
#define HOTBED_DEVICE_CUDA_CUDA_DEVICE_H_

#include <memory>

#include "device/device.h"

namespace hotbed {
namespace device {

// kNoDevice where there is no driver, no such device, or one older than what was compiled for.
Status OpenCudaDevice(int number, std::unique_ptr<Device>* device);

}  // namespace device
}  // namespace hotbed

#endif  // HOTBED_DEVICE_CUDA_CUDA_DEVICE_H_
