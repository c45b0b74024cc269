// The data port, and the streams to the data ports of other servers: a gRPC server whose completion
// queues are polled by the threads that also do the work, without a hop between threads.
//
// Start() serves at once; shards answer as soon as the host has them. Thread-safe.
#ifndef HOTBED_SERVER_DATA_SERVER_H_
#define HOTBED_SERVER_DATA_SERVER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "ports/port.h"
#include "proto/tool_calls.h"
#include "security/server_security.h"
#include "server/host/shard_host.h"
#include "server/peers/peer_limits.h"
#include "server/peers/peer_plane.h"
#include "server/streams/data_plane.h"

namespace hotbed {

struct DataServerOptions {
  PortOptions port;
  int threads = 0;  // 0: half of the cores, at least 1
  DataPlaneLimits limits;
  PeerLimits peer_limits;
  PeerStreamOptions peer_streams;
  ServerSecurity security;
  uint64_t grpc_bytes_max = 1ull << 30;  // memory of gRPC's own
  // The truth of /readyz, for health checks on the port; empty: always ready.
  std::function<bool()> ready;
  // Unary calls beside the streams, by method.
  std::map<std::string, ToolCalls::Call> calls;
  // Those that are answered later; all of them are, before Stop is called.
  std::map<std::string, ToolCalls::SlowCall> slow_calls;
};

class DataServer {
 public:
  // `host` and `clock` outlive it. Unavailable names the address when it cannot be bound, for
  // example because the port is in use.
  static absl::StatusOr<std::unique_ptr<DataServer>> Start(const DataServerOptions& options,
                                                           ShardHost* host, const Clock* clock);
  ~DataServer();  // Stop(0)
  DataServer(const DataServer&) = delete;
  DataServer& operator=(const DataServer&) = delete;

  const std::string& address() const { return address_; }  // host:port as bound
  const DataPlane& plane() const;
  // For calls that read rows beside the streams.
  ByteBudget* pull_budget();
  const PeerPlane& peers() const;
  ConnectionTable& connections();
  // The streams to other servers; messages sent after Stop() are dropped.
  ReplicaNetwork* network();

  // Whether the polling threads make progress and the port answers: false, with a reason, when a
  // thread has handled the same event for ten seconds, or the port's own probe has failed for so
  // long.
  bool Healthy(std::string* why_not);

  // Whether the port answers its own probe; never blocks.
  bool PortAnswers(std::string* why_not) const;

  // Answers new messages with UNAVAILABLE, waits at most `wait_ms` for requests in flight, then
  // closes all streams and joins the threads. Idempotent.
  void Stop(int64_t wait_ms);

 private:
  struct Impl;
  DataServer();

  std::unique_ptr<Impl> impl_;
  std::string address_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_DATA_SERVER_H_
