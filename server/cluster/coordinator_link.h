// Keeps this server in the cluster: registers it, attends the coordinator (heartbeats up; tables,
// shards and servers down as they change), has recovered shards activated, and reports when the
// shards of a draining server have been handed over.
//
// Three threads, so that none waits for another: one registers and sends heartbeats, one applies
// replies (of AttendStream), one requests activations. The methods are thread-safe. While the
// coordinator is away or does not answer, the server keeps serving the shards that it has and the
// link retries with a jittered backoff. After a lost lease the server registers again as a new
// incarnation.
#ifndef HOTBED_SERVER_CLUSTER_COORDINATOR_LINK_H_
#define HOTBED_SERVER_CLUSTER_COORDINATOR_LINK_H_

#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "common/random.h"
#include "proto/control.grpc.pb.h"
#include "server/cluster/assignment_applier.h"
#include "server/cluster/attend_stream.h"
#include "server/cluster/coordinator_calls.h"
#include "server/cluster/cut_link.h"
#include "server/cluster/heartbeat_report.h"
#include "server/host/shard_host.h"
#include "server/shard/replica/replica_message.h"

namespace hotbed {

struct CoordinatorLinkOptions {
  std::string coordinator;     // host:port, or several with commas between
  ClientIdentity identity;     // towards it
  std::string name;            // of this server, unique in the cluster
  std::string address;         // data port, as others reach it
  std::string admin_address;   // empty: none
  std::string failure_domain;  // empty: the host part of `address`
  uint64_t host_bytes = 0;
  uint64_t message_bytes_max = 0;  // of the data port
  ReplicaNetwork* network =
      nullptr;  // learns this server's identity and its peers; outlives the link
  // The deadline of a call grows by 1 ms per shard held. A heartbeat that is not answered within
  // that time ends the stream.
  CoordinatorCalls::Timeouts timeouts;
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
  int64_t lease_until_ns = 0;  // Clock::NowNs() scale; 0: there is no lease
  bool attending = false;      // a stream is open
  std::string error;           // of the last call or heartbeat, empty when it succeeded
};

class CoordinatorLink {
 public:
  // Strict pulls are answered for the granted lease less this margin, so that clocks that run at
  // different speeds do no harm.
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
  // Blocks until Stop(), which is OK, or until the coordinator refuses this server, now registered,
  // for good: a process with a copy of its data directory has taken its place.
  absl::Status WaitRefused();
  LinkStatus status() const;

  // Tells the coordinator that this server is about to stop, and waits, at most `wait_ms`, until
  // the shards that have another live member have been handed to it. True: they have, or there were
  // none. Gives up early when the coordinator does not answer.
  bool Drain(int64_t wait_ms);

  // Ends the threads and their calls, then tells the coordinator that this server is about to stop
  // (once, within the timeout of a call).
  void Stop();

 private:
  // --- the first thread
  void Run();
  absl::Status RegisterAndBeat();
  absl::Status Register();
  absl::Status Beat();
  // The stream to send on; a broken one is taken down and gives its error.
  absl::Status StreamToUse(AttendStream** stream);
  void EndStream();
  void FillHeartbeat(v1::HeartbeatRequest* request);
  absl::Status TellOfStop();
  int64_t NextDelayMs(bool failed);
  void Sleep(int64_t ms);

  // --- the stream's thread
  absl::Status OnReply(const v1::HeartbeatReply& reply, int64_t sent_ns);
  absl::Status TakeReply(const v1::HeartbeatReply& reply);
  void RenewLease(const v1::HeartbeatReply& reply, int64_t sent_ns);

  // --- the activations' thread
  void RunActivations();
  absl::Status Activate();
  void EndStreamIfUnanswered();

  // --- any thread
  template <typename Method, typename Request, typename Reply>
  absl::Status Call(const char* name, Method method, const Request& request, Reply* reply) {
    return calls_.Call(name, method, ShardsHeld(), request, reply);
  }
  int64_t ShardsHeld() const { return static_cast<int64_t>(host_->Held().size()); }
  // Records the outcome of a call or heartbeat.
  void Heard(const absl::Status& status);
  void HeartbeatNow();
  // The host may have shards to activate, learners that are ready to join, or lost replicas.
  void RequestActivation();

  const CoordinatorLinkOptions options_;
  ShardHost* const host_;
  const Clock* const clock_;
  CoordinatorCalls calls_;
  AssignmentApplier applier_;
  std::unique_ptr<CutLink> cuts_;

  // Used by the first thread only.
  HeartbeatReport report_;
  Random random_;
  int64_t heartbeat_interval_ms_ = 500;
  int64_t backoff_ms_ = 0;
  std::vector<ShardId> unnamed_;  // as last counted
  int64_t unnamed_at_ns_ = 0;     // not before
  bool recollect_ = false;  // the next registration tells what this server remembers of its cluster

  mutable absl::Mutex mu_;
  std::unique_ptr<AttendStream> stream_ ABSL_GUARDED_BY(mu_);  // made and ended by the first thread
  LinkStatus status_ ABSL_GUARDED_BY(mu_);
  int64_t lease_ttl_ms_ ABSL_GUARDED_BY(mu_) = 0;  // granted at the registration
  absl::Status final_error_ ABSL_GUARDED_BY(mu_);
  bool answered_ ABSL_GUARDED_BY(mu_) = true;  // the last call or heartbeat succeeded
  bool replied_ ABSL_GUARDED_BY(mu_) = false;  // a success since the last backoff
  bool lease_lost_ ABSL_GUARDED_BY(mu_) = false;
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
  bool heartbeat_now_ ABSL_GUARDED_BY(mu_) = false;
  bool host_news_ ABSL_GUARDED_BY(mu_) = false;  // a heartbeat now, if the report has news
  bool activate_ ABSL_GUARDED_BY(mu_) = false;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
  std::thread activations_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_CLUSTER_COORDINATOR_LINK_H_
