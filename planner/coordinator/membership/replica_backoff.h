// Which servers have failed to hold copies of which shards, and how long each is left alone for it.
//
// A copy that is lost while its process lives (damaged, other than its primary's, or fed what it
// cannot take) is made anew at once the first time. Where it is lost again the cause is likely to
// last, and each copy costs all rows on the wire: the shard waits kLostAgainNs before that server
// is asked again, twice as long each time, up to kLostNsMax. Who left because it and a primary did
// not hear of each other is left alone for kUnreachedNs.
//
// Nothing here is kept in the metadata store: another coordinator begins to count anew. Times are
// monotonic nanoseconds. Pure; thread-compatible.
#ifndef HOTBED_PLANNER_COORDINATOR_MEMBERSHIP_REPLICA_BACKOFF_H_
#define HOTBED_PLANNER_COORDINATOR_MEMBERSHIP_REPLICA_BACKOFF_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/ids.h"

namespace hotbed {

class ReplicaBackoff {
 public:
  static constexpr int64_t kUnreachedNs = 30'000'000'000;
  static constexpr int64_t kLostAgainNs = 30'000'000'000;
  static constexpr int64_t kLostNsMax = 3600 * int64_t{1'000'000'000};
  // Losses are in a row where each comes within so long of when the server was asked again.
  static constexpr int64_t kForgottenNs = kLostNsMax;

  void NoteUnreached(uint64_t shard, ServerId server, int64_t now_ns);
  // For the event log: that it is not the first time and what follows, else empty.
  std::string NoteLost(uint64_t shard, ServerId server, int64_t now_ns);

  // Servers that are not asked for a copy of the shard now.
  std::vector<ServerId> Avoided(uint64_t shard, int64_t now_ns) const;
  // Why the server is one of them, for people; empty: it is not.
  std::string Why(uint64_t shard, ServerId server, int64_t now_ns) const;

  void Forget(uint64_t shard) { of_shard_.erase(shard); }
  void Clear() { of_shard_.clear(); }

 private:
  struct Failures {
    ServerId server = 0;
    uint32_t lost = 0;  // in a row
    int64_t last_lost_ns = 0;
    int64_t until_ns = 0;    // left alone
    bool unreached = false;  // the last one was of this kind
  };

  Failures& Of(uint64_t shard, ServerId server);

  // At most one a server that holds, or held, a copy.
  absl::flat_hash_map<uint64_t, std::vector<Failures>> of_shard_;
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_MEMBERSHIP_REPLICA_BACKOFF_H_
