// Cuts the pooled features of one call into partial bags: the ids of each bag that one shard holds,
// in their order. In a table of several column slices, every shard of a range gets the same partial
// bags.
//
// Partial bags of a feature lie range after range, and within a range in the order of the bags. A
// partial bag that is larger than a message may be is cut further, into consecutive pieces.
// Thread-compatible; once built, several threads may read it.
#ifndef HOTBED_CLIENT_BATCH_POOLED_PLAN_H_
#define HOTBED_CLIENT_BATCH_POOLED_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "client/batch/split.h"
#include "client/map/cluster_map.h"
#include "client/map/table_handle.h"

namespace hotbed {

struct PooledFeature {
  const TableHandle* table = nullptr;
  absl::Span<const uint64_t> ids;  // resolved (client/batch/resolve_ids.h)
  const uint8_t* skip = nullptr;   // one byte per id, not 0 where the id adds nothing; or null
  absl::Span<const uint32_t> lengths;
  const float* weights = nullptr;
  BagPooling pooling = BagPooling::kSum;
  float* rows = nullptr;
  uint64_t row_stride = 0;  // floats
  uint32_t* arg_max = nullptr;
  uint8_t* exists = nullptr;
  uint8_t* missing = nullptr;  // one per bag, or null
  // Set by the plan: the feature's partial bags [begin, end).
  uint32_t begin = 0;
  uint32_t end = 0;
};

struct PartialBag {
  uint32_t bag = 0;
  uint64_t first = 0;  // input of the feature where the bag begins
  uint64_t id_at = 0;  // of its ids, in PooledPlan::ids() and inputs()
  // Where its row waits to be joined, in rows of the feature's dim. kAlone: the bag has no other
  // partial bag, and the row is the bag's row.
  uint64_t row_at = 0;
  static constexpr uint64_t kAlone = ~uint64_t{0};
};

// Partial bags for one shard: the unit that is sent, answered and sent again.
struct PooledPart {
  uint32_t feature = 0;  // of PooledPlan::features()
  uint32_t shard = 0;
  uint32_t begin = 0;  // [begin, end) of PooledPlan::partials()
  uint32_t end = 0;
  uint32_t ids = 0;
  uint64_t id_at = 0;
  uint64_t weight_at = 0;
  uint32_t column_first = 0;
  uint32_t columns = 0;
  uint32_t bags() const { return end - begin; }
};

class PooledPlan {
 public:
  void Clear();
  // A part has at most `part_bytes_max` bytes, both directions together.
  void Add(const PooledFeature& feature, const TableRoute& route, RowType wire_type,
           uint64_t part_bytes_max);

  absl::Span<const PooledFeature> features() const { return features_; }
  absl::Span<const PooledPart> parts() const { return parts_; }
  absl::Span<const PartialBag> partials() const { return partials_; }
  // By partial bag, as they travel.
  absl::Span<const uint32_t> lengths() const { return lengths_; }
  // In the order of the partial bags; inputs() are the ids' numbers in their feature.
  absl::Span<const uint64_t> ids() const { return ids_; }
  absl::Span<const uint32_t> inputs() const { return inputs_; }
  absl::Span<const float> weights() const { return weights_; }  // of weighted features only
  // Floats that wait to be joined.
  uint64_t joined_floats() const { return joined_floats_; }

  // Ids, lengths, weights, rows and arg_max as they travel.
  uint64_t BytesOf(const PooledPart& part, RowType wire_type) const;

 private:
  void CutBags(const PooledFeature& feature, const TableRoute& route, uint64_t piece_ids_max);
  void FindJoined(PooledFeature* feature);
  void CutParts(uint32_t index, const TableRoute& route, RowType wire_type, uint64_t part_bytes_max,
                uint64_t weight_at, uint64_t id_first);

  std::vector<PooledFeature> features_;
  std::vector<PooledPart> parts_;
  std::vector<PartialBag> partials_;
  std::vector<uint32_t> lengths_;
  std::vector<uint64_t> ids_;
  std::vector<uint32_t> inputs_;
  std::vector<float> weights_;
  uint64_t joined_floats_ = 0;

  // Working memory for the feature being added.
  ShardSplit split_;
  std::vector<uint64_t> kept_ids_;  // without the skipped ids
  std::vector<uint32_t> kept_inputs_;
  std::vector<uint32_t> range_begin_;  // partial bags of each range, from the feature's first
  std::vector<uint32_t> per_bag_;      // number of partial bags
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_BATCH_POOLED_PLAN_H_
