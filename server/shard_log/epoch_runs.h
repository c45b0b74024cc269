// Which epoch each entry of a log is of, as runs: what Raft's consistency check compares. Grows by
// one run an epoch in which something was logged. Thread-compatible.
#ifndef HOTBED_SERVER_SHARD_LOG_EPOCH_RUNS_H_
#define HOTBED_SERVER_SHARD_LOG_EPOCH_RUNS_H_

#include <cstddef>

#include "absl/container/inlined_vector.h"
#include "common/ids.h"

namespace hotbed {

class EpochRuns {
 public:
  // The log goes on behind (lsn, epoch); what it holds below is not known.
  void Reset(Lsn lsn, Epoch epoch) { runs_.assign(1, {lsn, epoch}); }
  // The next entry.
  void Append(Lsn lsn, Epoch epoch) {
    if (runs_.back().epoch != epoch) runs_.push_back({lsn, epoch});
  }
  // `lsn`, above the lowest that is known, and what follows are no part of the log.
  void CutFrom(Lsn lsn) {
    while (runs_.back().first >= lsn) runs_.pop_back();
  }
  // Nobody asks below `lsn` any more.
  void ForgetBelow(Lsn lsn) {
    size_t gone = 0;
    while (gone + 1 < runs_.size() && runs_[gone + 1].first <= lsn) ++gone;
    runs_.erase(runs_.begin(), runs_.begin() + gone);
  }
  // Of an entry of the log; 0: not known.
  Epoch At(Lsn lsn) const {
    for (size_t i = runs_.size(); i-- > 0;) {
      if (runs_[i].first <= lsn) return runs_[i].epoch;
    }
    return 0;
  }
  // The first entry that is known of the epoch of `lsn`.
  Lsn FirstOfRun(Lsn lsn) const {
    for (size_t i = runs_.size(); i-- > 0;) {
      if (runs_[i].first <= lsn) return runs_[i].first;
    }
    return 0;
  }
  Epoch last() const { return runs_.back().epoch; }
  size_t size() const { return runs_.size(); }

 private:
  struct Run {
    Lsn first;
    Epoch epoch;
  };
  absl::InlinedVector<Run, 4> runs_ = {{0, 0}};
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_LOG_EPOCH_RUNS_H_
