// Host memory in which answers are made, as a device sees it: whether it may copy rows straight
// there, and how to keep the memory while it does (docs/device.md).
#ifndef HOTBED_SERVER_TIERS_API_ANSWER_MEMORY_H_
#define HOTBED_SERVER_TIERS_API_ANSWER_MEMORY_H_

#include <cstdint>
#include <memory>

namespace hotbed {

// The memory of one answer. Thread-safe.
class AnswerMemory {
 public:
  // A device may copy there beside its works.
  virtual bool pinned() const = 0;
  // Called by who knows that the memory is in use: it is neither used for another answer nor freed
  // before Release, whatever its owner does.
  virtual void Hold() = 0;
  virtual void Release() = 0;

 protected:
  ~AnswerMemory() = default;
};

struct ReleaseAnswer {
  void operator()(AnswerMemory* memory) const { memory->Release(); }
};
using HeldAnswer = std::unique_ptr<AnswerMemory, ReleaseAnswer>;

// Makes memory known to a device, which it keeps. Thread-safe.
class MemoryPinner {
 public:
  virtual ~MemoryPinner() = default;
  // Whole pages, which become resident. False: they stay plain memory, which works as well, with
  // one copy more.
  virtual bool Pin(uint8_t* memory, uint64_t bytes) = 0;
  // What Pin was given, before it is freed; no copy to it is under way.
  virtual void Unpin(uint8_t* memory, uint64_t bytes) = 0;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_TIERS_API_ANSWER_MEMORY_H_
