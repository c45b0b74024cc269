// Settings of a whole process that moves bulk bytes. For main functions of ours, never for the
// client library: they change what is not ours there.
#ifndef HOTBED_COMMON_PROCESS_TUNING_H_
#define HOTBED_COMMON_PROCESS_TUNING_H_

#include <malloc.h>

#include <cstdlib>

#include "absl/synchronization/mutex.h"

namespace hotbed {

// Once, first thing in main. The received slices, 64 KiB each, come and go all the time: without
// this, malloc gives them back to the system and takes them again page by page. Debian builds
// Abseil with the deadlock detector on, a graph search at each lock. gRPC's default poller is one
// for all queues of the process: whichever thread holds it, that of a watch on the coordinator too,
// reads everybody's sockets and then wakes the thread that should have (1.3 times the pulls without
// that). A setting of GRPC_POLL_STRATEGY that is there already is left alone.
inline void TuneDataPlaneProcess() {
  setenv("GRPC_POLL_STRATEGY", "poll", /*overwrite=*/0);
  // Then a connection being made is looked at by who waits for a call on it, else only this often
  // (5,000 by default): a server that was killed is found again after 0.9 s rather than 2.
  setenv("GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS", "100", /*overwrite=*/0);
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 64 << 20);
  mallopt(M_TOP_PAD, 4 << 20);
  mallopt(M_ARENA_MAX, 4);  // each keeps what was freed in it for itself
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
}

}  // namespace hotbed

#endif  // HOTBED_COMMON_PROCESS_TUNING_H_
