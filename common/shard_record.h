// The only truth about who owns a shard: one record a shard in the metadata store, changed by
// compare-and-set alone (reference page, section 3.1; DECISIONS P3). Carried in WRONG_EPOCH
// replies, cluster maps and heartbeats.
#ifndef HOTBED_COMMON_SHARD_RECORD_H_
#define HOTBED_COMMON_SHARD_RECORD_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "common/ids.h"

namespace hotbed {

// One process that may hold a shard. A restarted process is a new incarnation: another member.
struct Member {
  ServerId server = 0;
  Incarnation incarnation = 0;
  friend bool operator==(const Member& a, const Member& b) {
    return a.server == b.server && a.incarnation == b.incarnation;
  }
};

// Whether a list of members or servers names `wanted`.
template <typename T>
bool Contains(const std::vector<T>& list, const std::type_identity_t<T>& wanted) {
  return std::find(list.begin(), list.end(), wanted) != list.end();
}

// Half-open ranges of a shard. `first`/`limit` count rows (bounded) or buckets out of 65,536
// (hashed, DECISIONS P2).
struct ShardRange {
  uint64_t first = 0;
  uint64_t limit = 0;
  uint32_t column_first = 0;
  uint32_t column_limit = 0;

  // Positions, both ends inside: 2^64 cannot be written as a limit.
  uint64_t first_position(bool hashed) const { return hashed ? first << 48 : first; }
  uint64_t last_position(bool hashed) const {
    return hashed ? (limit << 48) - 1 : limit - 1;  // limit 65,536 wraps to 2^64-1, as it should
  }
};

struct ShardRecord {
  ShardId shard;
  ShardRange range;
  Epoch epoch = 0;        // +1 whenever primary or members change
  uint64_t revision = 0;  // of the metadata store; orders two views of one epoch
  Member primary;
  std::vector<Member> members;  // with the primary
  std::vector<Member> learners;
  // Servers of `learners` that only follow, to be read from: their primary never puts them into its
  // acknowledging set, so they hold up nobody and cannot become members.
  std::vector<ServerId> readers;
  bool active = false;       // written once an epoch, before its first acknowledgement
  std::vector<Member> base;  // members of the last active epoch
};

}  // namespace hotbed

#endif  // HOTBED_COMMON_SHARD_RECORD_H_
