// The record of one shard: which processes hold it, and which of them is its primary.
//
// There is one record per shard in the metadata store, and it is the only truth about who owns the
// shard. It changes by compare-and-set alone. WRONG_EPOCH replies, cluster maps and heartbeats
// carry it. Plain values: safe to read from any thread.
#ifndef HOTBED_COMMON_TABLES_SHARD_RECORD_H_
#define HOTBED_COMMON_TABLES_SHARD_RECORD_H_

#include <algorithm>
#include <compare>
#include <cstdint>
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

// True if a list of members or of servers contains `wanted`.
template <typename T>
bool Contains(const std::vector<T>& list, const std::type_identity_t<T>& wanted) {
  return std::find(list.begin(), list.end(), wanted) != list.end();
}
// True if any incarnation of `server` is in `members`.
inline bool ContainsServer(const std::vector<Member>& members, ServerId server) {
  return std::any_of(members.begin(), members.end(),
                     [server](const Member& member) { return member.server == server; });
}

// Half-open ranges of a shard. `first`/`limit` count rows (bounded tables) or buckets out of 65,536
// (hashed tables).
struct ShardRange {
  uint64_t first = 0;
  uint64_t limit = 0;
  uint32_t column_first = 0;
  uint32_t column_limit = 0;

  // Positions, both ends inclusive: 2^64 cannot be written as a limit.
  uint64_t first_position(bool hashed) const { return hashed ? first << 48 : first; }
  uint64_t last_position(bool hashed) const {
    return hashed ? (limit << 48) - 1 : limit - 1;  // limit 65,536 wraps to 2^64-1, as it should
  }
};

// Where a replica's log ends: its last entry. Of two members of one epoch, the log with the later
// end holds every entry of the other one that was acknowledged: Raft's order, the epoch first.
struct LogEnd {
  Epoch epoch = 0;
  Lsn lsn = 0;  // 0: nothing was ever logged
  friend auto operator<=>(const LogEnd&, const LogEnd&) = default;
};

// A server without whose replica the shard went on, although it may hold more. It keeps its rows
// and takes no part until it has said that it holds no more than `chosen`, or a person decides.
struct PassedOver {
  ServerId server = 0;
  LogEnd chosen;  // of the replica that was taken instead
  friend bool operator==(const PassedOver&, const PassedOver&) = default;
};

// A part of a shard's range whose pushes are numbered together. A shard has one lane at first; one
// that was merged from two has the lanes of both, because each session's sequences go on where they
// were in each part. A push names rows of one lane.
struct ShardLane {
  uint32_t index = 0;  // of the lane in its table; that of the shard that it began as
  // Under which the shard keeps the lane's sessions (common/tables/session_of_lane.h); 0: plainly.
  uint32_t tag = 0;
  uint32_t tag_before = 0;  // in the part of before the last merge
  uint64_t first = 0;
  uint64_t limit = 0;
  friend bool operator==(const ShardLane&, const ShardLane&) = default;
};

// How the shard was made of two neighbours: each replica merges those that it holds likewise.
struct ShardMerge {
  ShardId with;     // the upper part, which is no shard any more
  LogEnd end;       // of the lower part, which has the shard's number
  LogEnd end_with;  // of the upper one
  LogEnd base;      // that the log of the shard begins after; lsn 0: it was never merged
  friend bool operator==(const ShardMerge&, const ShardMerge&) = default;
};

struct ShardRecord {
  ShardId shard;
  ShardRange range;
  Epoch epoch = 0;        // +1 whenever primary or members change
  uint64_t revision = 0;  // of the metadata store; orders two views of one epoch
  Member primary;
  std::vector<Member> members;  // including the primary
  std::vector<Member> learners;
  // Servers of `learners` that only follow, to be read from. Their primary never puts them into its
  // acknowledging set, so they delay no push and cannot become members.
  std::vector<ServerId> readers;
  bool active = false;       // written once per epoch, before its first acknowledgement
  std::vector<Member> base;  // members of the last active epoch
  std::vector<PassedOver> passed_over;
  std::vector<ShardLane> lanes;  // in order of their ranges; empty: one, of the shard's own index
  ShardMerge merge;              // the last one, until the shard is cut

  std::vector<ShardLane> Lanes() const {
    if (!lanes.empty()) return lanes;
    return {{.index = shard.index, .first = range.first, .limit = range.limit}};
  }

  // True if this process has a part in the shard, as a member or as a learner.
  bool Holds(const Member& member) const {
    return Contains(members, member) || Contains(learners, member);
  }
  // The same for any incarnation of the server: an earlier one may have left data that counts.
  bool Names(ServerId server) const {
    return ContainsServer(members, server) || ContainsServer(learners, server) ||
           FindPassedOver(server) != nullptr;
  }
  const PassedOver* FindPassedOver(ServerId server) const {
    const auto it = std::find_if(passed_over.begin(), passed_over.end(),
                                 [server](const PassedOver& p) { return p.server == server; });
    return it == passed_over.end() ? nullptr : &*it;
  }
  // Whether the replica that an earlier process of `self`'s server left behind may count: the
  // coordinator has to know where its log ends, and it is not to be deleted.
  bool AsksFor(const Member& self) const {
    if (Holds(self)) return false;
    return ContainsServer(members, self.server) || FindPassedOver(self.server) != nullptr ||
           (!active && ContainsServer(base, self.server));
  }
  bool IsNewerThan(const ShardRecord& other) const {
    return epoch != other.epoch ? epoch > other.epoch : revision > other.revision;
  }
};

}  // namespace hotbed

#endif  // HOTBED_COMMON_TABLES_SHARD_RECORD_H_
