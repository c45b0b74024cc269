// Keeps this server in the cluster: registers it, attends the coordinator (heartbeats up, news of
// tables, shards and servers down as they come), has recovered shards activated, and says when what
// this server held has been handed over.
//
// Three threads: one registers and sends heartbeats, one applies news (of server/cluster/attend_stream.h),
// one asks for activations, so that none waits for another. The methods are thread-safe. While the
// coordinator is away, or does not answer, the server keeps serving what it has and the link tries
// on, with a jittered backoff. A lost lease means registering again, as a new incarnation. A
// coordinator that does not know Coordinator.Attend is asked by Heartbeat calls.
#ifndef HOTBED_SERVER_CLUSTER_COORDINATOR_LINK_H_
#define HOTBED_SERVER_CLUSTER_COORDINATOR_LINK_H_

#include <grpcpp/client_context.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "common/random.h"
#include "proto/control.grpc.pb.h"
#include "server/cluster/attend_stream.h"
#include "server/cluster/load_report.h"
#include "server/cluster/map_intake.h"
#include "server/host/shard_host.h"
#include "server/shard/replica_message.h"

namespace hotbed {

struct CoordinatorLinkOptions {
  std::string coordinator;     // host:port
  std::string name;            // of this server, unique in the cluster
  std::string address;         // data port, as others reach it
  std::string admin_address;   // empty: none
  std::string failure_domain;  // empty: the host part of `address`
  uint64_t host_bytes = 0;
  uint64_t message_bytes_max = 0;     // of the data port
  ReplicaNetwork* network = nullptr;  // told who and where everybody is; outlives the link
  // Of a call, and 1 ms more for each shard held. A call that outlasts it gets twice as long the
  // next time, up to rpc_timeout_ms_max: registering many shards must not begin anew for ever. A
  // heartbeat on the stream that is not answered for so long ends the stream.
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
  bool attending = false;  // by a stream; else by calls
  std::string error;       // of the last call, empty when it succeeded
};

class CoordinatorLink {
 public:
  // Strict pulls are answered for this part less of a lease than the coordinator grants, so that
  // clocks that run at different speeds do no harm.
  static constexpr int64_t LeaseMarginNs(int64_t ttl_ns) { return ttl_ns / 10; }

  // `host` and `clock` outlive it. The threads start at once.
  CoordinatorLink(CoordinatorLinkOptions options, ShardHost* host, const Clock* clock);
  ~CoordinatorLink();
  CoordinatorLink(const CoordinatorLink&) = delete;
  CoordinatorLink& operator=(const CoordinatorLink&) = delete;

  // Blocks until the first registration or Stop(). An error is final: the coordinator refused this
  // server (its name is taken, its data directory belongs to another cluster), or the data
  // directory did.
  absl::Status WaitRegistered();
  LinkStatus status() const;

  // Tells the coordinator that this server is about to stop, and waits, at most `wait_ms`, until
  // the shards that have another live member have been handed to it. True: they have, or there were
  // none. Gives up early when the coordinator does not answer.
  bool Drain(int64_t wait_ms);

  // Ends the threads and their calls, then tells the coordinator that this server is about to stop
  // (once, within rpc_timeout_ms).
  void Stop();

 private:
  void Run();
  void Turn();  // one registration or heartbeat
  absl::Status Register();
  void FillHeartbeat(v1::HeartbeatRequest* request);
  absl::Status BeatByCall(bool last);
  absl::Status BeatOnStream();
  // The stream to send on; a broken one is taken down and gives its error.
  absl::Status StreamToUse(std::shared_ptr<AttendStream>* stream);
  void EndStream();
  void OnReply(const v1::HeartbeatReply& reply);
  absl::Status TakeReply(const v1::HeartbeatReply& reply);
  void RenewLease(const v1::HeartbeatReply& reply, int64_t sent_ns);

  void RunActivations();
  absl::Status Activate();
  void EndStreamIfUnanswered();

  // One RPC, which Stop() cancels unless it is `last`.
  template <typename Method, typename Request, typename Reply>
  absl::Status Call(const char* name, Method method, const Request& request, Reply* reply,
                    bool last = false);
  int64_t TimeoutMs() const ABSL_LOCKS_EXCLUDED(mu_);
  void Heard(const absl::Status& status);
  int64_t NextDelayMs();
  void Sleep(int64_t ms);
  void Kick();
  // The host has shards to activate, learners that are ready to join, or copies that are lost.
  void Nudge();
  // Something that the last heartbeat did not say, and the coordinator should hear at once.
  bool HasNews() ABSL_LOCKS_EXCLUDED(mu_);

  const CoordinatorLinkOptions options_;
  ShardHost* const host_;
  const Clock* const clock_;
  const std::unique_ptr<v1::Coordinator::Stub> stub_;
  MapIntake intake_;

  // Of the first thread alone.
  Random random_;
  LoadReport load_;
  bool leased_ = false;
  bool failed_ = false;  // the last turn
  bool attends_ = true;  // until the coordinator says that it does not know the method
  int calls_ = 0;        // since the last try to attend
  uint64_t number_ = 0;  // of the last heartbeat on the stream
  std::vector<ShardHost::JoinReady> joins_said_;  // in the last heartbeat
  std::vector<ShardHost::LostReplica> lost_said_;    // likewise
  int64_t heartbeat_interval_ms_ = 500;
  int64_t backoff_ms_ = 0;

  struct Sent {
    uint64_t number = 0;
    int64_t sent_ns = 0;
  };

  mutable absl::Mutex mu_;
  absl::flat_hash_set<grpc::ClientContext*> calling_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<AttendStream> stream_ ABSL_GUARDED_BY(mu_);
  std::deque<Sent> unanswered_ ABSL_GUARDED_BY(mu_);  // on the stream, oldest first
  uint64_t heard_revision_ ABSL_GUARDED_BY(mu_) = 0;  // on the stream, perhaps being applied
  LinkStatus status_ ABSL_GUARDED_BY(mu_);
  int64_t lease_ttl_ms_ ABSL_GUARDED_BY(mu_) = 0;  // as told at the registration
  absl::Status final_error_ ABSL_GUARDED_BY(mu_);
  int64_t timeout_ms_ ABSL_GUARDED_BY(mu_) = 0;  // of the call that timed out last, doubled
  bool answered_ ABSL_GUARDED_BY(mu_) = true;    // the last call or heartbeat
  bool replied_ ABSL_GUARDED_BY(mu_) = false;    // since the stream was opened
  bool lease_lost_ ABSL_GUARDED_BY(mu_) = false;
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
  bool kicked_ ABSL_GUARDED_BY(mu_) = false;
  bool nudged_ ABSL_GUARDED_BY(mu_) = false;
  bool activate_ ABSL_GUARDED_BY(mu_) = false;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  bool joined_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
  std::thread activations_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_CLUSTER_COORDINATOR_LINK_H_
