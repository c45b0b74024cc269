#include "server/tiers/memory/pull_ops.h"

#include <utility>

#include "absl/types/span.h"

namespace hotbed {
namespace {

constexpr size_t kKeptIdsMax = 64 << 10;

}  // namespace

// Most pulls end here. So they use memory of the thread, which is in the cache, and a pull gets an
// Op once it has to wait.
bool PullOps::Start(const RowReads& reads, TieredStore::Done done) {
  static thread_local std::vector<uint32_t> missing;
  if (missing.size() < reads.count) missing.resize(reads.count);
  GatherBatch gather{reads, residency_->table(), !state_->may_miss(), missing.data()};
  state_->kernels.gather(&gather);
  const bool answered = AnswerFromMemory(&gather);
  if (!answered) {
    Op* const op = New(gather);
    op->done = std::move(done);
    Fetch(op);
  }
  if (missing.size() > kKeptIdsMax) missing = {};
  return answered;
}

PullOps::Op* PullOps::New(const GatherBatch& gather) {
  if (free_.empty()) {
    ops_.push_back(std::make_unique<Op>());
    free_.push_back(ops_.back().get());
  }
  Op* const op = free_.back();
  free_.pop_back();
  op->missing.assign(gather.missing, gather.missing + gather.missing_count);
  op->gather = gather;
  op->gather.missing = op->missing.data();
  return op;
}

void PullOps::Recycle(Op* op) {
  op->done = nullptr;
  if (op->missing.size() > kKeptIdsMax) op->missing = {};
  if (op->positions.size() > kKeptIdsMax) op->positions = {};
  free_.push_back(op);
}

// Answers rows that are being written back. False: gather->missing names rows to fetch.
bool PullOps::AnswerFromMemory(GatherBatch* gather) {
  uint32_t missing = gather->missing_count;
  Count(&state_->counters.hits, gather->count - missing);
  if (missing == 0) return true;
  if (!state_->write_back.empty()) {
    uint32_t kept = 0;
    for (uint32_t k = 0; k < missing; ++k) {
      const uint32_t i = gather->missing[k];
      const uint64_t position = state_->PositionOf(gather->ids[i]);
      if (const WriteBack::Kept found = state_->write_back.Find(position); found.here) {
        residency_->AnswerRow(*gather, i, found.payload, position);
      } else {
        gather->missing[kept++] = i;
      }
    }
    missing = kept;
  }
  gather->missing_count = missing;
  Count(&state_->counters.misses, missing);
  return missing == 0;
}

void PullOps::Fetch(Op* op) {
  const uint32_t missing = op->gather.missing_count;
  op->positions.resize(missing);
  for (uint32_t k = 0; k < missing; ++k) {
    op->positions[k] = state_->PositionOf(op->gather.ids[op->missing[k]]);
  }
  op->fetch_number = state_->write_back.BeginFetch();
  SpillFetch::Start(state_->spill_shard, state_->FetchWiring(),
                    absl::MakeConstSpan(op->missing.data(), missing), op->positions,
                    state_->Guarded([this, op](const std::shared_ptr<SpillFetch>& fetch) {
                      OnFetched(op, fetch.get());
                    }));
}

void PullOps::OnFetched(Op* op, SpillFetch* fetch) {
  const absl::Status status = fetch->status();
  if (status.ok()) {
    for (SpillFetch::Part& part : fetch->parts()) AnswerPart(op, &part);
  }
  state_->write_back.EndFetch(op->fetch_number);
  state_->write_back.Pump();
  residency_->Publish();
  TieredStore::Done done = std::move(op->done);
  Recycle(op);
  done(status);
}

void PullOps::AnswerPart(Op* op, SpillFetch::Part* part) {
  // Some rows may have become resident meanwhile, perhaps newer than the fetched ones.
  std::vector<uint32_t> missing(part->picks.size());
  GatherBatch batch = op->gather;
  batch.picks = part->picks.data();
  batch.count = static_cast<uint32_t>(part->picks.size());
  batch.absent_is_initial = false;
  batch.table = residency_->table();
  batch.missing = missing.data();
  state_->kernels.gather(&batch);

  const bool keeps = op->fetch_number >= state_->keep_from_fetch;
  std::vector<uint32_t> rows;  // numbers in part->positions of rows worth keeping
  uint32_t k = 0;
  for (uint32_t m = 0; m < batch.missing_count; ++m, ++k) {
    while (part->picks[k] != missing[m]) ++k;  // `missing` is a subsequence of `picks`
    const uint32_t row = part->row_of[k];
    const uint64_t position = part->positions[row];
    if (const WriteBack::Kept kept = state_->write_back.Find(position); kept.here) {
      residency_->AnswerRow(op->gather, missing[m], kept.payload, position);
      continue;
    }
    const uint8_t* payload = part->PayloadOf(row, state_->spill_shard.record_bytes());
    residency_->AnswerRow(op->gather, missing[m], payload, position);
    if (payload != nullptr && (rows.empty() || rows.back() != row)) rows.push_back(row);
    if (payload == nullptr && keeps) residency_->NoteAbsent(position);
  }
  if (keeps) Promote(*part, rows);
}

// Makes fetched rows resident, unvisited: rows that nobody reads again are the next to leave.
void PullOps::Promote(const SpillFetch::Part& part, const std::vector<uint32_t>& rows) {
  if (rows.empty() || state_->update_active || state_->replaying) return;
  uint32_t wanted = static_cast<uint32_t>(rows.size());
  if (!residency_->HasRoom(wanted)) return;
  std::vector<uint64_t> positions(wanted);
  std::vector<const uint8_t*> sources(wanted);
  for (uint32_t k = 0; k < wanted; ++k) {
    positions[k] = part.positions[rows[k]];
    sources[k] = part.PayloadOf(rows[k], state_->spill_shard.record_bytes());
  }
  std::vector<uint32_t> slots(wanted);
  wanted = residency_->MakeSlots(positions.data(), wanted, state_->applied_lsn, slots.data());
  residency_->Insert(positions.data(), slots.data(), sources.data(), wanted, /*dirty=*/false);
}

}  // namespace hotbed
