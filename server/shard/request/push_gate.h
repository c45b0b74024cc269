// The state that a push of a shard needs to be applied at once, or as soon as the log has it: by
// the active primary of a shard that has no other replicas, in its epoch, to rows that are in
// memory. All other pushes take the long way (Shard::PushNow), which has the same effects, and the
// reasons of refusals.
//
// The strand keeps it up to date: whatever may end such pushes shuts the gate. Confined to the
// shard's strand.
#ifndef HOTBED_SERVER_SHARD_REQUEST_PUSH_GATE_H_
#define HOTBED_SERVER_SHARD_REQUEST_PUSH_GATE_H_

#include <atomic>
#include <cmath>
#include <cstdint>

#include "common/ids.h"
#include "common/tables/table_spec.h"
#include "row_math/optimizer.h"
#include "server/shard/request/requests.h"

namespace hotbed {

class PushGate {
 public:
  // More ids take so long that the way to them does not count.
  static constexpr uint32_t kIdsMax = 512;

  explicit PushGate(bool logged) : logged_(logged) {}

  // Any thread. Pushes of a shard with a log are applied once the log has them.
  bool logged() const { return logged_; }

  // Takes over the options of the table, which may change.
  void SetTable(const TableSpec& table) {
    touches_ = table.optimizer.touches;
    takes_gradients_ = table.optimizer.kind != OptimizerKind::kNone && !table.has_padding_id &&
                       !IsSynchronous(table);
    allows_nan_ = table.nan_policy == NanPolicy::kAllow;
    scalars_fixed_ = table.changes.empty() && table.schedule.kind == ScheduleKind::kConstant &&
                     table.schedule.warmup_steps == 0 && !IsAdamKind(table.optimizer.kind);
    scalars_ = ResolveScalars(table.optimizer, table.optimizer.learning_rate, /*step=*/0);
  }
  // 0: shut.
  void Set(Epoch epoch) { epoch_.store(takes_gradients_ ? epoch : 0, kRelaxed); }
  // Pushes may go to the store as it is: it will not be replaced.
  void NoteStoreOpened() { store_opened_ = true; }
  bool store_opened() const { return store_opened_; }
  // Somebody has begun to follow the rows: the feed of changes has to be asked from now on.
  void NoteFollowed() { followed_ = true; }
  bool followed() const { return followed_; }
  void Shut() { epoch_.store(0, kRelaxed); }
  // Any thread: a guess, for what is brought to the cache.
  bool shut() const { return epoch_.load(kRelaxed) == 0; }

  // The caller has checked the deadline.
  bool Admits(const PushWork& work, const PushSegment& segment) const {
    return segment.epoch == epoch_.load(kRelaxed) && segment.epoch != 0 &&
           segment.commit_step == 0 && !segment.deletes && !segment.shows &&
           segment.count - 1 < kIdsMax && segment.seq != 0 && work.session != 0 &&
           work.gradient_type != RowType::kInt8 &&
           (!segment.has_learning_rate || std::isfinite(segment.learning_rate));
  }
  bool allows_nan() const { return allows_nan_; }
  // Whether a push has to say when it touches its rows.
  bool touches() const { return touches_; }

  // Whether ScalarsOf is what ResolvePush would say.
  bool scalars_fixed() const { return scalars_fixed_; }
  UpdateScalars ScalarsOf(const PushSegment& segment, uint64_t step) const {
    UpdateScalars scalars = scalars_;
    if (segment.has_learning_rate) scalars.learning_rate = segment.learning_rate;
    scalars.step = step;
    return scalars;
  }

 private:
  static constexpr auto kRelaxed = std::memory_order_relaxed;

  std::atomic<Epoch> epoch_{0};  // written on the strand
  const bool logged_;
  bool touches_ = false;
  bool takes_gradients_ = false;
  bool allows_nan_ = false;
  bool scalars_fixed_ = false;
  bool store_opened_ = false;
  bool followed_ = false;
  UpdateScalars scalars_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_REQUEST_PUSH_GATE_H_
