// Turns one call into parts: per table the unique ids, the inputs where each of them occurred, and
// the range of positions that each belongs to; then parts of one shard each, cut by bytes. In a
// table of several column slices, every id is in one part of each slice.
//
// A plan refers to its content by positions in vectors, so that it can be used again without
// freeing memory. Thread-compatible; once built, several threads may read it.
#ifndef HOTBED_CLIENT_BATCH_BATCH_PLAN_H_
#define HOTBED_CLIENT_BATCH_BATCH_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "client/batch/dedupe.h"
#include "client/batch/split.h"
#include "client/map/cluster_map.h"
#include "client/map/table_handle.h"

namespace hotbed {

// Rows per part, whatever their bytes: fewer than a server accepts in one segment (--pull-ids-max).
inline constexpr uint64_t kPartRowsMax = 1 << 18;

// The cluster and the client that a call is planned for.
struct PlanInput {
  ClusterMapPtr map;
  const void* owner = nullptr;     // the client that the tables must belong to
  uint64_t segment_bytes_max = 0;  // of one message (SegmentBytesMax)
};

// The fields that features of pulls and of pushes share.
struct FeatureIds {
  const TableHandle* table = nullptr;
  absl::Span<const uint64_t> ids;
  const uint8_t* skip = nullptr;  // as IdsPart::skip
  bool distinct = false;          // no id occurs twice
};

// All features of a call that read one table, as one sequence of inputs.
struct TableGroup {
  const TableHandle* table = nullptr;
  struct Run {
    uint32_t feature = 0;  // index into the call's features
    uint32_t begin = 0;    // inputs [begin, end) are this feature's ids
    uint32_t end = 0;
  };
  std::vector<Run> runs;
  UniqueIds ids;
  ShardSplit split;  // by range of positions, which all column slices share
};

// A piece of one shard: the unit that is sent, answered and sent again.
struct PlanPart {
  uint32_t group = 0;
  uint32_t shard = 0;  // index in the table
  uint32_t begin = 0;  // [begin, end) of the group's split.order
  uint32_t end = 0;
  uint32_t column_first = 0;  // of a row, the shard has `columns` columns from this one on
  uint32_t columns = 0;
  bool last_of_shard = false;
  uint32_t first_number = 0;  // [first_number, number_limit) of the shard's numbers in this step
  uint32_t number_limit = 0;
  uint32_t rows() const { return end - begin; }
  // Makes this, which need not be of one shard, end where `next` does. False: the rows of `next` do
  // not follow in the split, or are other columns.
  bool Extend(const PlanPart& next) {
    if (next.begin != end || next.group != group || next.column_first != column_first ||
        next.columns != columns) {
      return false;
    }
    end = next.end;
    return true;
  }
};

class BatchPlan {
 public:
  // Features without ids are skipped. The ids of a part, and its columns of rows of `wire_type`,
  // are at most `part_bytes_max` bytes; but a part holds at least the rows of one sequence number,
  // and at most kPartRowsMax rows.
  void Build(absl::Span<const FeatureIds> features, const ClusterMap& map, Deduper* deduper,
             RowType wire_type, uint64_t part_bytes_max);

  absl::Span<const TableGroup> groups() const { return {groups_.data(), group_count_}; }
  absl::Span<const PlanPart> parts() const { return parts_; }
  uint64_t unique_rows() const { return unique_rows_; }
  uint64_t part_rows() const { return part_rows_; }  // of all parts: a row counts once per slice
  const TableGroup& group(const PlanPart& part) const { return groups_[part.group]; }

  // The ids of a part, in the order of its rows.
  void GatherIds(const PlanPart& part, uint64_t* out) const;

 private:
  TableGroup* GroupOf(const TableHandle* table);
  void FindUnique(absl::Span<const FeatureIds> features, Deduper* deduper, TableGroup* group);
  void CutGroup(uint32_t index, const TableRoute& route, RowType wire_type,
                uint64_t part_bytes_max);
  void CutShard(uint32_t shard, uint32_t begin, uint32_t end, uint64_t rows_max,
                uint64_t rows_per_number, const PlanPart& shared);

  std::vector<TableGroup> groups_;  // the first group_count_ are in use; the rest keep their memory
  size_t group_count_ = 0;
  std::vector<PlanPart> parts_;
  std::vector<IdsPart> id_parts_;
  uint64_t unique_rows_ = 0;
  uint64_t part_rows_ = 0;
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_BATCH_BATCH_PLAN_H_
