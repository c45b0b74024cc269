#include "server/tiers/memory/shed_op.h"

#include <algorithm>

namespace hotbed {

void ShedOp::NextRound(uint64_t cold_bytes, uint64_t forced_bytes) {
  {
    absl::MutexLock lock(&mu_);
    const bool begins = next_.has_value();
    next_ = Round{cold_bytes, forced_bytes};
    if (begins) return;
  }
  // Not from here: this may be the executor of another shard.
  state_->io->Submit([this, alive = state_->alive, gate = state_->gate] {
    if (!gate->Enter()) return;
    state_->shard.executor->Run([this, alive] {
      if (*alive) Begin();
    });
    gate->Leave();
  });
}

void ShedOp::Begin() {
  {
    absl::MutexLock lock(&mu_);
    left_bytes_ = next_->forced_bytes;
    cold_bytes_left_ = next_->cold_bytes;
    next_.reset();
  }
  residency_->Age();
  forced_ = left_bytes_ > 0;
  if (!forced_) std::swap(left_bytes_, cold_bytes_left_);
  Continue();
}

// One slice per call.
void ShedOp::Step() {
  if (state_->update_active || state_->replaying || posted_) return;
  const uint64_t row_bytes = residency_->hot()->row_bytes();
  const auto slots = static_cast<uint32_t>(
      std::clamp<uint64_t>(left_bytes_ / row_bytes, residency_->hot()->chunk_slots(),
                           // A slice looks at all free slots: not too many slices.
                           std::max({state_->slice_rows, residency_->hot()->chunk_slots(),
                                     residency_->hot()->free_slots() / 64})));
  WriteBack& write_back = state_->write_back;
  if (!write_back.error().ok()) {  // the next round tries again
    left_bytes_ = cold_bytes_left_ = 0;
    return;
  }
  if (!write_back.HasRoom(slots)) {
    write_back.Pump();  // the end of a write continues
    return;
  }
  const uint32_t given = residency_->GiveBack(slots, forced_);
  write_back.Pump();
  left_bytes_ = given == 0 ? 0 : left_bytes_ - std::min(left_bytes_, given * row_bytes);
  if (left_bytes_ == 0) {
    forced_ = false;
    std::swap(left_bytes_, cold_bytes_left_);
  }
  if (left_bytes_ == 0) return;
  posted_ = true;
  state_->shard.executor->Run(state_->Guarded([this] {
    posted_ = false;
    Continue();
  }));
}

}  // namespace hotbed
