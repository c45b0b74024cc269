#include "server/device_choice.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "config/units.h"
#include "device/host_device.h"
#ifdef HOTBED_HAVE_CUDA
#include "device/cuda/cuda_device.h"
#endif

namespace hotbed {
namespace {

constexpr uint64_t kEmulatedBytes = 64ull << 20;

#ifdef HOTBED_HAVE_CUDA
device::Status OpenGpu(std::unique_ptr<device::Device>* opened) {
  return device::OpenCudaDevice(0, opened);
}
#else
device::Status OpenGpu(std::unique_ptr<device::Device>*) {
  return {device::Code::kNoDevice,
          "this build has no CUDA kernels; to have them, build with a CUDA compiler "
          "(docs/device.md)"};
}
#endif

absl::StatusOr<std::unique_ptr<DeviceTier>> OpenTier(bool emulated, uint64_t device_bytes,
                                                     uint64_t host_bytes_max) {
  std::unique_ptr<device::Device> opened;
  if (emulated) {
    device::HostDeviceOptions options;
    options.staging_only = true;  // an access that would be slow on a GPU is an error
    opened = std::make_unique<device::HostDevice>(options);
    if (device_bytes == 0) device_bytes = kEmulatedBytes;
  } else if (const device::Status status = OpenGpu(&opened); !status.ok()) {
    return absl::FailedPreconditionError(status.message);
  }
  return DeviceTier::Open(std::move(opened), device_bytes, host_bytes_max);
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceTier>> OpenChosenDevice(const std::string& device,
                                                             uint64_t device_bytes,
                                                             uint64_t host_bytes_max) {
  if (device == "host") {
    HOTBED_LOG(Info) << "device: host memory (--device=host)";
    return nullptr;
  }
  auto tier = OpenTier(device == "emulated", device_bytes, host_bytes_max);
  if (tier.ok()) {
    HOTBED_LOG(Info) << "device: " << (*tier)->name() << ", "
                     << FormatBytes((*tier)->bytes_limit());
    return tier;
  }
  if (device == "auto") {
    HOTBED_LOG(Info) << "device: host memory (" << tier.status().message() << ")";
    return nullptr;
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "--device=", device, ": ", tier.status().message(), "; --device=host does without"));
}

}  // namespace hotbed
