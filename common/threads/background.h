// Threads whose work may wait, such as copies of shards into files. They take the processor after
// other threads, and leave tasks of a shard's strand to the pool: otherwise requests to the shard
// would wait for a thread that waits for a processor.
#ifndef HOTBED_COMMON_THREADS_BACKGROUND_H_
#define HOTBED_COMMON_THREADS_BACKGROUND_H_

#include <sys/resource.h>

namespace hotbed {

constexpr int kBackgroundNiceness = 10;  // added to that of the process

namespace internal {
inline thread_local bool in_background = false;
}

// For the rest of the calling thread's life.
inline void EnterBackground() {
  internal::in_background = true;
  // On Linux 0 is this thread. It is only about who waits, so a refusal does no harm.
  (void)setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + kBackgroundNiceness);
}

inline bool InBackground() { return internal::in_background; }

}  // namespace hotbed

#endif  // HOTBED_COMMON_THREADS_BACKGROUND_H_
