// A shard whose rows go to another copy: its sweeps, and what of its log is kept meanwhile.
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/shard/shard.h"

namespace hotbed {
namespace {

// HoldFor: of the room that the records of all shards have, at most this part.
constexpr uint64_t kHoldShare = 4;
// Enough for a copy to be put in order and to catch up. One that is slower than pushes for good
// holds them back for as long, and then begins anew.
constexpr int64_t kHoldNsMax = 30'000'000'000;

}  // namespace

// What nobody needs goes. Of the server's room, half is all that may be in use where something is
// kept in case a copy comes back, and three quarters where what copies under way will need next is:
// those of one shard would else find the room taken by what others keep, and begin anew for ever.
// The last quarter is for what is not committed, without which no push goes on, and for what a copy
// in its last pass will need, which stays.
void Shard::TrimTail() {
  const uint64_t room = options_.replica_budget->tail_bytes_max;
  const Lsn committed = std::min(core_.commit_lsn(), core_.applied_lsn());
  tail_.DropThrough(std::min(core_.retained_lsn(), core_.applied_lsn()));
  FreeTail(std::min(core_.needed_lsn(), committed), room / 2);
  if (!HoldsTail()) FreeTail(committed, room - room / 4);
}

// Drops records up to `limit`, as many as it takes to have all shards of the server within `room`.
void Shard::FreeTail(Lsn limit, uint64_t room) {
  const int64_t excess = options_.replica_budget->tail_bytes.load(std::memory_order_relaxed) -
                         static_cast<int64_t>(room);
  if (excess <= 0 || tail_.empty() || tail_.first() > limit) return;
  Lsn lsn = tail_.first();
  int64_t freed = static_cast<int64_t>(tail_.record(lsn).bytes.size());
  while (lsn < limit && freed < excess) {
    freed += static_cast<int64_t>(tail_.record(++lsn).bytes.size());
  }
  core_.DropRetained(lsn);
  tail_.DropThrough(std::min({core_.retained_lsn(), core_.applied_lsn(), lsn}));
}

absl::StatusOr<Snapshot> Shard::BeginSnapshot(const Member& to, bool holds, Lsn above) {
  HOTBED_ASSIGN_OR_RETURN(Snapshot live, BeginLive(to, holds, above));
  if (live.rows != nullptr) return live;
  // The rows that are dirty now take the longest, and nothing need be kept for `to` meanwhile.
  if (absl::StatusOr<Lsn> swept = Sweep(); !swept.ok()) return swept.status();
  Snapshot snapshot;
  HOTBED_ASSIGN_OR_RETURN(snapshot.base, SweepNow(&to, holds));
  HOTBED_ASSIGN_OR_RETURN(
      snapshot.rows, options_.tiers->ReadShard(options_.table, options_.range, options_.id, above));
  return snapshot;
}

// What memory has goes from there: a sweep would write it to a disk from which it is read once. One
// copy at a time may, since what has changed between its passes is marked in the rows.
absl::StatusOr<Snapshot> Shard::BeginLive(const Member& to, bool holds, Lsn above) {
  LivePass pass;
  pass.above = above;
  bool begun = false;
  absl::StatusOr<SnapshotBase> base = SnapshotBase();
  RunAndWait([&] {
    const bool mine = live_copy_ == to;
    if (store_ == nullptr || (!mine && (live_copy_.has_value() || above != 0))) return;
    begun = store_->BeginPass(/*further=*/above != 0, &pass.positions);
    live_copy_ = begun ? std::optional<Member>(to) : std::nullopt;
    if (begun) base = TakeBase(&to, holds);
    Drain();
  });
  HOTBED_RETURN_IF_ERROR(base.status());
  Snapshot snapshot;
  if (!begun) return snapshot;
  snapshot.base = *std::move(base);
  pass.read = [this](absl::Span<const uint64_t> positions, LiveRows* rows) {
    absl::Status may;
    RunAndWait([&] {
      may = error_state_;
      if (closed_ || store_ == nullptr) {
        may = absl::AbortedError(absl::StrCat(Name(), " has left this server"));
      }
      if (may.ok()) store_->ReadPass(positions, rows);
    });
    return may;
  };
  HOTBED_ASSIGN_OR_RETURN(snapshot.rows, options_.tiers->ReadLive(options_.table, options_.range,
                                                                  options_.id, std::move(pass)));
  return snapshot;
}

absl::Status Shard::KeepSnapshot() { return logged() ? options_.log->Sync() : absl::OkStatus(); }

bool Shard::HoldFor(const Member& to, Lsn lsn) {
  bool kept = false;
  RunAndWait([&] {
    kept = core_.retained_lsn() <= lsn && (tail_.Has(lsn + 1) || core_.last_lsn() <= lsn) &&
           tail_.BytesAbove(lsn) <= options_.replica_budget->tail_bytes_max / kHoldShare;
    if (kept) Hold(to);
  });
  return kept;
}

void Shard::Hold(const Member& to) {
  held_for_.push_back({to, options_.clock->NowNs() + kHoldNsMax});
}

bool Shard::HoldsTail() {
  if (held_for_.empty()) return false;
  const int64_t now_ns = options_.clock->NowNs();
  const std::vector<Member> joined = core_.JoinReady();
  const std::vector<Member>& learners = core_.record().learners;
  std::erase_if(held_for_, [&](const TailHold& held) {
    return now_ns >= held.until_ns || !core_.primary() || Contains(joined, held.to) ||
           !Contains(learners, held.to);
  });
  return !held_for_.empty();
}

void Shard::EndSnapshot(const Member& to, Lsn lsn, bool installed) {
  in_flight_.fetch_add(1, std::memory_order_relaxed);
  strand_.Run([this, to, lsn, installed] {
    if (!closed_) {
      core_.SnapshotDone(to, lsn, installed);
      if (live_copy_ == to) live_copy_.reset();
      if (!installed) std::erase_if(held_for_, [&](const TailHold& held) { return held.to == to; });
      Drain();
    }
    in_flight_.fetch_sub(1, std::memory_order_release);
  });
}

bool Shard::MayInstall(const Member& from, Epoch epoch, Lsn lsn) {
  bool may = false;
  RunAndWait([&] {
    const bool wanted = !closed_ && core_.record().primary == from;
    may = wanted && (refused() ? MayBeReplaced(epoch) : core_.MayInstall(epoch, lsn));
  });
  return may;
}

}  // namespace hotbed
