// Pulls and lookups: builds messages from a plan, scatters the answers, resends what was refused,
// ends calls at their deadline. Thread-safe.
#ifndef HOTBED_CLIENT_PULL_PULL_ENGINE_H_
#define HOTBED_CLIENT_PULL_PULL_ENGINE_H_

#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "client/net/client_context.h"
#include "client/pull/pull_call.h"

namespace hotbed {

class PullEngine {
 public:
  explicit PullEngine(ClientContext* context) : context_(context) {}
  // Shutdown came first, and the transport is gone.
  ~PullEngine() = default;

  // `lane` is kPull or kLookup. Waits for room among the calls in flight, at most until the
  // deadline.
  Future<absl::Status> Start(absl::Span<const PullFeature> features, const PullOptions& options,
                             Lane lane);
  // Ends calls whose deadline has passed.
  void Tick();
  // Ends every call with Cancelled.
  void Shutdown();

 private:
  friend class PullRequest;
  using CallPtr = std::shared_ptr<PullCall>;

  absl::Status Plan(absl::Span<const PullFeature> features, const PullOptions& options, Lane lane,
                    CallPtr* call);
  // False at the call's deadline.
  bool WaitForRoom(const PullCall& call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status NoRoomError() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void LayOutIds(const ClusterMap& map, PullCall* call);
  // The caller stands inside the call's gate in all of these.
  void SendParts(const CallPtr& call, absl::Span<const uint32_t> parts, int attempt);
  // A message: by which map, whom it asks and when.
  struct Sent {
    ClusterMapPtr map;
    const ServerAddress* to = nullptr;  // of the map
    int64_t at_ns = 0;
    int attempt = 0;
  };
  // Who is asked for a part: at the first attempt a copy may be; what it refused, the primary.
  ServerId ReaderOf(const PullCall& call, const ClusterMap& map, uint32_t part, int attempt) const;
  void SendMessage(const CallPtr& call, absl::Span<const uint32_t> parts, Sent sent);
  // `busy`: a server has too much to do; else what hinders will pass by itself.
  void RetryLater(const CallPtr& call, std::vector<uint32_t> parts, int attempt,
                  uint32_t retry_after_ms, bool busy);

  // pull_reply.cc
  struct Outcome;
  void OnReply(const CallPtr& call, absl::Span<const uint32_t> parts, const Sent& sent,
               const absl::Status& transport, const Reply* reply);
  void OnLost(const CallPtr& call, absl::Span<const uint32_t> parts, const Sent& sent,
              const absl::Status& transport);
  bool AskedPrimary(const PullCall& call, uint32_t part, const Sent& sent) const;
  // The bulk fields of an answer, read segment after segment.
  struct Answer {
    FragmentReader rows;
    FragmentReader flags;
    FragmentReader arg_max;
  };
  void OnSegment(const CallPtr& call, uint32_t part, const v1::SegmentReply& segment,
                 const Sent& sent, Answer* answer, Outcome* outcome);
  void OnRefusal(const CallPtr& call, uint32_t part, const v1::SegmentReply& segment,
                 const Sent& sent, Outcome* outcome);
  bool ScatterSegment(const CallPtr& call, uint32_t part, const v1::SegmentReply& segment,
                      Answer* answer);

  // pull_pooled.cc
  void PlanPooled(absl::Span<const PullFeature> features, const ClusterMap& map, PullCall* call);
  void LayOutBags(PullCall* call, uint64_t ids_before);
  bool ScatterPooled(const CallPtr& call, const PooledPart& part, const v1::SegmentReply& segment,
                     Answer* answer);

  void LeaveAndResolve(const CallPtr& call);
  std::unique_ptr<PullScratch> TakeScratch();
  absl::Status DeadlineError(const PullCall& call) const;

  ClientContext* const context_;
  absl::Mutex mu_;
  absl::flat_hash_set<CallPtr> calls_ ABSL_GUARDED_BY(mu_);
  std::vector<std::unique_ptr<PullScratch>> free_ ABSL_GUARDED_BY(mu_);
  uint64_t bytes_in_flight_ ABSL_GUARDED_BY(mu_) = 0;
  bool shut_down_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_PULL_PULL_ENGINE_H_
