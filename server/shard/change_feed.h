// The ids of the rows that were changed lately, with their LSNs, for those who follow a shard
// (client/changes/change_stream.cc): they ask for the changes above an LSN, and pull these rows.
//
// Keeps ids only while somebody follows: from the first Read on, until kFeedIdleNs after the last.
// Keeps at most kFeedIdsMax of them, the newest; a follower that is further behind hears so, and
// reads all rows again. So it never delays a push. Thread-safe.
#ifndef HOTBED_SERVER_SHARD_CHANGE_FEED_H_
#define HOTBED_SERVER_SHARD_CHANGE_FEED_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "common/ids.h"

namespace hotbed {

constexpr size_t kFeedIdsMax = 1u << 18;  // 2 MiB per shard that is followed
constexpr int64_t kFeedIdleNs = 30 * kSecondNs;

class ChangeFeed {
 public:
  // --- the shard's strand
  bool open() const { return open_.load(std::memory_order_relaxed); }
  // The entry at `lsn` was applied, and has changed these rows; entries come in order. To be called
  // while open; closes the feed if nobody reads it any more.
  void Applied(Lsn lsn, absl::Span<const uint64_t> ids, int64_t now_ns) ABSL_LOCKS_EXCLUDED(mu_);
  // Changes above `applied`, the shard's applied LSN, are kept from now on.
  void Open(Lsn applied, int64_t now_ns) ABSL_LOCKS_EXCLUDED(mu_);

  // --- any thread
  struct Changes {
    bool open = false;          // false: it has to be opened, nothing else is said
    Lsn from = 0;               // all changes above this LSN are known
    Lsn through = 0;            // `ids` are those of the changes up to here
    std::vector<uint64_t> ids;  // each once, in order of their last change
  };
  // The changes above `from`, up to about `ids_max` of them; none if `from` is below Changes::from.
  Changes Read(Lsn from, size_t ids_max, int64_t now_ns) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // As Read, with ids as often as they changed.
  Changes Copy(Lsn from, size_t ids_max, int64_t now_ns) ABSL_LOCKS_EXCLUDED(mu_);
  struct Entry {
    Lsn lsn;
    std::vector<uint64_t> ids;
  };

  std::atomic<bool> open_{false};
  absl::Mutex mu_;
  Lsn from_ ABSL_GUARDED_BY(mu_) = 0;
  Lsn through_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<Entry> entries_ ABSL_GUARDED_BY(mu_);
  size_t ids_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t read_ns_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_CHANGE_FEED_H_
