// Recovery of a shard: the records of its log, brought into the rows in order.
//
// The rows may be ahead of the log, after a crash or in a snapshot that was just installed: until
// the log has passed every LSN that they carry (rows_ahead_of_log_lsn), updates skip rows that hold
// them already, and a backup is not read.
//
// An update that the rows cannot take for now (no space in the spill tier) stalls the replay until
// Retry: a shard without that record would have lost what it acknowledged. Damage refuses the
// shard.
//
// Add, Retry, Warm and Finish are called by any one thread, before anything else happens to the
// shard. The rest is confined to the shard's strand, except wants_write_back.
#ifndef HOTBED_SERVER_SHARD_LOG_REPLAY_H_
#define HOTBED_SERVER_SHARD_LOG_REPLAY_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "common/ids.h"
#include "common/ring_queue.h"
#include "server/shard/shard_context.h"
#include "server/shard/step_commits.h"
#include "server/shard_log/shard_log.h"

namespace hotbed {

class LogReplay {
 public:
  LogReplay(ShardContext* shard, StepCommits* steps) : shard_(*shard), steps_(*steps) {}

  // --- recovery
  // `done` runs on the strand once the record was applied or skipped, or the shard was refused.
  void Add(const RecordView& record, absl::AnyInvocable<void()> done);
  // Tries a stalled record again. Does not block.
  void Retry();
  // Brings rows into the hot tier, in order, while there is free memory; blocks for at most
  // `ns_max`. For a replica that was just installed, before Finish.
  void Warm(int64_t ns_max);
  // On the strand. True: the rows are ahead of the log.
  bool Finish();

  // --- the shard's strand
  // 0: no row carries an LSN above applied_lsn().
  Lsn rows_ahead_of_log_lsn() const { return rows_ahead_of_log_lsn_; }
  // Whether rows have in place of this entry of the primary's log another one, which is lost: such
  // rows held entries of epochs up to found_promise_ only, all of them committed.
  bool RowsHoldAnother(const CoreEntry& entry) const {
    return entry.lsn <= rows_ahead_of_log_lsn_ && entry.epoch > found_promise_;
  }
  // The entry at `lsn` was applied.
  void Applied(Lsn lsn) {
    if (rows_ahead_of_log_lsn_ != 0 && lsn >= rows_ahead_of_log_lsn_) EndGuard();
  }
  // This process is to be the primary, and the log ends below the LSNs of the rows: nobody has the
  // lost tail. The log continues above it, once all rows were written back.
  void SkipLostTail();

  // --- any thread
  // Nothing may be applied before the rows were written back and are durable.
  bool wants_write_back() const {
    return write_back_wanted_lsn_.load(std::memory_order_acquire) != 0;
  }
  // The rows up to `lsn` are durable. True: that ends wants_write_back.
  bool WrittenBack(Lsn lsn);

 private:
  // A record between the log file and the rows. Owns its bytes: the reader continues while rows are
  // fetched.
  struct Item {
    RecordHeader header;
    std::vector<uint64_t> ids;
    std::unique_ptr<uint8_t[]> gradients;
    std::vector<const uint8_t*> rows;
    std::vector<Lsn> staged;  // a commit: the pushes that it applies
    bool taken = false;       // by the core; only the rows lack it
    bool commits = false;     // the core took it as the commit of a step
    absl::AnyInvocable<void()> done;
  };

  void KeepRowsInRange(Item* item) const;
  void Run();
  void EndItem();
  bool Next();                   // false: finishes later
  bool Apply(const Item& item);  // likewise
  bool AfterApply(const absl::Status& status);
  // From now on the rows are as of applied_lsn().
  void EndGuard();

  ShardContext& shard_;
  StepCommits& steps_;
  RingQueue<std::unique_ptr<Item>> queue_;
  bool applying_ = false;
  Lsn rows_ahead_of_log_lsn_ = 0;
  Epoch found_promise_ = 0;                    // promised when the rows were opened
  std::atomic<Lsn> write_back_wanted_lsn_{0};  // of this LSN or a later one; 0: none
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_LOG_REPLAY_H_
