// What --device means on this machine: opens the device that holds the hottest rows, or says why
// there is none.
#ifndef HOTBED_SERVER_DEVICE_CHOICE_H_
#define HOTBED_SERVER_DEVICE_CHOICE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/tiers/device/device_tier.h"

namespace hotbed {

// `device`: auto, host, cuda or emulated. Null: rows are in the host's memory; the log says why,
// in one line. `device_bytes`: 0 for nine tenths of what is free; `host_bytes_max`: about what the
// host's side of it may take. FailedPrecondition: `cuda`, and it cannot be had.
absl::StatusOr<std::unique_ptr<DeviceTier>> OpenChosenDevice(const std::string& device,
                                                             uint64_t device_bytes,
                                                             uint64_t host_bytes_max);

}  // namespace hotbed

#endif  // HOTBED_SERVER_DEVICE_CHOICE_H_
