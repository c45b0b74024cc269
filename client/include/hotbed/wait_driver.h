// What a thread that waits for a Future does meanwhile: the network's work, instead of sleeping
// until another thread has done it and wakes it.
#ifndef HOTBED_WAIT_DRIVER_H_
#define HOTBED_WAIT_DRIVER_H_

#include <cstdint>

#include "absl/functional/function_ref.h"

namespace hotbed {

// Thread-safe. Outlives the client whose futures name it: then it has nothing to do.
class WaitDriver {
 public:
  virtual ~WaitDriver() = default;
  // Works until `done` or `deadline_ns` of Clock::Real(): true. False, perhaps in the middle:
  // another thread does the work, or there is none any more; the caller must sleep between
  // Sleeps(true) and Sleeps(false). Who wakes it says the latter, before it wakes.
  virtual bool WorkUntil(absl::FunctionRef<bool()> done, int64_t deadline_ns) = 0;
  virtual void Sleeps(bool begins) = 0;
};

}  // namespace hotbed

#endif  // HOTBED_WAIT_DRIVER_H_
