// A device tier over an emulated device, with limits small enough that jobs are cut. In a test that
// is built with HOTBED_HAVE_CUDA, over the first GPU instead; that takes no faults.
#ifndef HOTBED_TESTS_TIERS_EMULATED_DEVICE_H_
#define HOTBED_TESTS_TIERS_EMULATED_DEVICE_H_

#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/host_device.h"
#include "server/tiers/device/device_tier.h"
#ifdef HOTBED_HAVE_CUDA
#include "device/cuda/cuda_device.h"
#endif

namespace hotbed {

#ifdef HOTBED_HAVE_CUDA
constexpr uint64_t kTestRoomBytes = 256 << 20;  // for messages, and more: its sums are many
inline device::Status OpenTestDevice(const device::HostDeviceOptions&,
                                     std::unique_ptr<device::Device>* opened) {
  return device::OpenCudaDevice(0, opened);
}
#else
constexpr uint64_t kTestRoomBytes = 2 << 20;
inline device::Status OpenTestDevice(device::HostDeviceOptions faults,
                                     std::unique_ptr<device::Device>* opened) {
  faults.staging_only = true;
  *opened = std::make_unique<device::HostDevice>(faults);
  return {};
}
#endif

// The tier of one.
inline absl::StatusOr<std::unique_ptr<DeviceTier>> OpenTestTier(
    const device::HostDeviceOptions& faults, const device::RowsOptions& options) {
  std::unique_ptr<device::Device> opened;
  const device::Status status = OpenTestDevice(faults, &opened);
  if (!status.ok()) return absl::FailedPreconditionError(status.message);
  return DeviceTier::Open(std::move(opened), options);
}

// Limits of messages; rows of up to 8 * ids_max bytes.
inline device::RowsOptions SmallMessages(uint32_t ids_max) {
  device::RowsOptions rows;
  rows.ids_max = ids_max;
  rows.segments_max = 16;
  rows.tables_max = 64;
  rows.row_bytes_max = uint64_t{32} * ids_max;
  rows.move_bytes_max = 1024;
  return rows;
}

// Opens an emulated device with `slab_bytes` for tables, in addition to messages. `faults` is read
// at each opening.
inline std::function<absl::StatusOr<std::unique_ptr<DeviceTier>>()> EmulatedDevice(
    device::RowsOptions rows, uint64_t slab_bytes,
    std::function<device::HostDeviceOptions()> faults = [] {
      return device::HostDeviceOptions();
    }) {
  return [rows, slab_bytes,
          faults = std::move(faults)]() -> absl::StatusOr<std::unique_ptr<DeviceTier>> {
    device::RowsOptions options = rows;
    options.device_bytes = kTestRoomBytes;
    auto probe = OpenTestTier({}, options);
    if (!probe.ok()) return probe;
    options.device_bytes += slab_bytes - (*probe)->slab_bytes();
    auto tier = OpenTestTier(faults(), options);
    if (tier.ok()) (*tier)->SetDirectBytesMin(1);  // their rows are few
    return tier;
  };
}

}  // namespace hotbed

#endif  // HOTBED_TESTS_TIERS_EMULATED_DEVICE_H_
