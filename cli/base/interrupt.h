// Ctrl-C and SIGTERM as a question that a loop asks. One at a time in a process; the handlers that
// were there come back at the end.
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
