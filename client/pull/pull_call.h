// One Pull or Lookup from its start to its Future: the plan, the destinations of its rows, and the
// gate that keeps late answers away from the caller's buffers.
//
// Thread rule: everything public is written before the call is admitted to PullsInFlight and read
// only inside the gate afterwards; the gate, `parts_left` and the errors are thread-safe.
#ifndef HOTBED_CLIENT_PULL_PULL_CALL_H_
#define HOTBED_CLIENT_PULL_PULL_CALL_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "client/batch/batch_plan.h"
#include "client/batch/dedupe.h"
#include "client/batch/pooled_join.h"
#include "client/batch/pooled_plan.h"
#include "client/batch/resolve_ids.h"
#include "client/batch/scatter.h"
#include "client/net/buffer_pool.h"
#include "client/net/message_limits.h"
#include "client/net/transport.h"
#include "hotbed/client.h"

namespace hotbed {

// The working memory of a call, which a later call takes over. Thread-compatible.
struct PullScratch {
  BatchPlan plan;
  Deduper deduper;
  std::vector<FeatureIds> features;
  std::vector<ResolvedIds> resolved;
  std::vector<ScatterTarget> targets;
  PooledPlan pooled;
  PooledJoin join;
  std::vector<uint32_t> part_order;   // parts in the order of their ids in the buffer
  std::vector<uint64_t> part_offset;  // index of each part's first id in the buffer
  std::vector<ServerId> part_server;  // the primary of each part's shard, when the call was planned
  // By part: the number of messages in flight that ask for it, and kPartTaken. Atomic.
  std::vector<uint32_t> part_states;

  // The parts of a call are those of `plan`, then those of `pooled`.
  uint32_t PartCount() const {
    return static_cast<uint32_t>(plan.parts().size() + pooled.parts().size());
  }
  // Null: part `p` is answered row by row.
  const PooledPart* Pooled(uint32_t p) const {
    return p < plan.parts().size() ? nullptr : &pooled.parts()[p - plan.parts().size()];
  }
  const TableHandle& TableOf(uint32_t p) const {
    const PooledPart* const part = Pooled(p);
    return part == nullptr ? *plan.group(plan.parts()[p]).table
                           : *pooled.features()[part->feature].table;
  }
  uint32_t ShardOf(uint32_t p) const {
    const PooledPart* const part = Pooled(p);
    return part == nullptr ? plan.parts()[p].shard : part->shard;
  }
  uint32_t IdsOf(uint32_t p) const {
    const PooledPart* const part = Pooled(p);
    return part == nullptr ? plan.parts()[p].rows() : part->ids;
  }
  // Rows that the client counts as pulled: one per bag, or per row; only the first column slice
  // counts.
  uint32_t RowsCounted(uint32_t p) const {
    const PooledPart* const part = Pooled(p);
    if (part != nullptr) return part->bags();
    return plan.parts()[p].column_first == 0 ? plan.parts()[p].rows() : 0;
  }
  // The part travels in its first message, and no other thread gives it up meanwhile.
  void BeginFirst(uint32_t p) { StateOf(p).store(1, std::memory_order_relaxed); }
  // The part travels in one more message.
  void BeginPart(uint32_t p) { StateOf(p).fetch_add(1); }
  // True for the first answer, whose rows count.
  bool TakePart(uint32_t p) {
    if ((StateOf(p).load() & kPartGivenUp) != 0) return false;
    return (StateOf(p).fetch_or(kPartTaken) & kPartTaken) == 0;
  }
  // The same where no other message may ask for the part while this one does, so that nobody else
  // changes its state: without an atomic operation of 6 ns, which counts where parts are small.
  bool TakePartAlone(uint32_t p) {
    const uint32_t state = StateOf(p).load(std::memory_order_relaxed);
    if ((state & (kPartTaken | kPartGivenUp)) != 0) return false;
    StateOf(p).store(state | kPartTaken, std::memory_order_release);
    return true;
  }
  // A partial call does without the part. False: a message asks for it again.
  bool GiveUpPart(uint32_t p) {
    uint32_t no_message = 0;
    return StateOf(p).compare_exchange_strong(no_message, kPartGivenUp);
  }
  bool PartIsTaken(uint32_t p) { return (StateOf(p).load() & kPartTaken) != 0; }
  // A message in flight was refused or lost. True: no answer was taken, and no other message asks
  // for the part.
  bool LosePart(uint32_t p) { return StateOf(p).fetch_sub(1) == 1; }
  // Bytes of the rows that answer the part.
  uint64_t RowBytesOf(uint32_t p, RowType wire_type) const {
    const PooledPart* const part = Pooled(p);
    if (part != nullptr) return uint64_t{part->bags()} * RowWireBytes(wire_type, part->columns);
    const PlanPart& planned = plan.parts()[p];
    return uint64_t{planned.rows()} * RowWireBytes(wire_type, planned.columns);
  }
  // Bytes of ids and rows as they travel, and of the segment's header.
  uint64_t BytesOf(uint32_t p, RowType wire_type) const {
    if (const PooledPart* const part = Pooled(p); part != nullptr) {
      return kSegmentHeaderBytes + pooled.BytesOf(*part, wire_type);
    }
    const PlanPart& part = plan.parts()[p];
    return kSegmentHeaderBytes +
           uint64_t{part.rows()} * (8 + RowWireBytes(wire_type, part.columns));
  }

 private:
  static constexpr uint32_t kPartTaken = 1u << 31;
  static constexpr uint32_t kPartGivenUp = 1u << 30;
  std::atomic_ref<uint32_t> StateOf(uint32_t p) {
    return std::atomic_ref<uint32_t>(part_states[p]);
  }
};

class PullCall {
 public:
  PullCall(std::unique_ptr<PullScratch> s, Lane l, RowType type, int64_t deadline,
           std::shared_ptr<WaitDriver> driver)
      : scratch(std::move(s)),
        lane(l),
        wire_type(type),
        deadline_ns(deadline),
        promise(std::move(driver)) {}

  // A thread that reads the plan or writes to the caller's buffers must be inside the gate. False:
  // the call has ended.
  bool Enter();
  // True for the last thread to leave a closed gate, which must provide the Future's value.
  [[nodiscard]] bool Leave();
  // From inside the gate: lets no other thread in and sets the result. The first call decides.
  void Close(absl::Status status);
  // Close, because a shard was cut since the call was planned: another call takes its place.
  void Supersede();
  // Once Leave() has returned true.
  bool superseded() const { return superseded_; }
  bool closed() const { return (gate_.load(std::memory_order_acquire) & kClosed) != 0; }

  void NoteError(const absl::Status& error) {
    absl::MutexLock lock(&mu_);
    last_error_ = error;
  }
  absl::Status last_error() const {
    absl::MutexLock lock(&mu_);
    return last_error_;
  }
  // Once Leave() has returned true.
  const absl::Status& result() const { return result_; }
  // Likewise: the call is content with what it has.
  void Accept() { result_ = absl::OkStatus(); }

  std::unique_ptr<PullScratch> scratch;
  const Lane lane;
  const RowType wire_type;
  const int64_t deadline_ns;
  bool want_flags = false;
  bool streaming = false;
  bool strict = false;
  // The caller takes what can be had: rows that are not there at the deadline are flagged.
  bool partial = false;
  uint32_t staleness_ms_max = 0;
  ReadFrom read_from = ReadFrom::kDefault;
  uint64_t turn = 0;  // ReadChoice::NextTurn
  uint64_t cuts = 0;  // ClusterMap::cuts of the plan
  // The features of the call, in case they have to be planned again.
  std::vector<PullFeature> features;
  PullOptions options;
  std::string traceparent;  // empty: the call belongs to no trace
  BufferRef ids;            // of all parts
  BufferRef lengths;        // of all partial bags
  BufferRef weights;        // of all weighted partial bags
  uint64_t bytes = 0;       // of all parts, as they travel
  std::atomic<uint32_t> parts_left{0};
  Promise<absl::Status> promise;

 private:
  static constexpr uint64_t kClosed = 1ull << 63;
  std::atomic<uint64_t> gate_{0};  // the number of threads inside, and kClosed
  std::atomic<bool> resolved_{false};
  bool superseded_ = false;  // written as result_
  absl::Status result_;      // written by the thread that set kClosed, before it leaves
  mutable absl::Mutex mu_;
  absl::Status last_error_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_PULL_PULL_CALL_H_
