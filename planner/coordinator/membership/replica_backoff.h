// Backoff for servers that failed to hold a replica of a shard.
//
// A replica can be lost while its process lives: it is damaged, differs from its primary's, or was
// sent a record that it cannot apply. The first time, the replica is made again at once. If it is
// lost again the cause is likely to last, and each transfer costs all rows on the wire, so the
// server is left out for kLostAgainNs, then twice as long each time, up to kLostNsMax. A server
// that left because it and a primary did not hear of each other is left out for kUnreachedNs.
//
// Nothing here is kept in the metadata store: another coordinator starts counting from zero. Times
// are monotonic nanoseconds. Pure; thread-compatible.
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
  // Losses count as consecutive if each comes within this time after the end of the last wait.
  static constexpr int64_t kForgottenNs = kLostNsMax;

  void NoteUnreached(uint64_t shard, ServerId server, int64_t now_ns);
  // Returns text for the event log if this is not the first loss, else an empty string.
  std::string NoteLost(uint64_t shard, ServerId server, int64_t now_ns);

  // Servers that must not be given a replica of the shard now.
  std::vector<ServerId> Avoided(uint64_t shard, int64_t now_ns) const;
  // Why the server is one of them, for people; empty if it is not.
  std::string Why(uint64_t shard, ServerId server, int64_t now_ns) const;

  void Forget(uint64_t shard) { of_shard_.erase(shard); }
  void Clear() { of_shard_.clear(); }

 private:
  struct Failures {
    ServerId server = 0;
    uint32_t lost = 0;  // consecutive losses
    int64_t last_lost_ns = 0;
    int64_t until_ns = 0;    // left out until then
    bool unreached = false;  // the last failure was that it was not heard of
  };

  Failures& Of(uint64_t shard, ServerId server);

  // By packed shard: at most one entry per server that holds, or held, a replica.
  absl::flat_hash_map<uint64_t, std::vector<Failures>> of_shard_;
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_MEMBERSHIP_REPLICA_BACKOFF_H_
