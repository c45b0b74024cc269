// Counts the rows that servers delete by the policies of tables (docs/tables.md), as they tell in
// heartbeats, for the event log. Thread-compatible.
#ifndef HOTBED_PLANNER_COORDINATOR_STATE_SWEPT_TABLES_H_
#define HOTBED_PLANNER_COORDINATOR_STATE_SWEPT_TABLES_H_

#include <cstdint>
#include <map>
#include <vector>

#include "common/ids.h"
#include "planner/coordinator/state/operation.h"
#include "proto/control.pb.h"

namespace hotbed {

class SweptTables {
 public:
  // One event per table in this time; the first tells at once.
  static constexpr int64_t kEveryNs = 60'000'000'000;

  struct Swept {
    TableId table = 0;
    uint64_t expired = 0;
    uint64_t evicted = 0;
    int64_t seconds = 0;  // since the event before; 0: there was none
  };

  // To be called with heartbeats that have a load. Rows that a server had deleted before the first
  // of them do not count.
  void OnHeartbeat(const ClusterState& state, const v1::HeartbeatRequest& request);
  // The tables that an event is due for; they count from 0 again.
  std::vector<Swept> Take(int64_t now_ns);

 private:
  struct Totals {
    uint64_t expired = 0;
    uint64_t evicted = 0;

    friend bool operator==(const Totals&, const Totals&) = default;
  };
  struct Heard {
    Incarnation incarnation = 0;  // 0: nothing was heard
    std::map<TableId, Totals> tables;
  };
  struct Open {
    uint64_t expired = 0;
    uint64_t evicted = 0;
    int64_t told_ns = 0;
  };
  std::map<ServerId, Heard> heard_;
  std::map<TableId, Open> open_;
};

// Writes the events of the tables that still exist.
Operation MakeSweptEvents(std::vector<SweptTables::Swept> swept, int64_t unix_ms);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_STATE_SWEPT_TABLES_H_
