// The highest numbers that the coordinator has given out, for all shards of a server. Until the
// server has heard of any, all count as given out: no shard is active before its first map, and
// the numbers come with it. Thread-safe.
#ifndef HOTBED_SERVER_SHARD_REPLICA_GIVEN_OUT_H_
#define HOTBED_SERVER_SHARD_REPLICA_GIVEN_OUT_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "common/ids.h"
#include "server/protocol/core_messages.h"

namespace hotbed {

class GivenOut {
 public:
  struct TableStep {
    TableId table = 0;
    uint64_t step = 0;  // the last committed one
  };

  // True: a request may have waited for one of them.
  bool Learn(uint64_t session, const std::vector<TableStep>& steps) {
    bool higher = false;
    {
      absl::MutexLock lock(&mu_);
      for (const TableStep& said : steps) {
        uint64_t& step = steps_[said.table];
        higher |= said.step > step;
        step = std::max(step, said.step);
      }
    }
    const uint64_t known = session_.load(std::memory_order_relaxed);
    if (known != CoreGiven::kUnheard && session <= known) return higher;
    session_.store(session, std::memory_order_release);
    return true;
  }

  CoreGiven Session() const {
    CoreGiven given;
    given.session = session_.load(std::memory_order_acquire);
    return given;
  }
  CoreGiven SessionAndStep(TableId table) const {
    CoreGiven given = Session();
    if (given.session == CoreGiven::kUnheard) return given;
    absl::ReaderMutexLock lock(&mu_);
    const auto it = steps_.find(table);
    given.step = it == steps_.end() ? 0 : it->second;
    return given;
  }

 private:
  std::atomic<uint64_t> session_{CoreGiven::kUnheard};
  mutable absl::Mutex mu_;
  absl::flat_hash_map<TableId, uint64_t> steps_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_REPLICA_GIVEN_OUT_H_
