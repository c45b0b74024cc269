// The state that a pull of a shard needs to be served at once: by an active primary, in its epoch,
// from rows that are applied and in memory. All other pulls take the long way (Shard::Pull), which
// gives the same answers and the reasons of refusals.
//
// The strand keeps it up to date: whatever may end such pulls shuts the gate. Confined to the
// shard's strand.
#ifndef HOTBED_SERVER_SHARD_REQUEST_PULL_GATE_H_
#define HOTBED_SERVER_SHARD_REQUEST_PULL_GATE_H_

#include <cstdint>

#include "common/ids.h"
#include "common/tables/shard_record.h"
#include "server/protocol/shard_core.h"
#include "server/shard/request/requests.h"

namespace hotbed {

class PullGate {
 public:
  // More ids take so long that the way to them does not count.
  static constexpr uint32_t kIdsMax = 512;

  PullGate(const ShardRange& range, bool hashed)
      : first_(range.first_position(hashed)), span_(range.last_position(hashed) - first_) {}

  // `may_open`: the shard serves, and its rows are not ahead of its log.
  void Set(const ShardCore& core, bool may_open) {
    const bool open =
        may_open && core.primary() && core.active() && core.inherited_lsn() <= core.applied_lsn();
    epoch_ = open ? core.epoch() : 0;
    lsn_ = core.applied_lsn();
  }
  void Shut() { epoch_ = 0; }
  // A push was applied, and nothing else has changed.
  void SetLsn(Lsn lsn) { lsn_ = lsn; }

  // The caller has checked the deadline.
  bool Admits(const PullWork& work, const PullSegment& segment) const {
    return segment.epoch == epoch_ && epoch_ != 0 && segment.lsn_min <= lsn_ && !work.strict &&
           segment.count <= kIdsMax && segment.pooling == RowPooling::kNone;
  }
  Epoch epoch() const { return epoch_; }
  Lsn lsn() const { return lsn_; }  // applied

  // Positions of the shard's range.
  uint64_t first() const { return first_; }
  uint64_t span() const { return span_; }  // the last one minus the first

 private:
  Epoch epoch_ = 0;  // 0: shut
  Lsn lsn_ = 0;
  const uint64_t first_;
  const uint64_t span_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_REQUEST_PULL_GATE_H_
