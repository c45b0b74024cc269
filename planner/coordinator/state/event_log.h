// The cluster's event log: what the coordinator did by itself or was asked for, and why; the last
// kEventsMax of them, in the metadata store. An event is written by the transaction that does what
// it tells, so there is none without the other.
//
// Thread-compatible.
#ifndef HOTBED_PLANNER_COORDINATOR_STATE_EVENT_LOG_H_
#define HOTBED_PLANNER_COORDINATOR_STATE_EVENT_LOG_H_

#include <cstdint>
#include <string>

#include "planner/coordinator/state/operation.h"

namespace hotbed {

inline constexpr uint64_t kEventsMax = 4096;
inline constexpr size_t kOpsPerEvent = 2;  // the event, and the one that is forgotten for it

// Events of one transaction on `state`, which must not change meanwhile.
class EventWriter {
 public:
  EventWriter(const ClusterState* state, int64_t unix_ms) : state_(state), unix_ms_(unix_ms) {}

  // `kind`: one word (proto/control.proto: ClusterEvent). `shard` and `server`: the one concerned,
  // 0: none or several.
  void Add(const std::string& kind, const std::string& text, uint64_t shard, ServerId server,
           Transaction* txn);

 private:
  const ClusterState* const state_;
  const int64_t unix_ms_;
  uint64_t written_ = 0;
};

// The oldest first; of those kept, after number `request.after()`.
v1::ListEventsReply ListEvents(const ClusterState& state, const v1::ListEventsRequest& request);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_STATE_EVENT_LOG_H_
