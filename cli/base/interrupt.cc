#include "cli/base/interrupt.h"

#include <algorithm>

namespace hotbed {
namespace {

volatile std::sig_atomic_t g_interrupted = 0;
void OnSignal(int) { g_interrupted = 1; }

}  // namespace

InterruptScope::InterruptScope() {
  g_interrupted = 0;
  struct sigaction action {};
  action.sa_handler = OnSignal;
  sigaction(SIGINT, &action, &before_int_);
  sigaction(SIGTERM, &action, &before_term_);
}

InterruptScope::~InterruptScope() {
  sigaction(SIGINT, &before_int_, nullptr);
  sigaction(SIGTERM, &before_term_, nullptr);
}

bool InterruptScope::interrupted() const { return g_interrupted != 0; }

void InterruptScope::Sleep(int64_t ns, const Clock* clock) const {
  const int64_t until_ns = clock->NowNs() + ns;
  while (!interrupted() && clock->NowNs() < until_ns) {
    clock->SleepNs(std::min(20 * kMillisecondNs, until_ns - clock->NowNs()));
  }
}

}  // namespace hotbed
