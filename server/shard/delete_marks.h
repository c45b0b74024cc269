// How long the marks of a shard's deleted rows are kept (TieredStore), and which of them are gone.
//
// A mark tells a reader who asks for the rows that have changed since an LSN of a deletion above
// it. So where marks with LSNs up to `gone_through` may be gone, no such reader may begin below
// that LSN: it gets all rows again. Each replica decides for itself which marks it keeps, and what
// is gone there is stored with its rows (ShardMeta), before any mark goes. It goes along when the
// rows go to another server.
//
// Marks stay for a time, and while there are not too many. Whoever reads the shard in several
// passes, or between a look at gone_through and the begin of its read, holds them meanwhile.
//
// Save, Restore and SetGone on the shard's strand; Due and SetLeft by one thread at a time; the
// rest by any thread.
#ifndef HOTBED_SERVER_SHARD_DELETE_MARKS_H_
#define HOTBED_SERVER_SHARD_DELETE_MARKS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/ids.h"
#include "server/protocol/session_table.h"

namespace hotbed {

class DeleteMarks {
 public:
  struct Rule {
    // Marks stay as long at least, unless there are too many, and twice as long at most.
    int64_t keep_ns = 0;
    uint64_t count_max = 0;  // beyond it the older ones go, so that about a half is left
  };
  // How far the shard has come at some moment.
  struct Moment {
    int64_t now_ns = 0;
    Lsn applied = 0;
    uint64_t deleted = 0;  // rows that its store has deleted since it was opened
  };

  void Restore(const ShardMeta& meta);
  void Save(uint64_t deleted, ShardMeta* meta) const;

  Lsn gone_through() const { return gone_.load(std::memory_order_acquire); }
  uint64_t Count(uint64_t deleted) const;  // at most
  // While the result lives, no further marks go. It does not outlive this object.
  std::shared_ptr<const void> Hold();
  bool held() const { return holders_.load(std::memory_order_acquire) != 0; }

  // The LSN through which marks are to go now; 0: none. Is to be asked from time to time.
  Lsn Due(const Rule& rule, const Moment& moment);
  void SetGone(Lsn through) { gone_.store(through, std::memory_order_release); }
  // They are gone, and `left` stay; the store had deleted `deleted` rows before they were counted.
  void SetLeft(uint64_t left, uint64_t deleted);

 private:
  std::atomic<Lsn> gone_{0};
  std::atomic<int64_t> before_{0};  // marks that the store's number of deleted rows does not have
  std::atomic<int> holders_{0};
  std::vector<Moment> past_;  // oldest first
  Lsn swept_ = 0;             // through which marks surely are gone
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_DELETE_MARKS_H_
