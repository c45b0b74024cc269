// The host memory of answers, as a device sees it: whether the device may copy rows straight into
// it, and how to keep the memory while it does (docs/device.md).
#ifndef HOTBED_SERVER_TIERS_API_ANSWER_MEMORY_H_
#define HOTBED_SERVER_TIERS_API_ANSWER_MEMORY_H_

#include <cstdint>
#include <memory>

namespace hotbed {

// The memory of one answer. Thread-safe.
class AnswerMemory {
 public:
  // A device may copy into it while its kernels run.
  virtual bool pinned() const = 0;
  // Called while the memory surely belongs to this answer. Until Release it is neither freed nor
  // used for another answer, whatever its owner does.
  virtual void Hold() = 0;
  virtual void Release() = 0;

 protected:
  ~AnswerMemory() = default;
};

struct ReleaseAnswer {
  void operator()(AnswerMemory* memory) const { memory->Release(); }
};
using HeldAnswer = std::unique_ptr<AnswerMemory, ReleaseAnswer>;

// Pins memory for a device and keeps that device alive. Thread-safe.
class MemoryPinner {
 public:
  virtual ~MemoryPinner() = default;
  // Pins whole pages, which become resident. False: they stay plain memory, which works too but
  // costs one more memcpy.
  virtual bool Pin(uint8_t* memory, uint64_t bytes) = 0;
  // Takes back a Pin before the memory is freed; no copy to it may be in flight.
  virtual void Unpin(uint8_t* memory, uint64_t bytes) = 0;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_TIERS_API_ANSWER_MEMORY_H_
