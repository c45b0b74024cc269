// The second process of a roof: the same program, started with a hidden argument.
// Thread-compatible.
#ifndef HOTBED_BENCH_ROOFS_PEER_PROCESS_H_
#define HOTBED_BENCH_ROOFS_PEER_PROCESS_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace hotbed::roofs {

inline constexpr char kPeerArgument[] = "--hotbed-roof-peer";

// The process ends with this object, or with the process that started it.
class PeerProcess {
 public:
  // Starts `<this program> --hotbed-roof-peer <args>` and waits for the port that it prints.
  static absl::StatusOr<std::unique_ptr<PeerProcess>> Start(const std::vector<std::string>& args);
  ~PeerProcess();

  int port() const { return port_; }

 private:
  PeerProcess() = default;
  pid_t pid_ = -1;
  int port_ = 0;
};

// For the peer: reports the port to the process that started it.
void TellPort(int port);

// The programs of peers, one per kind of roof: serve until killed.
int ServeGrpc(const std::vector<std::string>& args);
int ServeTcp(const std::vector<std::string>& args);

}  // namespace hotbed::roofs

#endif  // HOTBED_BENCH_ROOFS_PEER_PROCESS_H_
