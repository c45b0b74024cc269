// Keeps this server in the cluster: registers it, renews its lease by heartbeats, brings what the
// coordinator says about tables and shards to the shard host, and has recovered shards activated.
//
// One thread of its own; the methods are thread-safe. While the coordinator is away the server
// keeps serving what it has and the link tries on, with a jittered backoff. A lost lease means
// registering again, as a new incarnation.
#ifndef HOTBED_SERVER_COORDINATOR_LINK_H_
#define HOTBED_SERVER_COORDINATOR_LINK_H_

#include <grpcpp/client_context.h>

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "proto/control.grpc.pb.h"
#include "server/shard_host.h"

namespace hotbed {

struct CoordinatorLinkOptions {
  std::string coordinator;    // host:port
  std::string name;           // of this server, unique in the cluster
  std::string address;        // data port, as others reach it
  std::string admin_address;  // empty: none
  uint64_t host_bytes = 0;
  uint64_t message_bytes_max = 0;  // of the data port
  // Of a call, and 1 ms more for each shard held. A call that outlasts it gets twice as long the
  // next time, up to rpc_timeout_ms_max: registering many shards must not begin anew for ever.
  int64_t rpc_timeout_ms = 2000;
  int64_t rpc_timeout_ms_max = 120'000;
  int64_t backoff_min_ms = 50;
  int64_t backoff_max_ms = 2000;
  uint64_t jitter_seed = 0;
};

// A snapshot for the status page.
struct LinkStatus {
  bool registered = false;
  ServerId server = 0;
  Incarnation incarnation = 0;
  std::string cluster_id;
  uint64_t plan_revision = 0;
  int64_t heard_ns = 0;  // Clock::NowNs() of the last answer; 0: never
  uint64_t registrations = 0;
  std::string error;  // of the last call, empty when it succeeded
};

class CoordinatorLink {
 public:
  // `host` and `clock` outlive it. The thread starts at once.
  CoordinatorLink(CoordinatorLinkOptions options, ShardHost* host, const Clock* clock);
  ~CoordinatorLink();
  CoordinatorLink(const CoordinatorLink&) = delete;
  CoordinatorLink& operator=(const CoordinatorLink&) = delete;

  // Blocks until the first registration or Stop(). An error is final: the coordinator refused this
  // server (its name is taken, its data directory belongs to another cluster), or the data
  // directory did.
  absl::Status WaitRegistered();
  LinkStatus status() const;

  // Ends the thread and its call, then tells the coordinator that this server is about to stop
  // (once, within rpc_timeout_ms).
  void Stop();

 private:
  void Run();
  void Turn();  // one registration or heartbeat, and the activations that it led to
  absl::Status Register();
  absl::Status Heartbeat(bool draining);
  absl::Status Activate();
  // One RPC, which Stop() cancels unless it is `last`.
  template <typename Method, typename Request, typename Reply>
  absl::Status Call(const char* name, Method method, const Request& request, Reply* reply,
                    bool last = false);
  absl::Status Apply(const v1::ClusterMap& map);
  void AddTablesMissing(const v1::ClusterMap& map, std::vector<TableId>* dropped) const;
  void Heard(const absl::Status& status);
  int64_t NextDelayMs();
  void Sleep(int64_t ms);
  void Kick();

  const CoordinatorLinkOptions options_;
  ShardHost* const host_;
  const Clock* const clock_;
  const std::unique_ptr<v1::Coordinator::Stub> stub_;

  // Of the thread alone.
  std::mt19937_64 random_;
  bool leased_ = false;
  bool answered_ = true;                // the last call came back
  uint64_t plan_revision_highest_ = 0;  // of all incarnations
  int64_t heartbeat_interval_ms_ = 500;
  int64_t backoff_ms_ = 0;
  int64_t timeout_ms_ = 0;  // of the call that timed out last, doubled; 0: none did

  mutable absl::Mutex mu_;
  grpc::ClientContext* calling_ ABSL_GUARDED_BY(mu_) = nullptr;
  LinkStatus status_ ABSL_GUARDED_BY(mu_);
  absl::Status final_error_ ABSL_GUARDED_BY(mu_);
  bool kicked_ ABSL_GUARDED_BY(mu_) = false;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  bool joined_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_COORDINATOR_LINK_H_
