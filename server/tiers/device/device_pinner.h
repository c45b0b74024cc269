// Pins memory of answers for the device of a DeviceTier, and logs the system's first refusal.
#ifndef HOTBED_SERVER_TIERS_DEVICE_DEVICE_PINNER_H_
#define HOTBED_SERVER_TIERS_DEVICE_DEVICE_PINNER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "device/device.h"
#include "server/tiers/api/answer_memory.h"

namespace hotbed {

class DevicePinner : public MemoryPinner {
 public:
  explicit DevicePinner(std::shared_ptr<device::Device> device) : device_(std::move(device)) {}

  // After the first refusal all further memory stays plain.
  bool Pin(uint8_t* memory, uint64_t bytes) override;
  void Unpin(uint8_t* memory, uint64_t bytes) override;

  uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }  // pinned now

 private:
  const std::shared_ptr<device::Device> device_;
  std::atomic<bool> refused_{false};
  std::atomic<uint64_t> bytes_{0};
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_TIERS_DEVICE_DEVICE_PINNER_H_
