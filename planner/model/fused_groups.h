// The tables of a server that would be fused into one, because width and combiner agree, as in
// NVIDIA's distributed_embeddings (_create_concat). A view only: nothing is stored that way.
// Thread-compatible.
#ifndef HOTBED_PLANNER_MODEL_FUSED_GROUPS_H_
#define HOTBED_PLANNER_MODEL_FUSED_GROUPS_H_

#include <cstdint>
#include <vector>

#include "planner/model/planner_input.h"
#include "planner/model/planner_output.h"

namespace hotbed {

class FusedGroups {
 public:
  explicit FusedGroups(size_t servers) : groups_(servers), ends_(servers) {}

  // Appends `rows` rows of `table` with `width` columns to the server's group of that width and
  // combiner, or to a new one. `alone`: to a new group that takes no other table.
  void Add(uint32_t server, const InputTable& table, uint32_t width, uint64_t rows,
           bool alone = false);

  // Sets the groups of the plan's servers.
  void MoveTo(PlannerOutput* plan);

 private:
  std::vector<std::vector<FusedGroup>> groups_;
  std::vector<std::vector<uint64_t>> ends_;  // rows of each group; 0: it takes no other table
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_MODEL_FUSED_GROUPS_H_
