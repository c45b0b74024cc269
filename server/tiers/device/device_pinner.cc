#include "server/tiers/device/device_pinner.h"

#include "common/log.h"

namespace hotbed {

bool DevicePinner::Pin(uint8_t* memory, uint64_t bytes) {
  if (refused_.load(std::memory_order_relaxed)) return false;
  const device::Status status = device_->PinStaging(memory, bytes);
  if (status.ok()) {
    bytes_.fetch_add(bytes, std::memory_order_relaxed);
    return true;
  }
  if (!refused_.exchange(true)) {
    HOTBED_LOG(Warning) << "no more memory of answers is pinned than " << this->bytes()
                        << " bytes: rows from the device are copied once more on the host ("
                        << status.message << ")";
  }
  return false;
}

void DevicePinner::Unpin(uint8_t* memory, uint64_t bytes) {
  device_->UnpinStaging(memory);
  bytes_.fetch_sub(bytes, std::memory_order_relaxed);
}

}  // namespace hotbed
