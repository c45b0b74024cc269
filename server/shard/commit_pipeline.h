// The way of an entry through a shard: from the state machine into the log, from there (once it is
// committed) into the rows, and its reply back to the sender.
//
//   core ready -> StartAppend -> log -> AfterAppend ->
//   core       -> ApplyNext -> rows -> AfterApply -> reply
//
// Drain does all the work that the core has ready. Completions that arrive meanwhile queue on the
// strand. One update at a time is applied, in LSN order: an update that misses the hot tier delays
// later ones of this shard, and nothing else.
//
// The log and the rows read a push's message in place. The sender is answered, and gets its message
// back, once neither reads it any more; if the entry has a record of its own (other replicas need
// one), that is as soon as the outcome is known.
//
// Confined to the shard's strand.
#ifndef HOTBED_SERVER_SHARD_COMMIT_PIPELINE_H_
#define HOTBED_SERVER_SHARD_COMMIT_PIPELINE_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "common/ids.h"
#include "common/ring_queue.h"
#include "server/protocol/core_messages.h"
#include "server/shard/change_feed.h"
#include "server/shard/counted_bytes.h"
#include "server/shard/in_flight.h"
#include "server/shard/log_replay.h"
#include "server/shard/push_state.h"
#include "server/shard/replica/record_tail.h"
#include "server/shard/replica_comparison.h"
#include "server/shard/shard_context.h"
#include "server/shard/step_commits.h"
#include "server/shard/waiting_requests.h"

namespace hotbed {

class ReplicaExchange;

class CommitPipeline {
 public:
  // All outlive it.
  struct Parts {
    WaitingRequests* waiting = nullptr;
    StepCommits* steps = nullptr;
    RecordTail* tail = nullptr;
    LogReplay* replay = nullptr;
    ReplicaComparison* comparison = nullptr;
    ReplicaExchange* exchange = nullptr;
    ChangeFeed* feed = nullptr;  // null: nobody follows the shard
  };
  CommitPipeline(ShardContext* shard, const Parts& parts)
      : shard_(*shard), parts_(parts), session_bytes_(shard->options.session_bytes) {}

  // To be called after each event of the core: does the work in ready() until none is left.
  void Drain();
  // Answers the request whose token is a PushState.
  void Reply(const CoreReply& reply);
  // Entries from `lsn` on that were handed to the log are no part of it.
  void CutFrom(Lsn lsn);
  // The shard was closed: answers of other replicas are not heard any more, and updates that the
  // rows cannot take are not tried again. Entries that are not applied are left to the log.
  void Close();
  // Deletes rows by an entry of the shard's own. False: not now.
  bool DeleteRows(std::vector<uint64_t> ids);
  // From now on notes the ids of entries that change rows, also of those that are not applied yet.
  void BeginNoting();
  // The ids noted since; ends the noting.
  absl::flat_hash_set<uint64_t> EndNoting();
  bool noting() const { return noted_ != nullptr; }
  // The highest training step of a push since the shard was opened here.
  uint64_t last_step() const { return last_step_; }
  // A push of the short way was of this step.
  void NoteStep(uint64_t step) { last_step_ = std::max(last_step_, step); }
  // The log takes appends again where a failed append had stopped it, and it recovered since.
  void ResumeLog();
  // Publishes what other threads may read.
  void Publish();

  // Keeps every entry as a record for other replicas, from now on; those that are not applied yet
  // too, if they are known.
  void BeginKeepingRecords();
  void KeepRecordsIfFollowed();

  // A push was logged at once and the log is done with it, but the core knows it (PushLogged).
  void AfterAppend(PushState* state);
  // The fixed part of the record of an entry, from the push in `state`, if there is one.
  static void FillRecord(ShardId shard, uint32_t dim, const CoreEntry& entry, PushState* state);

  bool applying() const { return applying_; }
  // The epoch that the core asked to promise durably; 0: none.
  Epoch promise_wanted() const { return promise_wanted_; }
  void PromiseKept(Epoch epoch) {
    if (promise_wanted_ <= epoch) promise_wanted_ = 0;
  }

 private:
  // An entry of the log that is not applied yet. `state` is null where nobody needs one: an entry
  // of the shard's own, without a log.
  struct Unapplied {
    Lsn lsn = 0;
    PushState* state = nullptr;
    InFlight::Token running;  // until applied or cut, and out of the log
  };

  void StartAppend(const CoreEntry& entry);
  void KeepRecord(const CoreEntry& entry, PushState* state);
  // Entries in flight were not encoded while no other replica wanted them.
  void EncodeUnapplied();
  void NoteCommitted(Lsn first, Lsn last);
  void ApplyNext();
  void LeaveUnapplied();
  void AfterApply(const absl::Status& status);
  // The entry that was applied or cut is not the core's any more.
  void LeaveCore(Unapplied entry);
  bool StillReadsMessage(const PushState& state) const;
  void AnswerIfFree(PushState* state);

  ShardContext& shard_;
  const Parts parts_;
  RingQueue<CoreEntry> apply_queue_;                      // committed; the first is being applied
  RingQueue<Unapplied> unapplied_;                        // (applied, last]
  bool applying_ = false;                                 // the store has an Apply in flight
  std::unique_ptr<absl::flat_hash_set<uint64_t>> noted_;  // null: nobody wants them noted
  uint64_t last_step_ = 0;
  bool late_ = false;  // the entries in apply_queue_ have waited for rows
  uint32_t appends_in_flight_ = 0;
  CountedBytes session_bytes_;
  Epoch promise_wanted_ = 0;
  // Empty between events; they keep their memory.
  std::vector<CoreEntry> append_scratch_;
  std::vector<CoreReply> reply_scratch_;
  std::vector<CoreSend> send_scratch_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_COMMIT_PIPELINE_H_
