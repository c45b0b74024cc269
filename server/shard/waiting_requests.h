// The requests of a shard that wait: pulls for an LSN, and pushes that came a moment too early.
//
// Run takes every waiting request out and starts it again; a request that still cannot be served
// parks again until its time is up. A parked request keeps the shard in flight.
//
// Confined to the shard's strand, except any().
#ifndef HOTBED_SERVER_SHARD_WAITING_REQUESTS_H_
#define HOTBED_SERVER_SHARD_WAITING_REQUESTS_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "server/protocol/shard_core.h"
#include "server/shard/in_flight.h"
#include "server/shard/push_state.h"
#include "server/shard/request/requests.h"
#include "server/shard/request/segment_result.h"
#include "server/shard/shard_options.h"

namespace hotbed {

class WaitingRequests {
 public:
  using RestartPull = absl::AnyInvocable<void(PullWork*, PullSegment*)>;
  using RestartPush = absl::AnyInvocable<void(PushState*)>;

  // All outlive it.
  WaitingRequests(const ShardOptions* options, const ShardCore* core, InFlight* in_flight,
                  RestartPull restart_pull, RestartPush restart_push);

  // The pull waits for segment->lsn_min. Not ok(): it does not wait, since that LSN never comes or
  // its time is up.
  Refusal ParkPull(PullWork* work, PullSegment* segment);
  // The push waits, if the shard is about to become active, or to learn of the epoch, the session
  // or the committed step that the client knows already. False: it does not wait, or not any
  // longer.
  bool ParkPush(PushState* state);
  // Cheap when nothing waits.
  void RunPulls() {
    if (!pulls_.empty()) RunAllPulls();
  }
  void RunPushes() {
    if (!pushes_.empty()) RunAllPushes();
  }

  // Any thread.
  bool any() const { return count_.load(std::memory_order_relaxed) != 0; }

 private:
  struct ParkedPull {
    PullWork* work;
    PullSegment* segment;
    InFlight::Token running;
  };
  struct ParkedPush {
    PushState* state;
    InFlight::Token running;
  };

  bool IsEarly(const PushState& state) const;
  void RunAllPulls();
  void RunAllPushes();
  void Count();

  const ShardOptions* const options_;
  const ShardCore* const core_;
  InFlight* const in_flight_;
  RestartPull restart_pull_;
  RestartPush restart_push_;
  std::vector<ParkedPull> pulls_;
  std::vector<ParkedPush> pushes_;
  std::atomic<uint32_t> count_{0};
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_WAITING_REQUESTS_H_
