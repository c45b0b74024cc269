// Pulls and lookups: plans a call, sends its parts to the servers of their shards, writes the
// answers to the caller's buffers, and sends again what was refused or lost. Thread-safe.
//
// A call is made of parts; a part is what one shard is asked for in one segment. Parts of one
// server travel as one message, up to a limit of bytes. A part that is refused goes to the primary
// at once, or again after a delay, until the call's deadline.
//
// A part that any replica may answer is asked for at another one, too, where its answer takes
// longer than usual or its server is silent (client/map/read_choice.h). The first answer counts.
#ifndef HOTBED_CLIENT_PULL_PULL_ENGINE_H_
#define HOTBED_CLIENT_PULL_PULL_ENGINE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/map/read_choice.h"
#include "client/net/engine_parts.h"
#include "client/pull/pull_call.h"
#include "client/pull/pulls_in_flight.h"
#include "client/pull/waiting_reads.h"
#include "hotbed/client.h"

namespace hotbed {

class PullEngine {
 public:
  PullEngine(const EngineParts& parts, ReadChoice* reads);

  // `lane` is kPull or kLookup. Blocks while the limits on pulls in flight do not admit the call,
  // at most until the deadline.
  Future<absl::Status> Start(absl::Span<const PullFeature> features, const PullOptions& options,
                             Lane lane, int64_t deadline_ns);
  // Ends calls whose deadline has passed.
  void Tick() { calls_.Expire(); }
  // Ends every call with Cancelled.
  void Shutdown() { calls_.Shutdown(); }

 private:
  friend class PullRequest;
  using CallPtr = std::shared_ptr<PullCall>;
  // A message: the map that it was made by, the server that it went to, and when.
  struct Sent {
    ClusterMapPtr map;
    const ServerAddress* to = nullptr;  // of `map`
    int64_t at_ns = 0;
    int attempt = 0;
    bool hedge = false;  // the same parts are in flight at another server
  };
  struct Outcome;
  using ByServer = std::vector<std::pair<ServerId, uint32_t>>;  // parts, sorted by server

  absl::StatusOr<CallPtr> Prepare(absl::Span<const PullFeature> features,
                                  const PullOptions& options, Lane lane, int64_t deadline_ns);
  // Starts a call in place of one that was superseded, for the same Future.
  void PlanAgain(PullCall* superseded);

  // The caller is inside the call's gate in all of these.
  void SendParts(const CallPtr& call, absl::Span<const uint32_t> parts, int attempt);
  // Cuts `order` into one message per server, or several where one would be too large.
  // `send(server, parts)` gets each. Returns the parts whose server the map does not have.
  template <typename Send>
  std::vector<uint32_t> CutMessages(const PullCall& call, const ByServer& order,
                                    const ClusterMap& map, const Send& send) const;
  void SendSorted(const CallPtr& call, const ByServer& order, const ClusterMapPtr& map,
                  int attempt);
  // By the server that is asked for each part.
  absl::StatusOr<ByServer> SortByServer(const PullCall& call, const ClusterMap& map,
                                        absl::Span<const uint32_t> parts, int attempt) const;
  // Whether a backup or a read replica may answer for the table. The first attempt may go to one;
  // further ones go to the primary.
  static bool MayAskAny(const PullCall& call, const TableHandle& table);
  void SendMessage(const CallPtr& call, absl::Span<const uint32_t> parts, const Sent& sent);
  void OnReply(const CallPtr& call, absl::Span<const uint32_t> parts, const Sent& sent,
               const absl::Status& transport, const ServerReply* reply);
  void OnLost(const CallPtr& call, absl::Span<const uint32_t> parts, const Sent& sent,
              const absl::Status& transport);
  // Reads the segments of an answer into the caller's buffers, and into `outcome`.
  void TakeReply(const CallPtr& call, absl::Span<const uint32_t> parts, const Sent& sent,
                 const ServerReply& reply, Outcome* outcome);
  enum class PartFate : uint8_t { kTaken, kRefused, kAnsweredBefore };
  using PartFates = absl::InlinedVector<PartFate, 64>;
  // Whose rows in the answer count.
  PartFates DecideParts(const CallPtr& call, absl::Span<const uint32_t> parts, const Sent& sent,
                        const ServerReply& reply, Outcome* outcome);
  void OnRefusal(const CallPtr& call, uint32_t part, const v1::SegmentReply& segment,
                 const Sent& sent, Outcome* outcome);

  // Looks for messages that wait too long, on the timer's thread, while there are any that another
  // server may answer.
  void StartWatch();
  void Watch();
  // Asks other servers for the parts of a message, as WaitingRead::AskOthers.
  int AskOthers(const CallPtr& call, absl::Span<const uint32_t> parts, const Sent& sent,
                bool bounded);
  bool AskedPrimary(const PullCall& call, uint32_t part, const Sent& sent) const;
  void ResendNow(const CallPtr& call, absl::Span<const uint32_t> parts, int attempt);
  // `busy`: a server is overloaded; otherwise the obstacle passes by itself.
  void RetryLater(const CallPtr& call, std::vector<uint32_t> parts, int attempt,
                  uint32_t retry_after_ms, bool busy);

  const EngineParts use_;
  ReadChoice* const reads_;
  PullsInFlight calls_;
  WaitingReads waiting_;
  std::atomic<bool> watching_{false};
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_PULL_PULL_ENGINE_H_
