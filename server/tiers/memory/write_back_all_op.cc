#include "server/tiers/memory/write_back_all_op.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace hotbed {

void WriteBackAllOp::Start(Lsn applied_lsn, std::string meta, TieredStore::Done done) {
  HOTBED_CHECK(!active_) << state_->shard.shard.ToString() << ": one WriteBackAll at a time";
  active_ = true;
  state_->collecting = true;
  cursor_ = 0;
  lsn_ = applied_lsn;
  next_meta_ = std::move(meta);
  done_ = std::move(done);
  state_->applied_lsn = std::max(state_->applied_lsn, applied_lsn);
  state_->write_back.Pump();  // retries a write that has failed
  state_->shard.executor->Run(state_->Guarded([this] { OnWritten(); }));
}

void WriteBackAllOp::Step() {
  WriteBack& write_back = state_->write_back;
  // A write that fails from here on belongs to a later update.
  if (writing_meta_) return;
  if (!write_back.error().ok() && write_back.written() < write_back.committed()) {
    Finish(write_back.error());
    return;
  }
  if (state_->collecting && write_back.HasRoom(state_->slice_rows)) {
    residency_->CollectDirty(&cursor_);
    state_->collecting = cursor_ < residency_->table()->slots;
    wait_for_ = write_back.committed();
  }
  if (state_->collecting && write_back.Gather(state_->slice_rows)) {
    state_->shard.executor->Run(state_->Guarded([this] { OnWritten(); }));
  } else if (state_->collecting || write_back.written() < wait_for_) {
    write_back.StopGathering();
  } else {
    write_back.StopGathering();  // rows that leave memory while the meta is written do not wait
    WriteMeta();
  }
  residency_->Publish();
}

void WriteBackAllOp::WriteMeta() {
  writing_meta_ = true;
  state_->io->SubmitWrite([this, alive = state_->alive, gate = state_->gate, meta = next_meta_,
                           lsn = lsn_] {
    if (!gate->Enter()) return;
    const TierHost::ShardParams& shard = state_->shard;
    absl::Status status = shard.before_write_back ? shard.before_write_back(lsn) : absl::OkStatus();
    if (status.ok()) status = state_->spill->WriteMeta(state_->spill_shard, meta);
    shard.executor->Run([this, alive, status = std::move(status)] {
      if (*alive) Finish(status);
    });
    gate->Leave();
  });
}

void WriteBackAllOp::Finish(absl::Status status) {
  // With counts of touches it is long, and nobody reads it before the shard is opened again.
  if (status.ok()) meta_ = state_->filter == nullptr ? std::move(next_meta_) : std::string();
  next_meta_.clear();
  state_->write_back.StopGathering();
  active_ = false;
  state_->collecting = false;
  writing_meta_ = false;
  TieredStore::Done done = std::move(done_);
  residency_->Publish();
  done(std::move(status));
}

}  // namespace hotbed
