// Pushes: gathers gradients into messages, chains them per shard, sends them again until each is
// answered, and provides their results. Thread-safe. One mutex orders everything about chains and
// open pushes; gathering happens outside it.
#ifndef HOTBED_CLIENT_PUSH_PUSH_ENGINE_H_
#define HOTBED_CLIENT_PUSH_PUSH_ENGINE_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/map/cluster_map.h"
#include "client/map/control_plane.h"
#include "client/net/engine_parts.h"
#include "client/push/push_call.h"
#include "client/push/push_ledger.h"
#include "client/push/push_message.h"
#include "client/push/push_session.h"
#include "hotbed/client.h"

namespace hotbed {

// The chain of one shard, and when it may restart.
struct ShardChain {
  PushChain chain;
  ShardId shard;
  bool restart_scheduled = false;
  bool restart_now = false;  // the map knows the new primary
  uint32_t retry_after_ms = 0;
  bool busy = false;  // its server is overloaded; otherwise the obstacle passes by itself
  ShardRange range;   // that its parts were planned for
  // The shard was cut: nothing is sent until all in flight is answered, and then it is divided.
  bool divides = false;
  // The chain from whose shard this one was cut and which divides; nothing is sent before that.
  const ShardChain* waits_for = nullptr;

  // Nothing is in flight, and it is to restart or to be divided.
  bool drained() const { return chain.ReadyToRestart() || (divides && chain.in_flight() == 0); }
};

class PushEngine {
 public:
  PushEngine(const EngineParts& parts, PushSession* session);

  // The Future of a push that cannot start: nothing was sent.
  static Future<PushResult> Refuse(uint64_t step, absl::Status status);
  // Blocks while the session is not open or the window is full, at most until the deadline.
  // With `deletes`, the features name rows to delete and have no gradients.
  Future<PushResult> Start(uint64_t step, absl::Span<const PushFeature> features,
                           const PushOptions& options, int64_t deadline_ns, bool deletes = false)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Blocks until all shards have answered every push of `step` or an earlier step, whatever the
  // answers are.
  absl::Status AwaitStep(uint64_t step, int64_t deadline_ns) ABSL_LOCKS_EXCLUDED(mu_);
  // As in hotbed/client.h.
  Future<PushResult> Retry(const PushResult& result, int64_t deadline_ns) ABSL_LOCKS_EXCLUDED(mu_);
  std::vector<PushResult> Unanswered(absl::Duration at_least) const ABSL_LOCKS_EXCLUDED(mu_);
  // Resolves Futures whose deadline has passed with kIndeterminate.
  void Tick() ABSL_LOCKS_EXCLUDED(mu_);
  // Resolves every Future with kIndeterminate, and refuses later pushes.
  void Shutdown() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  friend class PushRequest;
  using Resolutions = PushLedger::Resolutions;

  absl::Status Prepare(uint64_t step, absl::Span<const PushFeature> features,
                       const PushOptions& options, PushCall* call);
  bool WaitForRoom(const PushCall& call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Appends the call's parts to their chains, which it returns.
  std::vector<ShardChain*> Chain(const ClusterMap& map, PushCall* call)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // push_cut.cc: shards that were cut.
  //
  // Finds the chains whose shards the map shows cut, and divides those with nothing in flight.
  // Returns the chains that may send again.
  std::vector<ShardChain*> LearnCuts(const ClusterMap& map) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  ShardChain* ChainOf(const ClusterMap& map, ShardId shard) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return ChainIn(map, shard, &chains_[shard.table]);
  }
  // The same, in the chains of the shard's table.
  static ShardChain* ChainIn(const ClusterMap& map, ShardId shard, std::deque<ShardChain>* chains);
  // Gives the parts of a chain to the chains of the shards that have their rows by now; the chains
  // that may send again are added.
  void DivideIfDrained(ShardChain* chain, const ClusterMap& map,
                       std::vector<ShardChain*>* free_again) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static void DividePart(PushPart* part, absl::Span<ShardChain* const> chains,
                         std::vector<std::deque<ChainedPart*>>* divided);

  // Sends what the chains allow, in messages of one server and at most SegmentBytesMax.
  void Flush(absl::Span<ShardChain* const> chains, Resolutions* resolutions)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SendMessage(const std::string& address, absl::Span<const SentPart> parts)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Restarts, now or after a delay, the chains that have just been answered and are drained.
  void Settle(absl::Span<ShardChain* const> chains, Resolutions* resolutions)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RestartLater(std::vector<ShardChain*> chains) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Restart(absl::Span<ShardChain* const> chains) ABSL_LOCKS_EXCLUDED(mu_);

  // `written`: a request without a reply may have reached a server.
  void OnReply(absl::Span<const SentPart> parts, const absl::Status& transport,
               const ServerReply* reply, bool written) ABSL_LOCKS_EXCLUDED(mu_);
  // The answers of a server to each of the parts; adds the chains that may restart to `answered`.
  void TakeAnswers(absl::Span<const SentPart> parts, const ServerReply& reply,
                   std::vector<ShardChain*>* answered, Resolutions* resolutions)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The LSNs of the parts that were applied.
  static void NoteAcknowledged(absl::Span<const SentPart> parts, const ServerReply& reply);
  void OnApplied(const SentPart& sent, uint64_t last_seq, Resolutions* resolutions)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnException(const SentPart& sent, const v1::SegmentReply& segment, Resolutions* resolutions)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnReroute(const SentPart& sent) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The part in flight ends with `status`; `last_seq` as in PushChain::OnRefused.
  void Refused(const SentPart& sent, uint64_t last_seq, const absl::Status& status,
               Resolutions* resolutions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Finish(PushPart* part, const absl::Status& status, Resolutions* resolutions)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const EngineParts use_;
  PushSession* const session_;

  mutable absl::Mutex mu_;
  PushLedger ledger_ ABSL_GUARDED_BY(mu_);
  // By table, then by the index of the shard. They stay where they are.
  absl::flat_hash_map<TableId, std::deque<ShardChain>> chains_ ABSL_GUARDED_BY(mu_);
  SessionIdentity identity_ ABSL_GUARDED_BY(mu_);  // of the session, once a push has opened it
  uint64_t cuts_ ABSL_GUARDED_BY(mu_) = 0;         // ClusterMap::cuts that the chains follow
  bool shut_down_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t rows_applied_ ABSL_GUARDED_BY(mu_) = 0;  // by the answer that is read
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_PUSH_PUSH_ENGINE_H_
