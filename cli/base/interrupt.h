// Turns Ctrl-C and SIGTERM into a flag that a loop polls. One at a time per process; the destructor
// restores the previous handlers.
#ifndef HOTBED_CLI_BASE_INTERRUPT_H_
#define HOTBED_CLI_BASE_INTERRUPT_H_

#include <csignal>

namespace hotbed {

class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  bool interrupted() const;

 private:
  struct sigaction before_int_ {};
  struct sigaction before_term_ {};
};

}  // namespace hotbed

#endif  // HOTBED_CLI_BASE_INTERRUPT_H_
