// The rows of partial bags, as they come in and as they are joined to bags (row_math/pooling.h).
//
// A bag that one shard has alone gets its row when it comes; the others wait until all have come
// and are joined in the order of the ranges, so that the order of answers changes nothing.
#ifndef HOTBED_CLIENT_BATCH_POOLED_JOIN_H_
#define HOTBED_CLIENT_BATCH_POOLED_JOIN_H_

#include <cstdint>
#include <vector>

#include "client/batch/pooled_plan.h"
#include "row_math/types.h"

namespace hotbed {

class PooledJoin {
 public:
  // Before anything is sent: room for what waits, and what is nothing is written already.
  void Begin(const PooledPlan& plan);

  struct Rows {
    RowType wire_type = RowType::kFp32;    // not kInt8
    const uint8_t* const* rows = nullptr;  // one pointer a partial bag of the part, in wire form
    const uint8_t* arg_max = nullptr;      // u32 each, unaligned; null where not asked for
    const uint8_t* flags = nullptr;        // one byte an id of the part, or null
  };
  // False: an arg_max that its bag does not have. Thread-safe for different parts.
  bool Take(const PooledPlan& plan, const PooledPart& part, const Rows& rows);

  // After Take of every part.
  void Finish(const PooledPlan& plan);

 private:
  void JoinBags(const PooledPlan& plan, const PooledFeature& feature);
  void Divide(const PooledFeature& feature);

  std::vector<float> waiting_;  // joined_floats() of the plan
  std::vector<uint32_t> waiting_args_;
  std::vector<uint8_t> begun_;  // of the feature at hand: the bag's first row is there
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_BATCH_POOLED_JOIN_H_
