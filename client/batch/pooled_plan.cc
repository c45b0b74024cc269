#include "client/batch/pooled_plan.h"

#include <algorithm>

#include "client/batch/batch_plan.h"

namespace hotbed {
namespace {

constexpr uint64_t kPooledFieldsBytes = 16;  // of a pooled segment, in addition

uint64_t BytesPerId(const PooledFeature& feature) { return feature.weights == nullptr ? 8 : 12; }

uint64_t BytesPerBag(const PooledFeature& feature, uint32_t columns, RowType wire_type) {
  return 4 + RowWireBytes(wire_type, columns) + (feature.arg_max == nullptr ? 0 : 4ull * columns);
}

}  // namespace

void PooledPlan::Clear() {
  features_.clear();
  parts_.clear();
  partials_.clear();
  lengths_.clear();
  ids_.clear();
  inputs_.clear();
  weights_.clear();
  joined_floats_ = 0;
}

void PooledPlan::Add(const PooledFeature& feature, const TableRoute& route, RowType wire_type,
                     uint64_t part_bytes_max) {
  const uint32_t index = static_cast<uint32_t>(features_.size());
  features_.push_back(feature);
  const uint64_t weight_at = weights_.size();
  const uint64_t id_first = ids_.size();
  kept_ids_.clear();
  kept_inputs_.clear();
  for (uint32_t i = 0; i < feature.ids.size(); ++i) {
    if (feature.skip != nullptr && feature.skip[i] != 0) continue;
    kept_ids_.push_back(feature.ids[i]);
    kept_inputs_.push_back(i);
  }
  split_.Run(kept_ids_, route.spec.hashed, route.locator);
  const uint64_t of_bag = kPooledFieldsBytes + BytesPerBag(feature, route.spec.dim, wire_type);
  const uint64_t room = part_bytes_max > of_bag ? part_bytes_max - of_bag : 0;
  const uint64_t piece_ids_max = std::clamp<uint64_t>(room / BytesPerId(feature), 1, kPartRowsMax);
  features_.back().begin = static_cast<uint32_t>(partials_.size());
  CutBags(feature, route, piece_ids_max);
  features_.back().end = static_cast<uint32_t>(partials_.size());
  FindJoined(&features_.back());
  CutParts(index, route, wire_type, part_bytes_max, weight_at, id_first);
}

void PooledPlan::CutBags(const PooledFeature& feature, const TableRoute& route,
                         uint64_t piece_ids_max) {
  const uint32_t base = static_cast<uint32_t>(partials_.size());
  range_begin_.assign(1, 0);
  for (uint32_t range = 0; range < route.ranges(); ++range) {
    uint32_t bag = 0;
    uint64_t first = 0;  // the bag has the inputs [first, limit)
    uint64_t limit = feature.lengths.empty() ? 0 : feature.lengths[0];
    bool open = false;  // the newest partial bag belongs to `bag`
    for (uint32_t k = split_.begin[range]; k < split_.begin[range + 1]; ++k) {
      const uint32_t kept = split_.order[k];
      const uint32_t input = kept_inputs_[kept];
      while (input >= limit) {
        first = limit;
        limit += feature.lengths[++bag];
        open = false;
      }
      if (!open || lengths_.back() == piece_ids_max) {
        partials_.push_back({bag, first, ids_.size(), PartialBag::kAlone});
        lengths_.push_back(0);
        open = true;
      }
      ++lengths_.back();
      ids_.push_back(kept_ids_[kept]);
      inputs_.push_back(input);
      if (feature.weights != nullptr) weights_.push_back(feature.weights[input]);
    }
    range_begin_.push_back(static_cast<uint32_t>(partials_.size()) - base);
  }
}

void PooledPlan::FindJoined(PooledFeature* feature) {
  per_bag_.assign(feature->lengths.size(), 0);
  for (uint32_t p = feature->begin; p < feature->end; ++p) ++per_bag_[partials_[p].bag];
  for (uint32_t p = feature->begin; p < feature->end; ++p) {
    if (per_bag_[partials_[p].bag] < 2) continue;
    partials_[p].row_at = joined_floats_;
    joined_floats_ += feature->table->dim();
  }
}

void PooledPlan::CutParts(uint32_t index, const TableRoute& route, RowType wire_type,
                          uint64_t part_bytes_max, uint64_t weight_at, uint64_t id_first) {
  const PooledFeature& feature = features_[index];
  const uint64_t id_bytes = BytesPerId(feature);
  for (uint32_t place = 0; place < route.order.size(); ++place) {
    const uint32_t shard = route.order[place];
    const ShardRange& of_shard = route.shards[shard].range;
    const uint32_t columns = of_shard.column_limit - of_shard.column_first;
    const uint64_t bag_bytes = BytesPerBag(feature, columns, wire_type);
    const uint32_t range = place % route.ranges();
    uint64_t bytes = 0;
    for (uint32_t p = range_begin_[range]; p < range_begin_[range + 1]; ++p) {
      const uint32_t partial = feature.begin + p;
      const uint64_t more = bag_bytes + id_bytes * lengths_[partial];
      const bool fits = bytes > 0 && bytes + more <= part_bytes_max &&
                        uint64_t{parts_.back().ids} + lengths_[partial] <= kPartRowsMax;
      if (!fits) {
        const uint64_t id_at = partials_[partial].id_at;
        parts_.push_back({.feature = index,
                          .shard = shard,
                          .begin = partial,
                          .end = partial,
                          .id_at = id_at,
                          .weight_at = weight_at + (id_at - id_first),
                          .column_first = of_shard.column_first,
                          .columns = columns});
        bytes = kPooledFieldsBytes;
      }
      parts_.back().end = partial + 1;
      parts_.back().ids += lengths_[partial];
      bytes += more;
    }
  }
}

uint64_t PooledPlan::BytesOf(const PooledPart& part, RowType wire_type) const {
  const PooledFeature& feature = features_[part.feature];
  return kPooledFieldsBytes + part.ids * BytesPerId(feature) +
         part.bags() * BytesPerBag(feature, part.columns, wire_type);
}

}  // namespace hotbed
