// The work that a thread does while it waits for a Future: it reads the network itself, instead of
// sleeping until another thread has read the answer and wakes it.
#ifndef HOTBED_WAIT_DRIVER_H_
#define HOTBED_WAIT_DRIVER_H_

#include <cstdint>

#include "absl/functional/function_ref.h"

namespace hotbed {

// Thread-safe. Futures keep it alive beyond their client; it then has no work left.
class WaitDriver {
 public:
  virtual ~WaitDriver() = default;
  // Works until `done` returns true or `deadline_ns` of Clock::Real() passes; then returns true.
  // Returns false, possibly after some work, where another thread does the work or none is left.
  // The caller must then sleep between Sleeps(true) and Sleeps(false); the thread that wakes it
  // calls Sleeps(false) before it does.
  virtual bool WorkUntil(absl::FunctionRef<bool()> done, int64_t deadline_ns) = 0;
  virtual void Sleeps(bool begins) = 0;
};

}  // namespace hotbed

#endif  // HOTBED_WAIT_DRIVER_H_
