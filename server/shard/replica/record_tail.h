// The end of a shard's log in memory, as whole records that its other replicas may still need.
//
// Records are dropped when no replica needs them (ShardCore::retained_lsn), or when the memory that
// all shards of the server share for records runs short. Shares of that budget: up to one half for
// records kept in case a replica comes back, up to three quarters for records that snapshot
// transfers in progress will need next. The last quarter is reserved for uncommitted entries and
// for replicas that the tail is held for.
//
// Confined to the shard's strand; only the byte count of the budget is shared.
#ifndef HOTBED_SERVER_SHARD_REPLICA_RECORD_TAIL_H_
#define HOTBED_SERVER_SHARD_REPLICA_RECORD_TAIL_H_

#include <cstdint>
#include <vector>

#include "common/clock.h"
#include "common/ids.h"
#include "common/ring_queue.h"
#include "common/tables/shard_record.h"
#include "server/protocol/shard_core.h"
#include "server/shard/replica/replica_budget.h"
#include "server/shard/replica/replica_message.h"

namespace hotbed {

class RecordTail {
 public:
  // All outlive it. `budget` is null where the shard has no other replicas: then nothing is added.
  RecordTail(ShardCore* core, ReplicaBudget* budget, const Clock* clock)
      : core_(core), budget_(budget), clock_(clock) {}
  ~RecordTail() { Clear(); }
  RecordTail(const RecordTail&) = delete;
  RecordTail& operator=(const RecordTail&) = delete;

  // Every entry of the log is added from now on.
  void StartKeeping() { keeps_ = true; }
  bool keeps() const { return keeps_; }

  // Drops everything; the next record is that of `lsn` + 1.
  void BeginAbove(Lsn lsn);
  // The record of the next LSN.
  void Add(Epoch epoch, SharedBytes record);
  // `lsn` and everything above it is not in the log after all.
  void CutFrom(Lsn lsn);
  void DropThrough(Lsn lsn);
  void Clear() { CutFrom(0); }

  // Drops the records that no replica needs, and those that exceed the budget. The core learns of
  // dropped records that a replica still lacks (ShardCore::DropRetained).
  void Trim();
  // Nothing that `to` needs is dropped until it has joined, its transfer has failed, or 30 s have
  // passed. Where that leaves too little memory, full() refuses pushes for a moment.
  void Hold(const Member& to);
  void EndHold(const Member& to);
  // Holds the tail for `to` if it has all entries above `lsn` and they take little of the budget.
  bool HoldIfSmall(const Member& to, Lsn lsn);
  // Whether records that other replicas have not taken fill the budget.
  bool full() const;

  bool empty() const { return records_.empty(); }
  Lsn first() const { return first_; }                       // or of the next one
  Lsn last() const { return first_ + records_.size() - 1; }  // first() - 1 when empty
  bool Has(Lsn lsn) const { return lsn >= first_ && lsn <= last(); }
  const SharedBytes& record(Lsn lsn) const { return records_[lsn - first_].bytes; }
  Epoch epoch(Lsn lsn) const { return records_[lsn - first_].epoch; }
  // Memory in use. One allocation may hold several records, and counts until the last one goes.
  uint64_t bytes() const { return bytes_; }
  // Bytes of the records above `lsn`; adds them up one by one.
  uint64_t BytesAbove(Lsn lsn) const;

 private:
  struct Record {
    Epoch epoch = 0;
    SharedBytes bytes;
  };
  struct TailHold {
    Member to;
    int64_t until_ns;
  };

  void Count(int64_t bytes);
  // Drops records up to `limit`, as many as it takes to bring the server's tails within `room`.
  void Free(Lsn limit, uint64_t room);
  // Forgets the holds that have ended. Whether any is left.
  bool Held();

  ShardCore* const core_;
  ReplicaBudget* const budget_;
  const Clock* const clock_;
  bool keeps_ = false;
  Lsn first_ = 1;
  RingQueue<Record> records_;
  uint64_t bytes_ = 0;
  int64_t dropped_bytes_ = 0;  // part of bytes_: dropped records in the first one's allocation
  std::vector<TailHold> holds_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_REPLICA_RECORD_TAIL_H_
