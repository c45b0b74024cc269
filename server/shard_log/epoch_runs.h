// The epoch of each entry of a log, as runs; Raft's consistency check compares them. Grows by one
// run per epoch in which an entry was logged. Thread-compatible.
#ifndef HOTBED_SERVER_SHARD_LOG_EPOCH_RUNS_H_
#define HOTBED_SERVER_SHARD_LOG_EPOCH_RUNS_H_

#include <cstddef>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "common/ids.h"

namespace hotbed {

class EpochRuns {
 public:
  // The log continues after (lsn, epoch); entries below are not known.
  void Reset(Lsn lsn, Epoch epoch) { runs_.assign(1, {lsn, epoch}); }
  // The next entry.
  void Append(Lsn lsn, Epoch epoch) {
    if (runs_.back().epoch != epoch) runs_.push_back({lsn, epoch});
  }
  // Removes the entries from `lsn` on, which is above the lowest known entry.
  void CutFrom(Lsn lsn) {
    while (runs_.back().first >= lsn) runs_.pop_back();
  }
  // Entries below `lsn` will not be asked for again.
  void ForgetBelow(Lsn lsn) {
    size_t gone = 0;
    while (gone + 1 < runs_.size() && runs_[gone + 1].first <= lsn) ++gone;
    runs_.erase(runs_.begin(), runs_.begin() + gone);
  }
  // The epoch of an entry; 0: not known.
  Epoch At(Lsn lsn) const {
    for (size_t i = runs_.size(); i-- > 0;) {
      if (runs_[i].first <= lsn) return runs_[i].epoch;
    }
    return 0;
  }
  // The first known entry of the epoch that `lsn` is in.
  Lsn FirstOfRun(Lsn lsn) const {
    for (size_t i = runs_.size(); i-- > 0;) {
      if (runs_[i].first <= lsn) return runs_[i].first;
    }
    return 0;
  }
  Epoch last() const { return runs_.back().epoch; }
  size_t size() const { return runs_.size(); }

  struct Run {
    Lsn first;
    Epoch epoch;
  };
  absl::Span<const Run> runs() const { return runs_; }
  // Takes the runs of another one, in their order.
  void AddRun(const Run& run) { runs_.push_back(run); }
  // The end belongs to an epoch that was not known (0) so far.
  void AdoptLast(Epoch epoch) {
    if (runs_.back().epoch == 0) runs_.back().epoch = epoch;
  }
  // Forgets the oldest runs.
  void KeepNewest(size_t count) {
    if (runs_.size() > count) runs_.erase(runs_.begin(), runs_.end() - count);
  }

 private:
  absl::InlinedVector<Run, 2> runs_ = {{0, 0}};  // two: a shard in its first epoch
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_LOG_EPOCH_RUNS_H_
