#include "client/batch/batch_plan.h"

#include <algorithm>
#include <numeric>

#include "common/check.h"

namespace hotbed {

TableGroup* BatchPlan::GroupOf(const TableHandle* table) {
  for (size_t i = 0; i < group_count_; ++i) {
    if (groups_[i].table == table) return &groups_[i];
  }
  if (group_count_ == groups_.size()) groups_.emplace_back();
  TableGroup& group = groups_[group_count_++];
  group.table = table;
  group.runs.clear();
  return &group;
}

void BatchPlan::FindUnique(absl::Span<const FeatureIds> features, Deduper* deduper,
                           TableGroup* group) {
  const FeatureIds& only = features[group->runs[0].feature];
  if (group->runs.size() == 1 && only.distinct && only.skip == nullptr) {
    group->ids.unique.assign(only.ids.begin(), only.ids.end());
    group->ids.first.resize(only.ids.size());
    std::iota(group->ids.first.begin(), group->ids.first.end(), 0);
    group->ids.next.assign(only.ids.size(), kNoIndex);
    return;
  }
  id_parts_.clear();
  for (const TableGroup::Run& run : group->runs) {
    id_parts_.push_back({features[run.feature].ids, features[run.feature].skip});
  }
  deduper->Run(id_parts_, &group->ids);
}

void BatchPlan::Build(absl::Span<const FeatureIds> features, const ClusterMap& map,
                      Deduper* deduper, RowType wire_type, uint64_t part_bytes_max) {
  group_count_ = 0;
  parts_.clear();
  unique_rows_ = 0;
  part_rows_ = 0;
  for (size_t f = 0; f < features.size(); ++f) {
    if (features[f].ids.empty()) continue;
    TableGroup* group = GroupOf(features[f].table);
    const uint32_t begin = group->runs.empty() ? 0 : group->runs.back().end;
    const uint32_t end = begin + static_cast<uint32_t>(features[f].ids.size());
    group->runs.push_back({static_cast<uint32_t>(f), begin, end});
  }
  for (uint32_t g = 0; g < group_count_; ++g) {
    TableGroup& group = groups_[g];
    FindUnique(features, deduper, &group);
    unique_rows_ += group.ids.unique.size();
    const TableRoute* route = map.Table(group.table->id());
    HOTBED_CHECK(route != nullptr) << "table " << group.table->name() << " was checked before";
    group.split.Run(group.ids.unique, route->spec.hashed, route->locator);
    CutGroup(g, *route, wire_type, part_bytes_max);
  }
}

void BatchPlan::CutGroup(uint32_t index, const TableRoute& route, RowType wire_type,
                         uint64_t part_bytes_max) {
  const TableGroup& group = groups_[index];
  const uint32_t ranges = route.ranges();
  const uint32_t* const begin = group.split.begin.data();
  part_rows_ += uint64_t{route.slices()} * group.ids.unique.size();
  for (uint32_t slice = 0; slice < route.slices(); ++slice) {
    const ShardRange& of_slice = route.shards[route.ShardOf(slice, 0)].range;
    PlanPart part;
    part.group = index;
    part.column_first = of_slice.column_first;
    part.columns = of_slice.column_limit - of_slice.column_first;
    const uint64_t shows = group.table->options().optimizer.shows.kept ? kShowBytes : 0;
    const uint64_t row_bytes = 8 + RowWireBytes(wire_type, part.columns) + shows;
    const uint64_t rows_per_number = RowsPerNumber(part.columns);
    const uint64_t rows_max =
        std::max(std::min(part_bytes_max / row_bytes, kPartRowsMax), rows_per_number);
    for (uint32_t range = 0; range < ranges; ++range) {
      if (begin[range + 1] == begin[range]) continue;
      CutShard(route.ShardOf(slice, range), begin[range], begin[range + 1], rows_max,
               rows_per_number, part);
    }
  }
}

// Appends the parts of one shard, which has the ids [begin, end) of the group's split. `shared` is
// the same for all shards of a slice: a part that had just been written would be copied slowly.
void BatchPlan::CutShard(uint32_t shard, uint32_t begin, uint32_t end, uint64_t rows_max,
                         uint64_t rows_per_number, const PlanPart& shared) {
  const uint64_t count = end - begin;
  if (count <= rows_max / rows_per_number * rows_per_number) {
    PlanPart& part = parts_.emplace_back(shared);
    part.shard = shard;
    part.begin = begin;
    part.end = end;
    part.last_of_shard = true;
    part.number_limit = static_cast<uint32_t>(
        rows_per_number == 1 ? count : (count + rows_per_number - 1) / rows_per_number);
    return;
  }
  const PartCut cut(count, rows_max, rows_per_number);
  for (uint64_t p = 0; p < cut.parts; ++p) {
    PlanPart& part = parts_.emplace_back(shared);
    part.shard = shard;
    part.begin = begin + static_cast<uint32_t>(cut.Begin(p));
    part.end = begin + static_cast<uint32_t>(cut.Begin(p + 1));
    part.last_of_shard = p + 1 == cut.parts;
    part.first_number = static_cast<uint32_t>(cut.FirstNumber(p));
    part.number_limit = static_cast<uint32_t>(cut.FirstNumber(p + 1));
  }
}

void BatchPlan::GatherIds(const PlanPart& part, uint64_t* out) const {
  const TableGroup& group = groups_[part.group];
  const uint64_t* const unique = group.ids.unique.data();
  const uint32_t* const order = group.split.order.data();
  for (uint32_t k = part.begin; k < part.end; ++k) *out++ = unique[order[k]];
}

}  // namespace hotbed
