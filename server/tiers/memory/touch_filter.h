// The counts of touches of a shard's ids, by which their rows are admitted
// (common/tables/touch_filter_shape.h).
//
// Every touch of every id is counted until it has as many as admission needs, also of ids that have
// a row: so the counts are a function of the log records alone, and replicas, replays and transfers
// come to the same ones whatever rows they find. Counts are never forgotten.
//
// Confined to the shard's executor.
#ifndef HOTBED_SERVER_TIERS_MEMORY_TOUCH_FILTER_H_
#define HOTBED_SERVER_TIERS_MEMORY_TOUCH_FILTER_H_

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/tables/shard_record.h"
#include "common/tables/table_spec.h"
#include "common/tables/touch_filter_shape.h"

namespace hotbed {

class TouchFilter {
 public:
  // The table filters (AdmissionParams::Filters).
  TouchFilter(const TableSpec& table, const ShardRange& range);

  // Counts a touch of each ids[picks[k]], in order. enough[picks[k]]: the id has the touches that
  // its row needs, with this one; from then on its touches change nothing.
  void Touch(const uint64_t* ids, const std::vector<uint32_t>& picks, uint8_t* enough);

  // As the header of touch_filter_shape.h says, in one piece; empty: nothing was counted.
  std::string Save() const;
  // Takes the blocks of its range over. Pieces of another shape, from a table that was made with
  // other options, are passed over. DataLoss: no such pieces.
  absl::Status Restore(absl::string_view saved);

  uint64_t bytes() const { return shape_.Bytes(buckets_); }
  uint64_t counters() const { return shape_.Blocks(buckets_) * shape_.counters_per_block(); }
  uint64_t used() const { return used_; }  // counters above 0

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };

  template <uint32_t kBits>
  void TouchAll(const uint64_t* ids, const std::vector<uint32_t>& picks, uint8_t* enough);
  template <uint32_t kBits>
  bool TouchOne(uint8_t* block, uint64_t probes);
  uint8_t* BlockOf(uint64_t position) const {
    return blocks_ + uint64_t{kFilterBlockBytes} * (shape_.BlockOf(position) - first_block_);
  }
  uint64_t UsedIn(const uint8_t* block) const;

  const TouchFilterShape shape_;
  const uint32_t needed_;
  const uint64_t buckets_;
  const uint32_t first_block_;
  std::unique_ptr<void, Free> memory_;  // zeros, whose pages are taken as they are written
  uint8_t* blocks_;                     // in it, at the start of a cache line
  uint64_t used_ = 0;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_TIERS_MEMORY_TOUCH_FILTER_H_
