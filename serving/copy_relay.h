// What a copy passes on to the other copies of the same rows, which follow it (docs/serving.md,
// "Who follows whom"): the changes that it took lately, with the rows in its format.
//
// A follower names the cursor of its last answer, and goes on behind it. One that comes from a
// primary, or from another copy, names how far it has read the shard. It can join if all changes
// since then are kept, and if the last row of each id among them is as new as what it may have. A
// row that comes with a change is as of the end of that change (`at.through`) or later, so this
// holds once the newest change ends at or behind all that the follower has seen. Else it waits, or
// is told that it is behind, and a primary is asked. Positions are compared by epoch and LSN. Where
// epochs differ it is told that it is behind: only the primary knows.
//
// Kept changes have bounded memory, and none while nobody follows. Thread-safe.
#ifndef HOTBED_SERVING_COPY_RELAY_H_
#define HOTBED_SERVING_COPY_RELAY_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/changes/follow_as.h"
#include "common/clock.h"
#include "common/random.h"
#include "proto/serving.pb.h"

namespace hotbed {

// The memory that the relays of a server share, and a signal to those who wait for changes.
class RelayMemory {
 public:
  // `seed`: random, of the process.
  RelayMemory(uint64_t bytes_max, uint64_t seed) : bytes_max_(bytes_max), runs_(seed) {}
  void AddOpen() { open_.fetch_add(1); }
  void RemoveOpen() { open_.fetch_sub(1); }
  // What one relay may keep.
  uint64_t Share() const { return bytes_max_ / std::max<uint64_t>(open_.load(), 1); }
  // Tells a relay from every other one.
  uint64_t NewRun() ABSL_LOCKS_EXCLUDED(mu_);
  // Raise ends the next Await, or the one in progress.
  void Raise() ABSL_LOCKS_EXCLUDED(mu_);
  void Await(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  const uint64_t bytes_max_;
  std::atomic<uint64_t> open_{0};
  absl::Mutex mu_;
  bool raised_ ABSL_GUARDED_BY(mu_) = false;
  Random runs_ ABSL_GUARDED_BY(mu_);
};

class CopyRelay {
 public:
  // Both outlive it.
  CopyRelay(RelayMemory* memory, const Clock* clock);
  ~CopyRelay();
  CopyRelay(const CopyRelay&) = delete;
  CopyRelay& operator=(const CopyRelay&) = delete;

  // The address of the copy that this one follows, and then it feeds none, so that there are no
  // circles. Empty: it follows the primaries.
  void SetFeeder(const std::string& feeder) ABSL_LOCKS_EXCLUDED(mu_);
  std::string feeder() const ABSL_LOCKS_EXCLUDED(mu_);

  // Random, another one each time.
  uint64_t NewRun() { return memory_->NewRun(); }

  // --- the thread that follows
  // The copy is as of these positions, and goes on from there.
  void Begin(const ChangePositions& positions) ABSL_LOCKS_EXCLUDED(mu_);
  // It begins to take the changes: readers may see some of them.
  void Takes(const CopyChanges& changes) ABSL_LOCKS_EXCLUDED(mu_);
  // The copy has taken the changes. `rows`: in its format, per id.
  void Took(const CopyChanges& changes, absl::Span<const uint8_t> rows) ABSL_LOCKS_EXCLUDED(mu_);

  // --- any thread
  // Adds what there is for each shard to `reply`, up to about `bytes_max`, and returns how much it
  // was. A shard without anything new is not mentioned. `waits_no_more`: the caller cannot wait for
  // further changes to be able to join.
  uint64_t Read(const v1::ReadChangesRequest& request, uint64_t bytes_max, bool waits_no_more,
                v1::ReadChangesReply* reply) ABSL_LOCKS_EXCLUDED(mu_);
  uint64_t bytes() const ABSL_LOCKS_EXCLUDED(mu_);
  // About once a second: changes go that nobody has asked for lately, and those beyond the share.
  void Sweep() ABSL_LOCKS_EXCLUDED(mu_);
  // How far a copy is in a shard, all of whose rows it has.
  struct Known {
    v1::LogPlace through;
    uint64_t born = 0;
  };
  // The rows that the copy has from now on are of this place, or later. The changes since are kept
  // for as long as SeenOf is asked. Nothing: the shard is not whole here.
  std::optional<Known> BeginList(uint64_t first, uint64_t limit) ABSL_LOCKS_EXCLUDED(mu_);
  // No row that the copy has (had) is later than this. Nothing: since `known`, rows were lost, or
  // the shard was cut or merged.
  std::optional<v1::LogPlace> SeenOf(uint64_t first, uint64_t limit, const Known& known)
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Change {
    uint64_t number = 0;
    v1::LogPlace from;  // the changes behind it, up to at.through
    v1::ReadPlace at;
    bool partial = false;
    std::string ids, rows, deleted;
    uint64_t bytes() const { return ids.size() + rows.size() + deleted.size() + kOverheadBytes; }
  };
  struct Range {
    uint64_t born = 0;  // tells it from one of the same shard before
    v1::ReadPlace end;
    v1::LogPlace seen;       // of changes that are being taken, too
    uint64_t kept_from = 0;  // all changes from this number on are kept
    // The last one before the kept ones was partial: nobody joins at the first of these.
    bool torn = false;
    std::deque<Change> changes;
  };
  using Ranges = std::map<std::pair<uint64_t, uint64_t>, Range>;  // by first and limit
  // How an answer begins.
  struct Start {
    enum { kGoOn, kNothing, kWait, kBehind } state = kNothing;
    size_t first = 0;   // of the changes
    size_t merged = 0;  // so many are told as one; 0: each by itself
  };
  static constexpr uint64_t kOverheadBytes = 200;
  // A primary tells changes that would have to be told as one and are larger.
  static constexpr uint64_t kMergedBytesMax = 4u << 20;

  static Start Join(const Range& range, const v1::ReadPlace& above);
  Start Find(const Range& range, const v1::FollowedShard& asked) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  uint64_t Tell(const Range& range, const Start& start, const v1::FollowedShard& asked,
                uint64_t bytes_max, v1::ReadChangesReply* reply) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EraseOverlapping(const ChangedRange& range, bool same_too)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Drop(Range* range, size_t count) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Shrink() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Open() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Close() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  RelayMemory* const memory_;
  const Clock* const clock_;
  const uint64_t run_;
  mutable absl::Mutex mu_;
  std::string feeder_ ABSL_GUARDED_BY(mu_);
  bool open_ ABSL_GUARDED_BY(mu_) = false;  // changes are kept
  int64_t asked_ns_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t next_ ABSL_GUARDED_BY(mu_) = 1;  // the number of the next change
  uint64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
  Ranges ranges_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hotbed

#endif  // HOTBED_SERVING_COPY_RELAY_H_
