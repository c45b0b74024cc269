#include "common/threads/short_turns.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace hotbed {
namespace {

// sched_attr of the kernel, in its first version; glibc before 2.41 does not declare it.
struct ThreadTurns {
  uint32_t size = sizeof(ThreadTurns);
  uint32_t policy = 0;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t runtime_ns = 0;  // of a usual policy: the length of a turn, since Linux 6.12
  uint64_t deadline_ns = 0;
  uint64_t period_ns = 0;
};

}  // namespace

bool TakeShortTurns() {
  constexpr pid_t kThisThread = 0;
  ThreadTurns turns;
  if (syscall(SYS_sched_getattr, kThisThread, &turns, sizeof(turns), 0) != 0) return false;
  if (turns.policy != SCHED_OTHER || turns.runtime_ns == 0) return false;
  turns.size = sizeof(turns);
  turns.flags = 0;
  turns.runtime_ns = kShortTurnNs;
  return syscall(SYS_sched_setattr, kThisThread, &turns, 0) == 0;
}

}  // namespace hotbed
