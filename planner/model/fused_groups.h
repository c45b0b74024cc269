// The tables of a server that would be fused into one, because width and combiner agree: NVIDIA's
// distributed_embeddings (_create_concat). A view only, nothing is stored so (DECISIONS P4).
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

  // `rows` of `table` with `width` columns come to a server after what it has already: to the group
  // of their width and combiner there, or to a new one. `alone`: to a new one that stays alone.
  void Add(uint32_t server, const InputTable& table, uint32_t width, uint64_t rows,
           bool alone = false);

  // Sets the groups of the plan's servers.
  void MoveTo(PlannerOutput* plan);

 private:
  std::vector<std::vector<FusedGroup>> groups_;
  std::vector<std::vector<uint64_t>> ends_;  // rows of each group; 0: it stays alone
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_MODEL_FUSED_GROUPS_H_
