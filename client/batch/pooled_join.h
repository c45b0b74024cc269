// Takes the rows of partial bags as answers arrive, and joins them to bags (row_math/pooling.h).
//
// A bag that one shard holds alone gets its row at once. The rows of other bags wait until all have
// arrived and are then joined in the order of the ranges, so that the order of answers has no
// effect. Thread-compatible, except that several threads may call Take for different parts.
#ifndef HOTBED_CLIENT_BATCH_POOLED_JOIN_H_
#define HOTBED_CLIENT_BATCH_POOLED_JOIN_H_

#include <cstdint>
#include <vector>

#include "client/batch/pooled_plan.h"
#include "row_math/types.h"

namespace hotbed {

class PooledJoin {
 public:
  // To be called before anything is sent: reserves memory for rows that wait, and writes the rows
  // of bags that have no partial bag.
  void Begin(const PooledPlan& plan);

  struct Rows {
    RowType wire_type = RowType::kFp32;    // not kInt8
    const uint8_t* const* rows = nullptr;  // one pointer per partial bag of the part, in wire form
    const uint8_t* arg_max = nullptr;      // u32 each, unaligned; null where not requested
    const uint8_t* flags = nullptr;        // one byte per id of the part, or null
  };
  // False: an arg_max is not a position in its bag.
  bool Take(const PooledPlan& plan, const PooledPart& part, const Rows& rows);

  // After Take of every part.
  void Finish(const PooledPlan& plan);

  // After Finish, for a part that was not taken: its bags become zeros, and their `missing` 1.
  // Returns the number of bags that were not missing before.
  static uint64_t MarkMissing(const PooledPlan& plan, const PooledPart& part);

 private:
  void JoinBags(const PooledPlan& plan, const PooledFeature& feature);
  void Divide(const PooledFeature& feature);

  std::vector<float> waiting_;  // joined_floats() of the plan
  std::vector<uint32_t> waiting_args_;
  std::vector<uint8_t> begun_;  // by bag of the feature being joined: its first row is written
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_BATCH_POOLED_JOIN_H_
