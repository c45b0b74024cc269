// Pulls and lookups: plans a call, sends its parts to the servers of their shards, writes the
// answers to the caller's buffers, and sends again what was refused or lost. Thread-safe.
//
// A call is made of parts; a part is what one shard is asked for in one segment. Parts of one
// server travel as one message, up to a limit of bytes. A part that is refused goes to the primary
// at once, or again after a delay, until the call's deadline.
#ifndef HOTBED_CLIENT_PULL_PULL_ENGINE_H_
#define HOTBED_CLIENT_PULL_PULL_ENGINE_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/map/cluster_map.h"
#include "client/map/map_follower.h"
#include "client/map/read_choice.h"
#include "client/net/client_counters.h"
#include "client/net/retry.h"
#include "client/net/timer.h"
#include "client/net/transport.h"
#include "client/pull/pull_call.h"
#include "client/pull/pulls_in_flight.h"
#include "common/clock.h"
#include "hotbed/client.h"

namespace hotbed {

class PullEngine {
 public:
  // The parts that the engine uses; all outlive the engine. The transport may call back until it is
  // destroyed, so it goes before the engine does, and after Shutdown.
  struct Wiring {
    const ClientOptions* options;
    const void* owner;  // the client that tables must belong to
    const Clock* clock;
    ClusterMapHolder* map;
    MapFollower* follower;
    Transport* transport;
    Timer* timer;
    RetryPolicy* retry;
    ReadChoice* reads;
    ClientCounters* counters;
  };

  explicit PullEngine(const Wiring& wiring);

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
  };
  struct Outcome;
  using ByServer = std::vector<std::pair<ServerId, uint32_t>>;  // parts, sorted by server

  absl::StatusOr<CallPtr> Prepare(absl::Span<const PullFeature> features,
                                  const PullOptions& options, Lane lane, int64_t deadline_ns);

  // The caller is inside the call's gate in all of these.
  void SendParts(const CallPtr& call, absl::Span<const uint32_t> parts, int attempt);
  absl::StatusOr<ByServer> SortByServer(const PullCall& call, const ClusterMap& map,
                                        absl::Span<const uint32_t> parts, int attempt) const;
  // The server that is asked for a part. The first attempt may go to a backup or a read replica;
  // further ones go to the primary.
  ServerId ReaderOf(const PullCall& call, const ShardRecord& record, uint32_t part,
                    int attempt) const;
  void SendMessage(const CallPtr& call, absl::Span<const uint32_t> parts, Sent sent);
  void OnReply(const CallPtr& call, absl::Span<const uint32_t> parts, const Sent& sent,
               const absl::Status& transport, const Reply* reply);
  void OnLost(const CallPtr& call, absl::Span<const uint32_t> parts, const Sent& sent,
              const absl::Status& transport);
  // Reads the segments of an answer into the caller's buffers, and into `outcome`.
  void TakeReply(const CallPtr& call, absl::Span<const uint32_t> parts, const Sent& sent,
                 const Reply& reply, Outcome* outcome);
  void OnRefusal(const CallPtr& call, uint32_t part, const v1::SegmentReply& segment,
                 const Sent& sent, Outcome* outcome);
  bool AskedPrimary(const PullCall& call, uint32_t part, const Sent& sent) const;
  void ResendNow(const CallPtr& call, absl::Span<const uint32_t> parts, int attempt);
  // `busy`: a server is overloaded; otherwise the obstacle passes by itself.
  void RetryLater(const CallPtr& call, std::vector<uint32_t> parts, int attempt,
                  uint32_t retry_after_ms, bool busy);

  const Wiring use_;
  PullsInFlight calls_;
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_PULL_PULL_ENGINE_H_
