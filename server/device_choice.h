// Resolves --device on this machine: opens the device that holds the hottest rows, or logs why
// there is none. Thread-compatible.
#ifndef HOTBED_SERVER_DEVICE_CHOICE_H_
#define HOTBED_SERVER_DEVICE_CHOICE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/tiers/device/device_tier.h"

namespace hotbed {

// `device`: auto, host, cuda or emulated. Null: rows stay in the host's memory; one log line says
// why. `device_bytes`: 0 for nine tenths of the free device memory. `host_bytes_max`: the
// approximate limit of the host memory that the device tier takes. FailedPrecondition: the chosen
// device cannot be opened.
absl::StatusOr<std::unique_ptr<DeviceTier>> OpenChosenDevice(const std::string& device,
                                                             uint64_t device_bytes,
                                                             uint64_t host_bytes_max);

}  // namespace hotbed

#endif  // HOTBED_SERVER_DEVICE_CHOICE_H_
