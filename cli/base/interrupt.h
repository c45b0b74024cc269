// Turns Ctrl-C and SIGTERM into a flag that a loop polls. One at a time per process; the destructor
// restores the previous handlers.
#ifndef HOTBED_CLI_BASE_INTERRUPT_H_
#define HOTBED_CLI_BASE_INTERRUPT_H_

#include <csignal>
#include <cstdint>

#include "common/clock.h"

namespace hotbed {

class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  bool interrupted() const;
  // Sleeps for so long, or until an interrupt; looks for one every 20 ms.
  void Sleep(int64_t ns, const Clock* clock) const;

 private:
  struct sigaction before_int_ {};
  struct sigaction before_term_ {};
};

}  // namespace hotbed

#endif  // HOTBED_CLI_BASE_INTERRUPT_H_
