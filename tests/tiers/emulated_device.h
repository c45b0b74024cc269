// A device tier over an emulated device, with limits small enough that jobs are cut.
#ifndef HOTBED_TESTS_TIERS_EMULATED_DEVICE_H_
#define HOTBED_TESTS_TIERS_EMULATED_DEVICE_H_

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "device/host_device.h"
#include "server/tiers/device_tier.h"

namespace hotbed {

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

// Opens an emulated device with `slab_bytes` for tables beside what messages take. `faults` is read
// at each opening.
inline std::function<absl::StatusOr<std::unique_ptr<DeviceTier>>()> EmulatedDevice(
    device::RowsOptions rows, uint64_t slab_bytes,
    std::function<device::HostDeviceOptions()> faults = [] {
      return device::HostDeviceOptions();
    }) {
  return [rows, slab_bytes, faults]() -> absl::StatusOr<std::unique_ptr<DeviceTier>> {
    device::RowsOptions options = rows;
    options.device_bytes = 2 << 20;
    auto probe = DeviceTier::Open(std::make_unique<device::HostDevice>(), options);
    if (!probe.ok()) return probe;
    options.device_bytes += slab_bytes - (*probe)->slab_bytes();
    return DeviceTier::Open(std::make_unique<device::HostDevice>(faults()), options);
  };
}

}  // namespace hotbed

#endif  // HOTBED_TESTS_TIERS_EMULATED_DEVICE_H_
