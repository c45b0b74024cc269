#include "server/host/shard_copy.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "row_math/position.h"
#include "server/protocol/session_table.h"
#include "server/tiers/api/rows.h"

namespace hotbed {
namespace {

// `adds`: the sink has older rows, and is told which of them were deleted.
absl::Status TakeRows(const SpillShard& spilled, ShardRowReader* rows, bool adds, RowSink* sink) {
  HOTBED_RETURN_IF_ERROR(sink->BeginPass(rows->bytes_total()));
  rows->StayHere();
  std::vector<uint64_t> ids;
  std::vector<uint8_t> payloads;
  std::vector<uint64_t> deleted;
  for (;;) {
    HOTBED_ASSIGN_OR_RETURN(const std::string block, rows->Next(kCopyBlockBytes));
    if (block.empty()) return absl::OkStatus();
    ids.clear();
    deleted.clear();
    payloads.clear();
    payloads.reserve(block.size());
    HOTBED_RETURN_IF_ERROR(
        VisitRows(spilled, block, [&](uint64_t position, const uint8_t* payload) {
          const uint64_t id = spilled.hashed ? Unmix64(position) : position;
          (payload == nullptr ? deleted : ids).push_back(id);
          if (payload == nullptr) return;
          payloads.insert(payloads.end(), payload, payload + spilled.payload_bytes);
        }));
    if (!ids.empty()) HOTBED_RETURN_IF_ERROR(sink->Take(ids, payloads));
    if (adds && !deleted.empty()) HOTBED_RETURN_IF_ERROR(sink->TakeDeleted(deleted));
  }
}

absl::StatusOr<CopiedShard> Described(const SnapshotBase& base, uint32_t passes) {
  HOTBED_ASSIGN_OR_RETURN(const ShardMeta meta, ShardMeta::Parse(base.meta));
  CopiedShard copied;
  copied.epoch = base.epoch;
  copied.lsn = base.lsn;
  copied.passes = passes;
  meta.sessions.AppendTo(&copied.sessions);
  copied.session_count = meta.sessions.size();
  copied.forgotten = meta.forgotten;
  meta.sessions.ForEach([&copied](SessionId, const Session& session) {
    copied.last_step = std::max(copied.last_step, session.last_seq >> 20);
  });
  copied.committed_step = meta.committed_step;
  copied.staged_pushes = meta.staged.size();
  copied.touch_filter = meta.touch_filter;
  return copied;
}

absl::StatusOr<CopiedShard> Copied(Shard* shard, Epoch epoch, bool still_here,
                                   const absl::StatusOr<SnapshotBase>& base, uint32_t passes) {
  HOTBED_RETURN_IF_ERROR(base.status());
  if (!still_here || base->epoch != epoch) {
    return absl::AbortedError(
        absl::StrCat(shard->id().ToString(), " left this server while it was copied"));
  }
  HOTBED_ASSIGN_OR_RETURN(CopiedShard copied, Described(*base, passes));
  copied.lsn_epoch = shard->PositionAt(copied.lsn).epoch;
  return copied;
}

// The base of the pass that completed the copy; without a meta if none did.
absl::StatusOr<SnapshotBase> CopyInPasses(Shard* shard, RowSink* sink, uint32_t* passes) {
  SnapshotBase base;
  while (*passes < kCopyPassesMax) {
    HOTBED_ASSIGN_OR_RETURN(CopyPass pass,
                            shard->BeginCopy(*passes > 0, base.lsn, kCopyAtOnceBytes));
    if (pass.rows == nullptr) return SnapshotBase();
    if (*passes > 0 && pass.base.epoch != base.epoch) {
      return absl::AbortedError(absl::StrCat(shard->id().ToString(), " changed its epoch"));
    }
    base = std::move(pass.base);
    HOTBED_RETURN_IF_ERROR(TakeRows(shard->spilled(), pass.rows.get(), *passes > 0, sink));
    ++*passes;
    if (pass.at_once) return base;
  }
  return SnapshotBase();
}

absl::StatusOr<SnapshotBase> CopyStill(const std::shared_ptr<Shard>& shard,
                                       TableCheckpoints* checkpoints, RowSink* sink,
                                       uint32_t* passes) {
  HOTBED_ASSIGN_OR_RETURN(Snapshot still, StillRows(shard, checkpoints, 0));
  HOTBED_RETURN_IF_ERROR(TakeRows(shard->spilled(), still.rows.get(), *passes > 0, sink));
  ++*passes;
  return std::move(still.base);
}

// Whether the shard, whose primary is here, goes on from `above`.
absl::StatusOr<Shard::FollowFrom> GoingOn(Shard* shard, const ChangePosition& above) {
  Shard::FollowFrom begin = shard->BeginFollowing({above, above}, /*opens_feed=*/false);
  HOTBED_RETURN_IF_ERROR(begin.status);
  return begin;
}

absl::StatusOr<TakenRows> TakeFrom(const std::shared_ptr<Shard>& shard, Epoch epoch, Lsn above,
                                   TableCheckpoints* checkpoints) {
  TakenRows taken = {shard, shard->range(), epoch, above, {}};
  HOTBED_ASSIGN_OR_RETURN(taken.still, StillRows(shard, checkpoints, above));
  return taken;
}

}  // namespace

// Most rows are written back while pushes continue.
absl::StatusOr<Snapshot> StillRows(const std::shared_ptr<Shard>& shard,
                                   TableCheckpoints* checkpoints, Lsn above) {
  HOTBED_RETURN_IF_ERROR(shard->WriteBack().status());
  absl::StatusOr<Snapshot> still = absl::InternalError("it was not paused");
  HOTBED_RETURN_IF_ERROR(checkpoints->WhilePaused({shard}, [&] {
    still = above == 0 ? shard->StillCopy() : shard->ChangedRows(above);
    return still.status();
  }));
  return still;
}

absl::StatusOr<CopiedShard> CopyShard(const std::shared_ptr<Shard>& shard,
                                      TableCheckpoints* checkpoints, RowSink* sink) {
  absl::MutexLock one_at_a_time(shard->copying());
  const std::shared_ptr<const void> marks_held = shard->HoldMarks();
  const Epoch epoch = shard->epoch();
  uint32_t passes = 0;
  absl::StatusOr<SnapshotBase> base = absl::FailedPreconditionError(
      absl::StrCat(shard->id().ToString(), ": its primary is another server"));
  if (shard->primary() && shard->active()) base = CopyInPasses(shard.get(), sink, &passes);
  if (base.ok() && base->epoch == 0) base = CopyStill(shard, checkpoints, sink, &passes);
  // A shard that has left this server may have lost rows while they were read.
  const bool still_here = shard->EndCopy(epoch);
  return Copied(shard.get(), epoch, still_here, base, passes);
}

absl::StatusOr<CopiedShard> CopyChanges(const std::shared_ptr<Shard>& shard,
                                        const ChangePosition& above, TableCheckpoints* checkpoints,
                                        RowSink* sink) {
  if (above.lsn == 0) return CopyShard(shard, checkpoints, sink);
  const std::shared_ptr<const void> marks_held = shard->HoldMarks();
  HOTBED_ASSIGN_OR_RETURN(const Shard::FollowFrom begin, GoingOn(shard.get(), above));
  if (begin.lost) return CopyShard(shard, checkpoints, sink);
  HOTBED_ASSIGN_OR_RETURN(TakenRows taken, TakeFrom(shard, begin.epoch, above.lsn, checkpoints));
  return CopyTaken(std::move(taken), sink);
}

absl::StatusOr<TakenRows> TakeRowsOf(const std::shared_ptr<Shard>& shard,
                                     const ChangePosition& above, TableCheckpoints* checkpoints) {
  const std::shared_ptr<const void> marks_held = shard->HoldMarks();
  HOTBED_ASSIGN_OR_RETURN(const Shard::FollowFrom begin, GoingOn(shard.get(), above));
  return TakeFrom(shard, begin.epoch, begin.lost ? 0 : above.lsn, checkpoints);
}

absl::StatusOr<CopiedShard> CopyTaken(TakenRows taken, RowSink* sink) {
  Shard* const shard = taken.shard.get();
  HOTBED_RETURN_IF_ERROR(
      TakeRows(shard->spilled(), taken.still.rows.get(), taken.above != 0, sink));
  HOTBED_ASSIGN_OR_RETURN(CopiedShard copied,
                          Copied(shard, taken.epoch, shard->PrimarySince(taken.epoch),
                                 std::move(taken.still.base), /*passes=*/1));
  copied.range = taken.range;
  copied.above = taken.above;
  return copied;
}

}  // namespace hotbed
