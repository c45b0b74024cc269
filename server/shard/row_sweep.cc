#include "server/shard/row_sweep.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "row_math/position.h"
#include "server/protocol/core_mutant.h"

namespace hotbed {
namespace {

// Looked at in one task of the strand: some tens of microseconds.
constexpr uint32_t kSweepStepRows = 1024;
constexpr uint64_t kSweepBlockBytes = 256 << 10;
// A sweep evicts this part of the limit more than it must, so that not every push needs one.
constexpr uint64_t kSweepSlackPart = 20;

}  // namespace

bool RowSweep::Estimate(const StoreStats& stats, uint64_t* rows) const {
  if (!counted_.load(std::memory_order_acquire) && stats.began_with_rows) return false;
  const int64_t now = base_.load(std::memory_order_relaxed) +
                      static_cast<int64_t>(stats.rows_made) -
                      static_cast<int64_t>(stats.rows_deleted);
  *rows = static_cast<uint64_t>(std::max<int64_t>(0, now));
  return true;
}

// Memory first: a row that it does not hold is in the spill tier, or was a moment ago.
absl::StatusOr<std::vector<KnownTouches>> RowSweep::Read(absl::Span<const uint64_t> ids) {
  std::vector<KnownTouches> rows(ids.size());
  const SpillShard shard = shard_.options.Spilled();
  const AdmissionParams& admission = shard_.options.table->life.admission;
  const uint32_t after = admission.HasCandidates() ? admission.Needed() : 0;
  const auto now_s = static_cast<uint32_t>(shard_.options.clock->WallUs() / 1'000'000);
  const auto take = [&](const uint8_t* record, KnownTouches* row) {
    const OptimizerParams& params = shard_.options.table->optimizer;
    const RowRecord kept =
        RecordAt(params, record + kSpillHeaderBytes + shard.payload_bytes - kTouchBytes);
    row->touches = kept.touches;
    row->shows = DecayShows(params.shows, kept.shows, kept.touches.time_s, now_s);
    row->found = row->touches.count < after ? KnownTouches::kCandidate : KnownTouches::kRow;
  };
  for (size_t i = 0; i < ids.size(); ++i) {
    const uint64_t position = Mix64(ids[i]);
    LiveRows live;
    HOTBED_RETURN_IF_ERROR(OnStrand([&] {
      shard_.store->ReadPass({&position, 1}, &live);
      return absl::OkStatus();
    }));
    if (live.found[0] == kRowThere) take(live.records.data(), &rows[i]);
    if (live.found[0] != kRowNotThere || live.all) continue;
    std::vector<uint8_t> record(shard.record_bytes());
    uint8_t found = kRowNotThere;
    HOTBED_RETURN_IF_ERROR(
        shard_.options.tiers->ReadRows(shard, {&position, 1}, record.data(), &found));
    if (found == kRowThere) take(record.data(), &rows[i]);
  }
  return rows;
}

absl::Status RowSweep::OnStrand(absl::FunctionRef<absl::Status()> task) {
  absl::Status status;
  shard_.RunAndWait([&] {
    status = shard_.serving.error();
    if (shard_.serving.closed() || shard_.store == nullptr) {
      status = absl::AbortedError(absl::StrCat(shard_.Name(), " has left this server"));
    } else if (status.ok() && !shard_.core.primary() && !Mutated(CoreMutant::kExpiresByOwnClock)) {
      status = absl::UnavailableError(
          absl::StrCat(shard_.Name(), ": another server is its primary and decides"));
    }
    if (status.ok()) status = task();
  });
  return status;
}

void RowSweep::SetLife(const LifeParams& life) {
  absl::MutexLock lock(&life_mu_);
  life_ = life;
}

LifeParams RowSweep::life() const {
  absl::MutexLock lock(&life_mu_);
  return life_;
}

TableSpec RowSweep::TableWith(const LifeParams& life) const {
  TableSpec table = shard_.options.table;
  table.life = life;
  table.changes.clear();
  return table;
}

uint64_t RowSweep::RowsMax() const {
  const LifeParams now = life();
  return now.Limits() ? RowsMaxOf(TableWith(now), shard_.options.range) : 0;
}

absl::StatusOr<SweptRows> RowSweep::Sweep(GoOn go_on) {
  return Run(TableWith(life()), /*dry_run=*/false, go_on);
}

absl::StatusOr<SweptRows> RowSweep::DryRun(const LifeParams& life, GoOn go_on) {
  return Run(TableWith(life), /*dry_run=*/true, go_on);
}

absl::StatusOr<SweptRows> RowSweep::Run(const TableSpec& table, bool dry_run, GoOn go_on) {
  const RowPolicy policy(table);
  Walk walk{policy};
  walk.dry_run = dry_run;
  walk.takes = true;
  StoreStats before;
  HOTBED_RETURN_IF_ERROR(OnStrand([&] {
    walk.now.time_s = static_cast<uint32_t>(shard_.options.clock->WallUs() / 1'000'000);
    walk.now.step = pipeline_.last_step();
    before = shard_.store->Stats();
    return absl::OkStatus();
  }));
  const uint64_t limit = RowsMaxOf(table, shard_.options.range);
  uint64_t rows = 0;
  const bool known = Estimate(before, &rows);
  if (known && rows == 0) return walk.swept;
  if (limit != 0 && (!known || rows > limit)) {
    KeySample sample(table.seed ^ shard_.options.id.packed());
    Walk look{policy};
    look.now = walk.now;
    look.sample = &sample;
    HOTBED_RETURN_IF_ERROR(Over(&look, go_on));
    if (!known) {
      base_.store(static_cast<int64_t>(look.swept.rows) - static_cast<int64_t>(before.rows_made) +
                      static_cast<int64_t>(before.rows_deleted),
                  std::memory_order_relaxed);
      counted_.store(true, std::memory_order_release);
      rows = look.swept.rows;
    }
    // Rows that expire go anyway; the sample has none of them.
    const uint64_t staying = std::min(rows, sample.offered());
    if (staying > limit) {
      walk.evicts_max = staying - (limit - limit / kSweepSlackPart);
      walk.threshold = sample.Threshold(walk.evicts_max);
    }
  }
  if (walk.evicts_max > 0 || table.life.Expires()) HOTBED_RETURN_IF_ERROR(Over(&walk, go_on));
  if (walk.swept.rows == 0) walk.swept.rows = rows;
  return walk.swept;
}

absl::Status RowSweep::Over(Walk* walk, GoOn go_on) {
  bool all = false;
  HOTBED_RETURN_IF_ERROR(OverMemory(walk, &all, go_on));
  return all ? absl::OkStatus() : OverSpill(walk, go_on);
}

bool RowSweep::Takes(const Walk& walk, const RowRecord& row, const uint8_t* weights,
                     bool* expired) {
  *expired = walk.policy.Expired(row, walk.now);
  return *expired || (walk.swept.evicted < walk.evicts_max &&
                      walk.policy.KeyOf(row, weights, walk.now) <= walk.threshold);
}

void RowSweep::See(uint64_t position, const uint8_t* weights, const uint8_t* touches, Walk* walk) {
  const RowRecord row = RecordAt(shard_.options.table->optimizer, touches);
  ++walk->swept.rows;
  if (!walk->takes) {
    const RowPolicy& policy = walk->policy;
    if (!policy.Expired(row, walk->now)) walk->sample->Offer(policy.KeyOf(row, weights, walk->now));
    return;
  }
  bool expired = false;
  if (!Takes(*walk, row, weights, &expired)) return;
  ++(expired ? walk->swept.expired : walk->swept.evicted);
  walk->candidates.push_back({position, expired});
}

absl::Status RowSweep::Delete(const absl::flat_hash_set<uint64_t>& named, Walk* walk) {
  std::vector<uint64_t> ids;
  uint64_t expired = 0;
  for (const Candidate& candidate : walk->candidates) {
    const uint64_t id = Unmix64(candidate.position);
    if (named.contains(id)) {
      --(candidate.expired ? walk->swept.expired : walk->swept.evicted);
      continue;
    }
    expired += candidate.expired ? 1 : 0;
    ids.push_back(id);
  }
  const uint64_t count = ids.size();
  walk->candidates.clear();
  if (ids.empty() || walk->dry_run) return absl::OkStatus();
  if (Mutated(CoreMutant::kExpiryNotLogged) ||
      (Mutated(CoreMutant::kExpiresByOwnClock) && !shard_.core.primary())) {
    const auto kept = std::make_shared<std::vector<uint64_t>>(std::move(ids));
    RowUpdates updates;
    updates.ids = kept->data();
    updates.count = static_cast<uint32_t>(kept->size());
    updates.lsn = shard_.core.applied_lsn();
    updates.deletes = true;
    shard_.store->Apply(updates, [kept](const absl::Status&) {});
    return absl::OkStatus();
  }
  if (!shard_.serving.serves() || shard_.serving.paused() || shard_.serving.stalled() ||
      !pipeline_.DeleteRows(std::move(ids))) {
    return absl::UnavailableError(absl::StrCat(shard_.Name(), ": it takes no entries now"));
  }
  expired_.fetch_add(expired, std::memory_order_relaxed);
  evicted_.fetch_add(count - expired, std::memory_order_relaxed);
  return absl::OkStatus();
}

absl::Status RowSweep::OverMemory(Walk* walk, bool* all, GoOn go_on) {
  MemoryWalk steps;
  const uint32_t state_bytes = StateBytes(shard_.options.table->optimizer, shard_.dim);
  while (steps.slots_left > 0) {
    HOTBED_RETURN_IF_ERROR(go_on());
    HOTBED_RETURN_IF_ERROR(OnStrand([&] {
      // The rows of entries that are not applied yet are about to change.
      absl::flat_hash_set<uint64_t> named;
      if (walk->takes && !walk->dry_run) {
        pipeline_.BeginNoting();
        named = pipeline_.EndNoting();
      }
      const auto see = [&](uint64_t position, const uint8_t* weights, const uint8_t* state) {
        See(position, weights, state + state_bytes - kTouchBytes, walk);
      };
      if (!shard_.store->VisitMemory(kSweepStepRows, &steps, see)) {
        return absl::InternalError(absl::StrCat(shard_.Name(), ": its memory cannot be read"));
      }
      return Delete(named, walk);
    }));
    CommitLog();
  }
  *all = steps.all;
  return absl::OkStatus();
}

absl::Status RowSweep::OverSpill(Walk* walk, GoOn go_on) {
  const SpillShard shard = shard_.options.Spilled();
  HOTBED_ASSIGN_OR_RETURN(const auto reader, shard_.options.tiers->ReadShard(shard, 0));
  for (;;) {
    HOTBED_RETURN_IF_ERROR(go_on());
    HOTBED_ASSIGN_OR_RETURN(const std::string block, reader->Next(kSweepBlockBytes));
    if (block.empty()) return absl::OkStatus();
    HOTBED_ASSIGN_OR_RETURN(const BlockRows stored, RowsIn(shard, block));
    std::vector<uint64_t> positions;
    std::vector<const uint8_t*> rows;
    for (uint32_t k = 0; k < stored.count; ++k) {
      if (!stored.deleted(k)) {
        positions.push_back(stored.position(k));
        rows.push_back(stored.first + stored.stride * k);
      }
      if (positions.size() < kSweepStepRows && k + 1 < stored.count) continue;
      HOTBED_RETURN_IF_ERROR(SpilledStep(positions, rows, walk));
      positions.clear();
      rows.clear();
    }
  }
}

// Rows of the spill tier count where memory does not hold them, or know of their deletion.
absl::Status RowSweep::SpilledStep(absl::Span<const uint64_t> positions,
                                   absl::Span<const uint8_t* const> rows, Walk* walk) {
  if (positions.empty()) return absl::OkStatus();
  LiveRows live;
  HOTBED_RETURN_IF_ERROR(OnStrand([&] {
    shard_.store->ReadPass(positions, &live);
    return absl::OkStatus();
  }));
  const uint32_t touches_at = shard_.options.Spilled().payload_bytes - kTouchBytes;
  for (size_t k = 0; k < positions.size(); ++k) {
    if (live.found[k] != kRowNotThere) continue;
    See(positions[k], rows[k], rows[k] + touches_at, walk);
  }
  if (walk->dry_run) walk->candidates.clear();
  return walk->candidates.empty() ? absl::OkStatus() : TakeSpilled(walk);
}

// The candidates as the spill tier has them now, while pushes that name them are noted.
absl::Status RowSweep::TakeSpilled(Walk* walk) {
  std::vector<Candidate> seen;
  std::vector<uint64_t> positions;
  for (const Candidate& one : walk->candidates) positions.push_back(one.position);
  LiveRows live;
  absl::Status status = OnStrand([&] {
    pipeline_.BeginNoting();
    shard_.store->ReadPass(positions, &live);
    return absl::OkStatus();
  });
  const SpillShard shard = shard_.options.Spilled();
  std::vector<uint8_t> records(positions.size() * shard.record_bytes());
  std::vector<uint8_t> found(positions.size());
  if (status.ok()) {
    status = shard_.options.tiers->ReadRows(shard, positions, records.data(), found.data());
  }
  for (size_t k = 0; status.ok() && k < positions.size(); ++k) {
    const Candidate& one = walk->candidates[k];
    const uint8_t* const row = records.data() + k * shard.record_bytes() + kSpillHeaderBytes;
    --(one.expired ? walk->swept.expired : walk->swept.evicted);
    if (live.found[k] != kRowNotThere || found[k] != kRowThere) continue;
    const RowRecord kept =
        RecordAt(shard_.options.table->optimizer, row + shard.payload_bytes - kTouchBytes);
    Candidate now = one;
    if (!Takes(*walk, kept, row, &now.expired)) continue;
    ++(now.expired ? walk->swept.expired : walk->swept.evicted);
    seen.push_back(now);
  }
  walk->candidates = std::move(seen);
  absl::Status ended;
  shard_.RunAndWait([&] {
    const auto named = pipeline_.EndNoting();
    if (status.ok()) ended = Delete(named, walk);
  });
  CommitLog();
  return status.ok() ? ended : status;
}

// Otherwise the entries would wait for a push, or for the next tick.
void RowSweep::CommitLog() {
  if (shard_.options.log != nullptr) shard_.options.log->Commit();
}

}  // namespace hotbed
