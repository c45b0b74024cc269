#include "server/host/transfer/snapshot_course.h"

#include <string>
#include <utility>

#include "common/status_macros.h"

namespace hotbed {
namespace {

using Kind = ReplicaMessage::Kind;

SharedBytes Share(std::string bytes) {
  auto owner = std::make_shared<const std::string>(std::move(bytes));
  const auto* const data = reinterpret_cast<const uint8_t*>(owner->data());
  const size_t size = owner->size();
  return {std::move(owner), {data, size}};
}

}  // namespace

absl::StatusOr<ReplicaMessage> SnapshotCourse::Next() {
  HOTBED_RETURN_IF_ERROR(CheckWanted());
  if (passes_ == 0) {
    HOTBED_RETURN_IF_ERROR(BeginPass());
    ReplicaMessage begin = Message(Kind::kSnapshotBegin);
    begin.lsn = base_.lsn;
    begin.bytes_total = rows_->bytes_total() + base_.meta.size();
    return begin;
  }
  if (rows_ == nullptr) {
    const bool may_end = passes_ >= options_.passes_min && shard_->HoldFor(to_, base_.lsn);
    if (holds_ || may_end) return End();
    HOTBED_RETURN_IF_ERROR(BeginPass());
  }
  HOTBED_ASSIGN_OR_RETURN(std::string block, rows_->Next(options_.block_bytes));
  if (block.empty()) {
    rows_.reset();
    return ReplicaMessage();
  }
  ReplicaMessage rows = Message(Kind::kSnapshotRows);
  rows.chunk = chunks_++;
  rows.body = Share(std::move(block));
  return rows;
}

absl::Status SnapshotCourse::BeginPass() {
  const SnapshotBase before = std::move(base_);
  holds_ = ++passes_ == options_.passes_max;
  HOTBED_ASSIGN_OR_RETURN(Snapshot snapshot, shard_->BeginSnapshot(to_, holds_, before.lsn));
  base_ = std::move(snapshot.base);
  rows_ = std::move(snapshot.rows);
  if (before.epoch != 0 && base_.epoch != before.epoch) {
    return absl::AbortedError("the shard's record has become another one");
  }
  return absl::OkStatus();
}

absl::StatusOr<ReplicaMessage> SnapshotCourse::End() {
  HOTBED_RETURN_IF_ERROR(shard_->KeepSnapshot());
  ended_ = true;
  ReplicaMessage end = Message(Kind::kSnapshotEnd);
  end.chunk = chunks_;
  end.lsn = base_.lsn;
  end.body = Share(base_.meta);
  return end;
}

absl::Status SnapshotCourse::CheckWanted() const {
  const bool same = passes_ == 0 || shard_->epoch() == base_.epoch;
  if (!shard_->primary() || !same || !shard_->WantsSnapshot(to_)) {
    return absl::AbortedError("the shard's record does not want it any more");
  }
  return absl::OkStatus();
}

ReplicaMessage SnapshotCourse::Message(Kind kind) const {
  ReplicaMessage message;
  message.kind = kind;
  message.shard = shard_->id();
  message.epoch = base_.epoch;
  message.to = to_;
  message.transfer = number_;
  return message;
}

}  // namespace hotbed
