// gRPC's start in a program of others, which it must not change. Our own programs set the same by
// common/process_tuning.h, which says why.
#ifndef HOTBED_PROTO_OWN_POLLERS_H_
#define HOTBED_PROTO_OWN_POLLERS_H_

#include <grpc/grpc.h>

#include <cstdlib>

namespace hotbed {

// Starts this process's gRPC, for good, so that each completion queue polls its own sockets. gRPC
// reads that from the environment once; the environment is then as it was. Call it first, while no
// other thread changes the environment.
inline void StartGrpcWithOwnPollers() {
  constexpr const char* kSettings[][2] = {{"GRPC_POLL_STRATEGY", "poll"},
                                          {"GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS", "100"}};
  bool ours[2] = {};
  for (int i = 0; i < 2; ++i) {
    ours[i] = std::getenv(kSettings[i][0]) == nullptr;
    if (ours[i]) setenv(kSettings[i][0], kSettings[i][1], 1);
  }
  grpc_init();
  for (int i = 0; i < 2; ++i) {
    if (ours[i]) unsetenv(kSettings[i][0]);
  }
}

}  // namespace hotbed

#endif  // HOTBED_PROTO_OWN_POLLERS_H_
