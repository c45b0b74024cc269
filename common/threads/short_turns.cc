#include "common/threads/short_turns.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace hotbed {
namespace {

constexpr uint64_t kTurnNs = 100'000;
constexpr uint32_t kNormalPolicy = 0;
constexpr uint32_t kBatchPolicy = 3;

// struct sched_attr of Linux, which headers of the C library have in different places.
struct Attributes {
  uint32_t size;
  uint32_t policy;
  uint64_t flags;
  int32_t nice;
  uint32_t priority;
  uint64_t runtime_ns;
  uint64_t deadline_ns;
  uint64_t period_ns;
};

}  // namespace

void TakeShortTurns() {
  Attributes attributes = {};
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0) != 0) return;
  if (attributes.policy != kNormalPolicy && attributes.policy != kBatchPolicy) return;
  attributes.runtime_ns = kTurnNs;
  (void)syscall(SYS_sched_setattr, 0, &attributes, 0);
}

}  // namespace hotbed
