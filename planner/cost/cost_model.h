// The cost of a training step for a server, row by row: the terms of the `cost` strategy. Pure; a
// CostModel is immutable after construction and safe from any thread.
// planner/model/cost_constants.h has the constants and their origin, docs/planner.md the model in
// prose.
//
// For a table with dimension D, T trainers and n = reads_per_step (ids per step and trainer; if the
// input has none, the sum of pooling_factor * num_poolings * batch_size over its features):
//   u = unique rows per step and trainer (access_curve.h: the client removes duplicates before a
//       request and sums gradients before it sends them)
// The cost in ns of each of the T * u rows of a shard with d columns, where W = weight bytes,
// S = state bytes and G = 4 d gradient bytes (fp32):
//   gather   gather_row_ns + W / host                                       primary, replica
//   out      (8 + W) / network                          id in, row out      primary, replica
//   update   update_row_ns + (2 W + 2 S + G) / host     read and written    all members;
//                                                                           optimizer none: 0
//   in       (8 + G) / network                          id and gradient in  all members
//   log      (8 + G) / network per backup or replica    the log out         primary
// Each shard also costs 2 * T * segment_ns * min(1, u of the shard), its part of a pull and of a
// push; half of that for backups, which only follow. `network` is bandwidth.intra_host if all
// servers are on one host, else inter_host. With device = cuda, gather and update cost
// device_row_ns + the same bytes / device, and the row crosses device_host once out and its
// gradient once in.
//
// A row outside of the hot tier costs more: (host_extra, only with cuda) gather and update are in
// host memory instead; (spill_extra) spill_row_ns + 2 (W + S) / spill for one record read and one
// written back. planner/cost/tier_load.h says which rows these are. The reads of a data-parallel
// table are spread evenly over its replicas; its updates go to each of them.
#ifndef HOTBED_PLANNER_COST_COST_MODEL_H_
#define HOTBED_PLANNER_COST_COST_MODEL_H_

#include <cstdint>
#include <vector>

#include "planner/model/planner_input.h"

namespace hotbed {

// ns per row that a trainer reads in a step.
struct RowCost {
  double forward_compute = 0;
  double forward_comms = 0;
  double backward_compute = 0;
  double backward_comms = 0;
  double host_extra = 0;   // if the row is in host memory although there is device memory
  double spill_extra = 0;  // if the row is in the spill, on top of host_extra
  double Hot() const { return forward_compute + forward_comms + backward_compute + backward_comms; }
};

class CostModel {
 public:
  explicit CostModel(const PlannerInput& input);

  // A row of `columns` columns on a member with `role` of a shard with `members` members in all.
  // This member serves `read_share` of its reads, and `update_share` of the reads lead to an
  // update.
  RowCost Row(const InputTable& table, uint32_t columns, Role role, uint32_t members,
              double read_share, double update_share = 1) const;

  // ns per step for the shard's message parts, if a trainer reads `unique` rows of it.
  double SegmentNs(Role role, double unique) const;

  double trainers() const { return trainers_; }
  bool device() const { return device_; }

 private:
  CostConstants constants_;
  bool device_;
  double trainers_;
};

// Ids per step and trainer of every table of the input (see above).
std::vector<double> AllReadsPerStep(const PlannerInput& input);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COST_COST_MODEL_H_
