// Pinned host memory for the messages of a DeviceTier: the device reads requests from it and writes
// answers to it. Taken once; freed with the object. Not thread-safe.
#ifndef HOTBED_SERVER_TIERS_DEVICE_DEVICE_STAGING_H_
#define HOTBED_SERVER_TIERS_DEVICE_DEVICE_STAGING_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "device/device.h"
#include "device/device_rows.h"

namespace hotbed {

class DeviceStaging {
 public:
  // The memory of one message in flight.
  struct Flight {
    uint8_t* rows = nullptr;   // RowsOptions::row_bytes_max
    uint64_t* ids = nullptr;   // RowsOptions::ids_max, as all that follow
    uint8_t* flags = nullptr;  // one per id
  };

  explicit DeviceStaging(std::shared_ptr<device::Device> device) : device_(std::move(device)) {}
  ~DeviceStaging();
  DeviceStaging(const DeviceStaging&) = delete;

  // For messages of these limits. An error leaves the rest untaken.
  device::Status Take(const device::RowsOptions& options);

  // A pooled message, which runs alone, uses flight 0.
  const Flight& flight(uint32_t number) const { return flights_[number]; }
  uint32_t* bag_offsets() const { return bag_offsets_; }  // ids_max + 1
  float* weights() const { return weights_; }             // ids_max
  uint64_t bytes() const { return bytes_; }

 private:
  template <typename T>
  device::Status TakeArray(uint64_t count, T** array);

  const std::shared_ptr<device::Device> device_;
  Flight flights_[device::kFlights];
  uint32_t* bag_offsets_ = nullptr;
  float* weights_ = nullptr;
  std::vector<uint8_t*> taken_;
  uint64_t bytes_ = 0;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_TIERS_DEVICE_DEVICE_STAGING_H_
