// Pushes: gathers gradients into messages, chains them per shard, resends until each is answered,
// tells callers what became of them. Thread-safe. One mutex orders everything that concerns chains;
// gathering happens outside of it.
#ifndef HOTBED_CLIENT_PUSH_PUSH_ENGINE_H_
#define HOTBED_CLIENT_PUSH_PUSH_ENGINE_H_

#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "client/map/control_plane.h"
#include "client/net/client_context.h"
#include "client/push/push_call.h"
#include "client/push/push_chain.h"
#include "client/push/push_window.h"

namespace hotbed {

class PushEngine {
 public:
  PushEngine(ClientContext* context, ControlPlane* control, std::string session_name)
      : context_(context),
        control_(control),
        session_name_(std::move(session_name)),
        room_(static_cast<uint64_t>(context->options.pushes_in_flight_max),
              context->options.push_bytes_in_flight_max) {}

  // Future's value when it cannot start: nothing was sent.
  static Future<PushResult> Refuse(uint64_t step, absl::Status status);
  Future<PushResult> Start(uint64_t step, absl::Span<const PushFeature> features,
                           const PushOptions& options);
  // The session under which this client pushes, opened now if it was not. Blocks.
  absl::StatusOr<SessionIdentity> Session(int64_t deadline_ns) ABSL_LOCKS_EXCLUDED(mu_);
  const std::string& session_name() const { return session_name_; }
  // Blocks until every push of `step` or earlier is answered by all its shards, whatever became of
  // it.
  absl::Status AwaitStep(uint64_t step, int64_t deadline_ns) ABSL_LOCKS_EXCLUDED(mu_);
  Future<PushResult> Retry(const PushResult& result, absl::Duration deadline);
  // As they would end now, by ticket.
  std::vector<PushResult> Unanswered(absl::Duration at_least) const ABSL_LOCKS_EXCLUDED(mu_);
  // Ends Futures whose deadline has passed with kIndeterminate.
  void Tick();
  // The same for all.
  void Shutdown();

 private:
  friend class PushRequest;
  // The chain of one shard and what surrounds it.
  struct ShardChain {
    PushChain chain;
    ShardId shard;
    bool restart_scheduled = false;
    bool restart_now = false;  // the map knows the new owner
    uint32_t retry_after_ms = 0;
    bool busy = false;  // its server has too much to do; else what hinders will pass by itself
  };
  struct SentPart {
    ShardChain* chain = nullptr;
    PushPart* part = nullptr;
    PushChain::Stamp stamp;
    Epoch epoch = 0;
  };
  // Promises to keep once the mutex is free.
  using Resolutions = std::vector<std::pair<Promise<PushResult>, PushResult>>;
  using CallPtr = std::unique_ptr<PushCall>;

  absl::Status Prepare(uint64_t step, absl::Span<const PushFeature> features,
                       const PushOptions& options, PushCall* call);
  // Blocks until the session is open, at most until the deadline.
  absl::Status EnsureSession(int64_t deadline_ns) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status CheckSteps(const PushCall& call) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool WaitForRoom(const PushCall& call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Chain(PushCall* call, std::vector<ShardChain*>* touched) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Sends what the chains allow, one message a server and message_bytes_max.
  void Flush(absl::Span<ShardChain* const> chains, Resolutions* resolutions)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SendMessage(const std::string& address, absl::Span<const SentPart> parts)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // For chains that have just been answered: restarts those that are drained, now or after a delay.
  void Settle(std::vector<ShardChain*> chains, Resolutions* resolutions)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RestartLater(std::vector<ShardChain*> chains) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // `written`: of a request without a reply, whether a server may have acted on it.
  void OnReply(absl::Span<const SentPart> parts, const absl::Status& transport, const Reply* reply,
               bool written);
  void OnSegment(const SentPart& sent, const v1::SegmentReply& segment, Resolutions* resolutions)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The part in flight ends with `status`; `last_seq` as in PushChain::OnRefused.
  void Refused(const SentPart& sent, uint64_t last_seq, const absl::Status& status,
               Resolutions* resolutions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Finish(PushPart* part, const absl::Status& status, Resolutions* resolutions)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Forget(PushCall* call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static void Resolve(Resolutions resolutions);

  ClientContext* const context_;
  ControlPlane* const control_;
  const std::string session_name_;

  mutable absl::Mutex mu_;
  SessionIdentity identity_ ABSL_GUARDED_BY(mu_);  // session 0: not open yet
  bool opening_session_ ABSL_GUARDED_BY(mu_) = false;
  absl::flat_hash_map<uint64_t, CallPtr> calls_ ABSL_GUARDED_BY(mu_);  // by ticket
  absl::flat_hash_map<uint64_t, std::unique_ptr<ShardChain>> chains_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<const TableHandle*, uint64_t> last_step_ ABSL_GUARDED_BY(mu_);
  // Results that nobody waited for, for Retry; the oldest go first.
  std::deque<PushResult> unclaimed_ ABSL_GUARDED_BY(mu_);
  uint64_t next_ticket_ ABSL_GUARDED_BY(mu_) = 1;
  PushWindow room_ ABSL_GUARDED_BY(mu_);  // of calls_
  bool shut_down_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_PUSH_PUSH_ENGINE_H_
