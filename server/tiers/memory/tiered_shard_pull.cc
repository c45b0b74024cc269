// Reads: gather what is resident, answer from rows being written back, fetch the rest, and keep
// what was fetched.
#include <algorithm>
#include <utility>

#include "common/check.h"
#include "server/kernels/cpu_kernels.h"
#include "server/tiers/memory/tiered_shard.h"

namespace hotbed {

TieredShard::PullOp* TieredShard::NewPullOp(const RowReads& reads) {
  if (free_pull_ops_.empty()) {
    pull_ops_.push_back(std::make_unique<PullOp>());
    free_pull_ops_.push_back(pull_ops_.back().get());
  }
  PullOp* op = free_pull_ops_.back();
  free_pull_ops_.pop_back();
  op->reads = reads;
  if (op->missing.size() < reads.count) op->missing.resize(reads.count);
  op->gather = GatherBatch();
  op->gather.table = table();
  op->gather.ids = reads.ids;
  op->gather.picks = reads.picks;
  op->gather.count = reads.count;
  op->gather.type = reads.type;
  op->gather.absent_is_initial = !may_miss_;
  op->gather.rows = reads.rows;
  op->gather.flags = reads.flags;
  op->gather.missing = op->missing.data();
  return op;
}

void TieredShard::Recycle(PullOp* op) {
  constexpr size_t kKeptIdsMax = 64 << 10;
  op->done = nullptr;
  if (op->missing.size() > kKeptIdsMax) op->missing = {};
  if (op->positions.size() > kKeptIdsMax) op->positions = {};
  free_pull_ops_.push_back(op);
}

bool TieredShard::Pull(const RowReads& reads, Done done) {
  if (reads.pooling != RowPooling::kNone) return PullPooled(reads, std::move(done));
  PullOp* op = NewPullOp(reads);
  const bool finished = kernels_->Submit(&op->gather, [this, op] {
    if (AfterGather(op, nullptr)) {
      Done then = std::move(op->done);
      Recycle(op);
      then(absl::OkStatus());
    }
  });
  if (!finished) {
    op->done = std::move(done);
    return false;
  }
  if (!AfterGather(op, &done)) return false;
  Recycle(op);
  return true;
}

// False: rows have to be fetched, and *done (unless null) has been kept for then.
bool TieredShard::AfterGather(PullOp* op, Done* done) {
  uint32_t missing = op->gather.missing_count;
  counters_.hits.fetch_add(op->reads.count - missing, std::memory_order_relaxed);
  if (missing == 0) return true;
  if (!write_back_.empty()) {
    uint32_t kept = 0;
    for (uint32_t k = 0; k < missing; ++k) {
      const uint32_t i = op->missing[k];
      const uint64_t position = PositionOf(op->reads.ids[i]);
      if (const uint8_t* payload = write_back_.Find(position); payload != nullptr) {
        AnswerRow(op->reads, i, payload, position);
      } else {
        op->missing[kept++] = i;
      }
    }
    missing = kept;
  }
  if (missing == 0) return true;
  counters_.misses.fetch_add(missing, std::memory_order_relaxed);
  op->gather.missing_count = missing;
  if (done != nullptr) op->done = std::move(*done);
  FetchForPull(op);
  return false;
}

void TieredShard::FetchForPull(PullOp* op) {
  const uint32_t missing = op->gather.missing_count;
  op->positions.resize(missing);
  for (uint32_t k = 0; k < missing; ++k) {
    op->positions[k] = PositionOf(op->reads.ids[op->missing[k]]);
  }
  op->fetch_number = write_back_.BeginFetch();
  SpillFetch::Start(spill_shard_, FetchWiring(), absl::MakeConstSpan(op->missing.data(), missing),
                    op->positions, [this, alive = alive_, op](std::shared_ptr<SpillFetch> fetch) {
                      if (*alive) OnPullFetched(op, fetch.get());
                    });
}

void TieredShard::OnPullFetched(PullOp* op, SpillFetch* fetch) {
  const absl::Status status = fetch->status();
  if (status.ok()) {
    for (SpillFetch::Part& part : fetch->parts()) AnswerPart(op, &part);
  }
  write_back_.EndFetch(op->fetch_number);
  write_back_.Pump();
  PublishStats();
  Done done = std::move(op->done);
  Recycle(op);
  done(status);
}

void TieredShard::AnswerPart(PullOp* op, SpillFetch::Part* part) {
  // Some may have become resident, perhaps newer than what was read.
  std::vector<uint32_t> missing(part->picks.size());
  GatherBatch batch;
  batch.table = table();
  batch.ids = op->reads.ids;
  batch.picks = part->picks.data();
  batch.count = static_cast<uint32_t>(part->picks.size());
  batch.type = op->reads.type;
  batch.rows = op->reads.rows;
  batch.flags = op->reads.flags;
  batch.missing = missing.data();
  kernels_->Submit(&batch, nullptr);

  std::vector<uint32_t> rows;  // of part->positions: those worth keeping
  uint32_t k = 0;
  for (uint32_t m = 0; m < batch.missing_count; ++m, ++k) {
    while (part->picks[k] != missing[m]) ++k;  // a subsequence: both are in the same order
    const uint32_t row = part->row_of[k];
    const uint64_t position = part->positions[row];
    if (const uint8_t* payload = write_back_.Find(position); payload != nullptr) {
      AnswerRow(op->reads, missing[m], payload, position);
      continue;
    }
    const uint8_t* record = part->RecordOf(row, spill_shard_.record_bytes());
    AnswerRow(op->reads, missing[m], record == nullptr ? nullptr : SpillTier::PayloadOf(record),
              position);
    if (record != nullptr && (rows.empty() || rows.back() != row)) rows.push_back(row);
    if (record == nullptr && hot_->direct() && op->fetch_number >= keep_from_fetch_) {
      table()->bits[position - table()->first_position] |= kRowAbsent;
    }
  }
  if (op->fetch_number >= keep_from_fetch_) Promote(*part, rows);
}

// `payload` null: the row exists nowhere.
void TieredShard::AnswerRow(const RowReads& reads, uint32_t i, const uint8_t* payload,
                            uint64_t position) {
  const CpuKernelSet& cpu = CpuKernels();
  uint8_t* out = reads.rows + uint64_t{RowWireBytes(reads.type, table()->dim)} * i;
  if (payload != nullptr) {
    cpu.encode_row(*table(), payload, reads.type, out);
  } else {
    uint8_t weights[4 * kDimMax];
    cpu.first_value(*table(), position, weights, nullptr);
    cpu.encode_row(*table(), weights, reads.type, out);
  }
  if (reads.flags != nullptr) reads.flags[i] = payload != nullptr ? 1 : 0;
}

// Keeps rows that were fetched, unvisited: those that nobody asks for again are the next to go.
void TieredShard::Promote(const SpillFetch::Part& part, const std::vector<uint32_t>& rows) {
  if (rows.empty() || apply_.active || replaying_ || shed_.active) return;
  uint32_t wanted = static_cast<uint32_t>(rows.size());
  if (!hot_->direct() && !write_back_.HasRoom(wanted)) return;
  std::vector<uint32_t> slots(wanted);
  if (hot_->direct()) {
    for (uint32_t k = 0; k < wanted; ++k) {
      slots[k] = static_cast<uint32_t>(part.positions[rows[k]] - table()->first_position);
    }
  } else {
    wanted = MakeSlots(wanted, slots.data(), applied_lsn_);
  }
  std::vector<uint64_t> positions(wanted);
  std::vector<const uint8_t*> sources(wanted);
  for (uint32_t k = 0; k < wanted; ++k) {
    positions[k] = part.positions[rows[k]];
    sources[k] = SpillTier::PayloadOf(part.RecordOf(rows[k], spill_shard_.record_bytes()));
  }
  InsertBatch insert;
  insert.table = table();
  insert.positions = positions.data();
  insert.slots = slots.data();
  insert.sources = sources.data();
  insert.count = wanted;
  kernels_->Submit(&insert, nullptr);
  rows_resident_ += wanted;
}

}  // namespace hotbed
