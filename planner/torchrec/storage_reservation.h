// The part of every rank's memory that is reserved before tables are placed
// (planner/storage_reservations.py at a48cef7).
//
//   none        nothing
//   percentage  device memory becomes floor((1 - fraction) x it)
//   heuristic   that; minus 6 x dense_bytes; minus 20 ceil(8 sum pooling x batch size) for two
//               pipelined batches of ids, ten copies each
//   inference   that; minus dense_bytes; minus ceil(8 sum pooling x batch size)
// The last two take their bytes from the device, or on a cpu from host memory. The fraction is that
// of device memory only: on a cpu `percentage` reserves nothing.
//
// Pure; safe from any thread.
#ifndef HOTBED_PLANNER_TORCHREC_STORAGE_RESERVATION_H_
#define HOTBED_PLANNER_TORCHREC_STORAGE_RESERVATION_H_

#include <vector>

#include "planner/model/plan_error.h"
#include "planner/model/planner_input.h"
#include "planner/torchrec/rank_topology.h"
#include "planner/torchrec/table_workload.h"

namespace hotbed::torchrec {

struct Reserved {
  std::vector<Storage> left;  // by rank: for tables; may be negative
  Storage dense;              // of each rank
  Storage ids;                // of each rank
};

// Error insufficient_storage if `heuristic` leaves less than nothing on the first rank.
PlanResult<Reserved> ReserveStorage(const PlannerInput& input, const RankTopology& topology,
                                    const std::vector<TableWorkload>& loads);

}  // namespace hotbed::torchrec

#endif  // HOTBED_PLANNER_TORCHREC_STORAGE_RESERVATION_H_
