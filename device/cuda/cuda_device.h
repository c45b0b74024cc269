// A GPU as a Device: one stream of a CUDA device per queue. Includes no CUDA header, so that
// callers need none.
//
// Used on any thread, one at a time (except PinStaging and UnpinStaging); it becomes the thread's
// current device. Memory is plain cudaMalloc, staging is pinned. The first CUDA error is permanent
// (CUDA errors are sticky).
#ifndef HOTBED_DEVICE_CUDA_CUDA_DEVICE_H_
#define HOTBED_DEVICE_CUDA_CUDA_DEVICE_H_

#include <memory>

#include "device/device.h"

namespace hotbed {
namespace device {

// kNoDevice: no driver, no such device, or a device older than the compiled code supports.
Status OpenCudaDevice(int number, std::unique_ptr<Device>* device);

}  // namespace device
}  // namespace hotbed

#endif  // HOTBED_DEVICE_CUDA_CUDA_DEVICE_H_
