#include "server/tiers/device/device_staging.h"

namespace hotbed {

DeviceStaging::~DeviceStaging() {
  for (uint8_t* memory : taken_) device_->FreeStaging(memory);
}

template <typename T>
device::Status DeviceStaging::TakeArray(uint64_t count, T** array) {
  uint8_t* memory = nullptr;
  const uint64_t bytes = sizeof(T) * count;
  device::Status status = device_->AllocateStaging(bytes, &memory);
  if (!status.ok()) return status;
  *array = reinterpret_cast<T*>(memory);
  taken_.push_back(memory);
  bytes_ += bytes;
  return status;
}

device::Status DeviceStaging::Take(const device::RowsOptions& options) {
  const uint64_t ids = options.ids_max;
  device::Status status;
  for (Flight& flight : flights_) {
    if (status.ok()) status = TakeArray(options.row_bytes_max, &flight.rows);
    if (status.ok()) status = TakeArray(ids, &flight.ids);
    if (status.ok()) status = TakeArray(ids, &flight.flags);
  }
  if (status.ok()) status = TakeArray(ids + 1, &bag_offsets_);
  if (status.ok()) status = TakeArray(ids, &weights_);
  return status;
}

}  // namespace hotbed
