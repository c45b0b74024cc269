// The segment files that a log consists of, oldest first, and which of them are still needed.
//
// Truncation removes whole segments from the old end, so that sequence numbers have no gap and a
// lost file is noticed. If a shard that is set aside needs the oldest segment, later segments that
// no shard needs are emptied: the file stays, without records. Only memory knows the greatest LSN
// of each shard in each segment; recovery rebuilds it. Thread-compatible; does no file I/O.
#ifndef HOTBED_SERVER_SHARD_LOG_SEGMENT_CHAIN_H_
#define HOTBED_SERVER_SHARD_LOG_SEGMENT_CHAIN_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "common/ids.h"
#include "server/shard_log/segment_format.h"

namespace hotbed {

struct Segment {
  uint64_t sequence = 0;
  std::string path;
  uint64_t bytes = 0;         // of its records and its header
  uint64_t reused_bytes = 0;  // of the older segment's file that this one is written over; 0: none
  uint32_t version = kSegmentFormatVersion;
  bool damaged = false;   // accepts no more appends
  uint32_t last_crc = 0;  // of the header of its last record or group; 0: none
  absl::flat_hash_map<ShardId, Lsn> lsn_max;

  void Add(ShardId shard, Lsn lsn) {
    Lsn& max = lsn_max[shard];
    if (max < lsn) max = lsn;
  }
};

class SegmentChain {
 public:
  void Push(Segment segment) {
    bytes_ += segment.bytes;
    segments_.push_back(std::move(segment));
  }
  // Records of the newest segment are missing, and it is unknown whose: it stays until the shard
  // ShardId() is forgotten.
  void MarkNewestUnknown() {
    segments_.back().damaged = true;
    segments_.back().Add(ShardId(), ~Lsn{0});
    aside_.insert(ShardId());
  }
  // A record was written to the newest segment.
  void AddRecord(ShardId shard, Lsn lsn) { segments_.back().Add(shard, lsn); }
  // The newest segment has grown by a record or a group, whose header has the checksum `crc`.
  void AddBytes(uint64_t bytes, uint32_t crc);

  // Records of `shard` below `lsn` are not needed from now on; `lsn` never falls.
  void SetLeastNeeded(ShardId shard, Lsn lsn);
  void Forget(ShardId shard);
  // Records of `parent` so far are records of `child` too.
  void Inherit(ShardId parent, ShardId child);
  // While set aside, `shard` keeps the records it needs; BytesAside counts segments that only such
  // shards need.
  void SetAside(ShardId shard, bool aside) {
    if (aside) {
      aside_.insert(shard);
    } else {
      aside_.erase(shard);
    }
  }
  uint64_t BytesAside() const;
  // Removes the oldest segments that no shard needs and returns their paths, oldest first. The
  // newest segment always stays.
  std::vector<std::string> TakeUnneeded();

  // While a shard set aside needs the oldest segment: marks later segments that no shard needs as
  // empty and returns them, oldest first; never the newest.
  std::vector<Segment> TakeEmptied();
  // Whether TakeUnneeded or TakeEmptied may return anything.
  bool MayShrink() const;

  // A shard that needs the oldest segment; nullopt: none does.
  std::optional<ShardId> OldestBlocker() const;

  bool empty() const { return segments_.empty(); }
  const Segment& newest() const { return segments_.back(); }
  const std::deque<Segment>& segments() const { return segments_; }
  uint64_t bytes() const { return bytes_; }

 private:
  bool Needs(ShardId shard, Lsn lsn_max) const;

  std::deque<Segment> segments_;
  uint64_t bytes_ = 0;
  absl::flat_hash_map<ShardId, Lsn> least_needed_;  // a shard without an entry needs everything
  absl::flat_hash_set<ShardId> aside_;
  mutable std::optional<ShardId> blocker_;  // the last answer of OldestBlocker, verified before use
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_LOG_SEGMENT_CHAIN_H_
