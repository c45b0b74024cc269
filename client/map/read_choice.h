// Chooses the server that answers the pull of a shard: its primary, or any other server with a
// replica. Thread-safe.
//
// Servers whose answers take at most twice as long as those of the nearest, plus half a
// millisecond, are as good as the nearest, and calls take turns among them. A server that has not
// answered yet counts as near, so that it is tried. Times run from sending to the answer and are
// averaged over about the last eight answers. A server that failed is avoided until it answers
// again or kForgetNs have passed.
#ifndef HOTBED_CLIENT_MAP_READ_CHOICE_H_
#define HOTBED_CLIENT_MAP_READ_CHOICE_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "common/ids.h"
#include "common/shard_record.h"

namespace hotbed {

class ReadChoice {
 public:
  static constexpr int64_t kForgetNs = 1'000'000'000;

  // Chooses among the primary, the backups and the read replicas. `turn` is the call's (NextTurn),
  // the same for all of its shards.
  ServerId Choose(const ShardRecord& record, uint64_t turn, int64_t now_ns) const;

  uint64_t NextTurn() { return turn_.fetch_add(1, std::memory_order_relaxed); }
  void Answered(ServerId server, int64_t took_ns);
  void Failed(ServerId server, int64_t now_ns);

 private:
  struct Seen {
    int64_t took_ns = 0;          // moving average; 0: unknown
    int64_t failed_until_ns = 0;  // avoided until then
    bool connecting = true;       // the next answer includes the connection, and is not counted
  };

  std::atomic<uint64_t> turn_{0};
  mutable absl::Mutex mu_;
  absl::flat_hash_map<ServerId, Seen> seen_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_MAP_READ_CHOICE_H_
