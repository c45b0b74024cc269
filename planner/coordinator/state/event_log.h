// The cluster's event log: the last kEventsMax things that the coordinator did, by itself or on
// request, with the reason. The log is in the metadata store. An event is written by the
// transaction that makes the change it describes, so neither exists without the other.
//
// Thread-compatible.
#ifndef HOTBED_PLANNER_COORDINATOR_STATE_EVENT_LOG_H_
#define HOTBED_PLANNER_COORDINATOR_STATE_EVENT_LOG_H_

#include <cstdint>
#include <string>

#include "planner/coordinator/state/operation.h"

namespace hotbed {

inline constexpr uint64_t kEventsMax = 4096;
inline constexpr size_t kOpsPerEvent = 2;  // the event, and the oldest one, which goes

// Writes the events of one transaction on `state`, which must not change until it is done.
class EventWriter {
 public:
  EventWriter(const ClusterState* state, int64_t unix_ms) : state_(state), unix_ms_(unix_ms) {}

  // `kind` is one word (ClusterEvent in proto/control.proto). `shard` and `server` are those that
  // the event is about; 0: none or several.
  void Add(const std::string& kind, const std::string& text, uint64_t shard, ServerId server,
           Transaction* txn);

 private:
  const ClusterState* const state_;
  const int64_t unix_ms_;
  uint64_t written_ = 0;
};

// The kept events after number `request.after()`, oldest first.
v1::ListEventsReply ListEvents(const ClusterState& state, const v1::ListEventsRequest& request);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_STATE_EVENT_LOG_H_
