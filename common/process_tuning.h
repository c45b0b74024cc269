// Process-wide settings for programs that move bulk bytes. For our own main functions, never for
// the client library, which must not change the process of its user.
#ifndef HOTBED_COMMON_PROCESS_TUNING_H_
#define HOTBED_COMMON_PROCESS_TUNING_H_

#include <malloc.h>

#include <cstdlib>

#include "absl/synchronization/mutex.h"

namespace hotbed {

// Call once, first thing in main.
// - malloc keeps freed memory: gRPC receives slices of 64 KiB all the time, and malloc would return
//   them to the system and fault them in again page by page.
// - Abseil's deadlock detector is off: Debian builds Abseil with it on, a graph search per lock.
// - Each completion queue polls its own sockets: gRPC's default poller is shared by all queues of
//   the process, so the thread that holds it reads the sockets of all others and then wakes their
//   threads (1.3 times the pulls without it). A GRPC_POLL_STRATEGY that is already set is kept.
inline void TuneDataPlaneProcess() {
  setenv("GRPC_POLL_STRATEGY", "poll", /*overwrite=*/0);
  // With that strategy a connection in progress is polled by a thread that waits for a call on it,
  // and otherwise at this interval (5,000 by default). A killed server is found again after 0.9 s
  // instead of 2 s.
  setenv("GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS", "100", /*overwrite=*/0);
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 64 << 20);
  mallopt(M_TOP_PAD, 4 << 20);
  mallopt(M_ARENA_MAX, 4);  // each arena keeps its own freed memory
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
}

}  // namespace hotbed

#endif  // HOTBED_COMMON_PROCESS_TUNING_H_
