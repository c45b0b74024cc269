// What a training step costs a server, row by row: the terms of the `cost` strategy. Pure; a
// CostModel is immutable after construction and safe from any thread. Constants and where they come
// from: planner/model/cost_constants.h. docs/planner.md has the model in prose.
//
// For a table with dimension D, T trainers and n = reads_per_step (ids a step and trainer; where
// the input has none, the sum of pooling_factor * num_poolings * batch_size over its features):
//   u = unique rows a step and trainer (planner/cost/access_curve.h: the client removes duplicates
//       before it asks and sums gradients before it sends)
// and for each of the T * u rows of a shard with d columns, W = weight bytes, S = state bytes,
// G = 4 d gradient bytes (fp32), in ns:
//   gather    gather_row_ns + W / host                                  primary, replica
//   out       (8 + W) / network                 id in, row out          primary, replica
//   update    update_row_ns + (2 W + 2 S + G) / host   read and written all members; optimizer
//   none: 0 in        (8 + G) / network                 id and gradient in      all members log (8
//   + G) / network for each backup or replica: the log out primary
// and for each shard 2 * T * segment_ns * min(1, u of the shard) (its part of a pull and of a push;
// half of that for backups, which only follow). `network` is bandwidth.intra_host where all servers
// are on one host, else inter_host. With device = cuda, gather and update are device_row_ns + the
// same bytes / device, the row crosses device_host once out and its gradient once in.
//   A row outside of the hot tier costs on top (host_extra, only with cuda): gather and update in
//   host
// memory instead; (spill_extra) spill_row_ns + 2 (W + S) / spill: one record read, one written
// back. Which rows these are: planner/cost/tier_load.h. A data-parallel table's reads are spread
// evenly over its copies; its updates go to each.
#ifndef HOTBED_PLANNER_COST_COST_MODEL_H_
#define HOTBED_PLANNER_COST_COST_MODEL_H_

#include <cstdint>
#include <vector>

#include "planner/model/planner_input.h"

namespace hotbed {

// ns a row that a trainer asks for in a step.
struct RowCost {
  double forward_compute = 0;
  double forward_comms = 0;
  double backward_compute = 0;
  double backward_comms = 0;
  double host_extra = 0;   // when it is in host memory while there is device memory
  double spill_extra = 0;  // when it is in the spill, on top of host_extra
  double Hot() const { return forward_compute + forward_comms + backward_compute + backward_comms; }
};

class CostModel {
 public:
  explicit CostModel(const PlannerInput& input);

  // A row of `columns` columns on a member with `role` of a shard with `members` members in all;
  // `read_share` of its reads are this member's, and in `update_share` of the cases it is updated.
  RowCost Row(const InputTable& table, uint32_t columns, Role role, uint32_t members,
              double read_share, double update_share = 1) const;

  // ns a step of the shard's message parts, when a trainer asks it for `unique` rows.
  double SegmentNs(Role role, double unique) const;

  double trainers() const { return trainers_; }
  bool device() const { return device_; }

 private:
  CostConstants constants_;
  bool device_;
  double trainers_;
};

// Ids a step and trainer of every table of the input (see above).
std::vector<double> AllReadsPerStep(const PlannerInput& input);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COST_COST_MODEL_H_
