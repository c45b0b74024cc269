// The rows that a table's life takes (LifeParams): those that have expired, and the order in which
// rows go when there are too many. Pure.
#ifndef HOTBED_SERVER_SHARD_ROW_POLICY_H_
#define HOTBED_SERVER_SHARD_ROW_POLICY_H_

#include <cstdint>
#include <vector>

#include "common/tables/shard_record.h"
#include "common/tables/table_spec.h"
#include "row_math/touches.h"

namespace hotbed {

// The statistics that a row keeps of itself.
struct RowRecord {
  RowTouches touches;
  RowShows shows;
};
// `touches`: the last kTouchBytes of the row's state.
RowRecord RecordAt(const OptimizerParams& params, const uint8_t* touches);

class RowPolicy {
 public:
  // The policies are those in force now (LifeOf).
  explicit RowPolicy(const TableSpec& table) : table_(table), life_(LifeOf(table)) {}

  // When a row is looked at.
  struct Moment {
    uint32_t time_s = 0;  // by the primary's clock
    uint64_t step = 0;    // of the newest push; 0: not known
  };
  // Rows that were assigned or imported and never touched stay until they are.
  bool Expired(const RowRecord& row, const Moment& now) const;
  // The row with the lowest key goes first. `weights` as they are stored.
  uint64_t KeyOf(const RowRecord& row, const uint8_t* weights, const Moment& now) const;
  // The shows and clicks count as they have faded by now (ScoreParams).
  float ScoreOf(const RowRecord& row, const Moment& now) const;

 private:
  const TableSpec& table_;
  const LifeParams life_;
};

// The rows of the table's limit that are a shard's: by its part of the positions, at least one. 0:
// no limit.
uint64_t RowsMaxOf(const TableSpec& table, const ShardRange& range);

// A uniform sample of the keys that were offered, whatever their number.
class KeySample {
 public:
  static constexpr size_t kKeysMax = 1 << 14;

  explicit KeySample(uint64_t seed) : random_(seed | 1) {}
  void Offer(uint64_t key);
  uint64_t offered() const { return offered_; }
  // A key that about `count` of the offered ones do not exceed, and at least one.
  uint64_t Threshold(uint64_t count);

 private:
  uint64_t random_;
  uint64_t offered_ = 0;
  std::vector<uint64_t> keys_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_ROW_POLICY_H_
