// The end of a shard's log in memory, as whole records: what its other copies may still need. Of
// the shard's strand, but for the byte count that all shards of a server share.
#ifndef HOTBED_SERVER_SHARD_REPLICA_TAIL_H_
#define HOTBED_SERVER_SHARD_REPLICA_TAIL_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "common/ids.h"
#include "server/shard/replica_message.h"

namespace hotbed {

// A copy whose last pass is under way or over: the tail drops nothing that it needs until then.
struct TailHold {
  Member to;
  int64_t until_ns;
};

class ReplicaTail {
 public:
  // `shared_bytes` outlives it; null: not counted.
  explicit ReplicaTail(std::atomic<int64_t>* shared_bytes) : shared_bytes_(shared_bytes) {}
  ~ReplicaTail() { Clear(); }
  ReplicaTail(const ReplicaTail&) = delete;
  ReplicaTail& operator=(const ReplicaTail&) = delete;

  // The records with LSNs above `lsn` will come; none is here.
  void BeginAbove(Lsn lsn) {
    Clear();
    first_ = lsn + 1;
  }
  // The record of the next LSN.
  void Add(Epoch epoch, SharedBytes record) {
    Count(static_cast<int64_t>(record.bytes.size()));
    records_.push_back({epoch, std::move(record)});
  }
  // `lsn` and what is behind it is not in the log after all.
  void CutFrom(Lsn lsn) {
    while (!records_.empty() && last() >= lsn) {
      Count(-static_cast<int64_t>(records_.back().bytes.bytes.size()));
      records_.pop_back();
    }
    if (records_.empty() && dropped_bytes_ != 0) Count(-std::exchange(dropped_bytes_, 0));
  }
  void DropThrough(Lsn lsn) {
    while (!records_.empty() && first_ <= lsn) {
      const SharedBytes dropped = std::move(records_.front().bytes);
      dropped_bytes_ += static_cast<int64_t>(dropped.bytes.size());
      records_.pop_front();
      ++first_;
      // What another server sent lies in one piece of memory, which goes with its last record.
      const bool more = !records_.empty() && records_.front().bytes.owner == dropped.owner;
      if (!more) Count(-std::exchange(dropped_bytes_, 0));
    }
    if (records_.empty() && first_ <= lsn) first_ = lsn + 1;
  }
  void Clear() { CutFrom(0); }

  bool empty() const { return records_.empty(); }
  Lsn first() const { return first_; }                       // or of the next one
  Lsn last() const { return first_ + records_.size() - 1; }  // first() - 1 when empty
  bool Has(Lsn lsn) const { return lsn >= first_ && lsn <= last(); }
  const SharedBytes& record(Lsn lsn) const { return records_[lsn - first_].bytes; }
  Epoch epoch(Lsn lsn) const { return records_[lsn - first_].epoch; }
  uint64_t bytes() const { return bytes_; }  // of memory, as shared_bytes
  // Of the records themselves; counts them one by one.
  uint64_t BytesAbove(Lsn lsn) const {
    uint64_t bytes = 0;
    for (Lsn at = last(); at > lsn && at >= first_; --at) bytes += record(at).bytes.size();
    return bytes;
  }

 private:
  struct Record {
    Epoch epoch;
    SharedBytes bytes;
  };
  void Count(int64_t bytes) {
    bytes_ += static_cast<uint64_t>(bytes);
    if (shared_bytes_ != nullptr) shared_bytes_->fetch_add(bytes, std::memory_order_relaxed);
  }

  std::atomic<int64_t>* const shared_bytes_;
  Lsn first_ = 1;
  std::deque<Record> records_;
  uint64_t bytes_ = 0;
  int64_t dropped_bytes_ = 0;  // of bytes_: of records that are gone, in the first one's memory
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_REPLICA_TAIL_H_
