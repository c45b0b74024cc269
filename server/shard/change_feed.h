// Which rows of a shard have changed lately, in order, for those who follow the shard
// (server/export/change_reads.h). A feed saves them a pass over all rows: whoever has read the rows
// up to an entry of the feed goes on with the ids of the later ones.
//
// It is closed, and takes no memory, until somebody opens it. Then it keeps ids in blocks of memory
// that all feeds of a server share (ChangeMemory); when that runs short the feed drops its oldest
// blocks, and a reader who needs them reads the rows again that have changed since. So it never
// holds up a push. Thread-safe.
#ifndef HOTBED_SERVER_SHARD_CHANGE_FEED_H_
#define HOTBED_SERVER_SHARD_CHANGE_FEED_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "common/ids.h"
#include "server/shard_log/epoch_runs.h"

namespace hotbed {

constexpr int64_t kFeedIdleNs = 30 * kSecondNs;  // without a reader, until it is closed

// What all feeds of a server share: their memory, and a signal to those who wait for changes. One
// half of the bytes is for feeds, the other one for answers to readers. Thread-safe.
class ChangeMemory {
 public:
  explicit ChangeMemory(uint64_t bytes_max) : bytes_max_(bytes_max) {}

  // False: there is no room, and nothing is taken.
  bool TakeForFeed(uint64_t bytes) { return Take(bytes, &feed_bytes_); }
  void GiveFromFeed(uint64_t bytes) { feed_bytes_.fetch_sub(bytes); }
  bool TakeForAnswer(uint64_t bytes) { return Take(bytes, &answer_bytes_); }
  void GiveFromAnswer(uint64_t bytes) {
    answer_bytes_.fetch_sub(bytes);
    Raise();
  }
  uint64_t bytes_max() const { return bytes_max_; }
  void AddFeed() { feeds_.fetch_add(1); }
  void RemoveFeed() { feeds_.fetch_sub(1); }
  // What a feed may keep, so that there is room for every other one.
  uint64_t FeedShare() const { return bytes_max_ / 2 / std::max<uint64_t>(feeds_.load(), 1); }
  uint64_t feed_bytes() const { return feed_bytes_.load(); }
  uint64_t answer_bytes() const { return answer_bytes_.load(); }

  // For one thread at a time: from Arm on, Raise of any thread ends the next Await.
  void Arm() { armed_.store(true); }
  void Await(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mu_);
  void Raise() {
    if (armed_.load(std::memory_order_relaxed) && armed_.exchange(false)) SetRaised();
  }

 private:
  bool Take(uint64_t bytes, std::atomic<uint64_t>* of);
  void SetRaised() ABSL_LOCKS_EXCLUDED(mu_);

  const uint64_t bytes_max_;
  std::atomic<uint64_t> feeds_{0};  // open ones
  std::atomic<uint64_t> feed_bytes_{0};
  std::atomic<uint64_t> answer_bytes_{0};
  std::atomic<bool> armed_{false};
  absl::Mutex mu_;
  bool raised_ ABSL_GUARDED_BY(mu_) = false;
};

// A place in the log of a shard. (epoch, LSN) names one entry, whatever was lost since.
struct ChangePosition {
  Epoch epoch = 0;  // of the entry at `lsn`
  Lsn lsn = 0;      // 0: before the first
  friend bool operator==(const ChangePosition&, const ChangePosition&) = default;
};

// How far somebody has read a shard. The values of rows are those of the moment at which they are
// read, so they may be ahead of the place up to which all changes are known; if the shard loses
// what they are ahead of, everything has to be read again.
struct ReadPosition {
  ChangePosition through;
  ChangePosition seen;  // no row is later than this
};

class ChangeFeed {
 public:
  // Null: it is never opened.
  explicit ChangeFeed(std::shared_ptr<ChangeMemory> memory) : memory_(std::move(memory)) {}
  ~ChangeFeed() { Close(); }
  ChangeFeed(const ChangeFeed&) = delete;
  ChangeFeed& operator=(const ChangeFeed&) = delete;

  // --- the shard's strand
  bool open() const { return open_.load(std::memory_order_relaxed); }
  // The entry `at` was applied and has changed these rows; entries come in order of their LSNs. To
  // be called while open.
  void Applied(const ChangePosition& at, absl::Span<const uint64_t> ids) ABSL_LOCKS_EXCLUDED(mu_);
  // Changes above `applied`, the shard's last applied entry, are kept from now on.
  void Open(const ChangePosition& applied, int64_t now_ns) ABSL_LOCKS_EXCLUDED(mu_);

  // --- any thread
  struct Changes {
    // False: the feed does not know what has changed since the position.
    bool known = false;
    ChangePosition through;     // `ids` are those of the changes up to here
    size_t skip = 0;            // not 0: and the first so many of the entry behind `through`
    std::vector<uint64_t> ids;  // each once, in order of their last change
  };
  // The changes above `from` but for the first `skip` ids, at most `ids_max`.
  Changes Read(const ReadPosition& from, size_t skip, size_t ids_max, int64_t now_ns)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Somebody still reads the rows.
  void Touch(int64_t now_ns) ABSL_LOCKS_EXCLUDED(mu_);
  // To be called once a second: frees the memory beyond the feed's share, and all memory of a feed
  // that nobody has read for kFeedIdleNs. True: it is closed.
  bool Sweep(int64_t now_ns) ABSL_LOCKS_EXCLUDED(mu_);
  void Close() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // Entries one after the other: LSN, count, ids. It never grows, so its capacity is its memory.
  struct Block {
    Lsn last = 0;
    std::vector<uint64_t> words;
  };
  struct State {
    ChangePosition from;
    ChangePosition through;
    EpochRuns runs;  // of (from, through]
    std::deque<Block> blocks;
    uint64_t bytes = 0;  // of the blocks
    int64_t read_ns = 0;
  };

  // As Read, with ids as often as they changed.
  Changes Copy(const ReadPosition& from, size_t skip, size_t ids_max, int64_t now_ns)
      ABSL_LOCKS_EXCLUDED(mu_);
  bool Knows(const ChangePosition& place) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool MakeRoom(size_t words) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ShrinkTo(uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DropOldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CloseLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::shared_ptr<ChangeMemory> memory_;
  std::atomic<bool> open_{false};
  absl::Mutex mu_;
  std::unique_ptr<State> state_ ABSL_GUARDED_BY(mu_);  // null: closed
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_CHANGE_FEED_H_
