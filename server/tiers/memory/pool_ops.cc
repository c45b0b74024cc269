#include "server/tiers/memory/pool_ops.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace hotbed {

bool PoolOps::Start(const RowReads& reads, TieredStore::Done done) {
  Op* const op = New(reads);
  op->done = std::move(done);
  state_->kernels.gather_pooled(&op->gather);
  uint64_t unfinished = 0;  // these ids count as hits or misses when their windows are pulled
  for (uint32_t k = 0; k < op->gather.missing_count; ++k) {
    unfinished += reads.bag_lengths[op->missing[k]];
  }
  Count(&state_->counters.hits, reads.count - unfinished);
  if (!RunWindows(op)) return false;
  Recycle(op);
  return true;
}

bool PoolOps::StartWindows(const RowReads& reads, const std::vector<uint32_t>& bags,
                           TieredStore::Done done) {
  Op* const op = New(reads);
  std::copy(bags.begin(), bags.end(), op->missing.begin());
  op->gather.missing_count = static_cast<uint32_t>(bags.size());
  op->done = std::move(done);
  if (!RunWindows(op)) return false;
  Recycle(op);
  return true;
}

PoolOps::Op* PoolOps::New(const RowReads& reads) {
  if (free_.empty()) {
    ops_.push_back(std::make_unique<Op>());
    free_.push_back(ops_.back().get());
  }
  Op* const op = free_.back();
  free_.pop_back();
  if (op->missing.size() < reads.bags) op->missing.resize(reads.bags);
  op->next = op->bag = op->place = 0;
  op->bag_first = 0;
  op->gather = GatherBatch{reads, residency_->table(), !state_->may_miss(), op->missing.data()};
  return op;
}

void PoolOps::Recycle(Op* op) {
  constexpr size_t kKeptBagsMax = 64 << 10;
  op->done = nullptr;
  if (op->missing.size() > kKeptBagsMax) op->missing = {};
  op->rows = {};  // the server's memory budget counts it for pulls in flight only
  free_.push_back(op);
}

// False: a window waits for rows.
bool PoolOps::RunWindows(Op* op) {
  while (op->next < op->gather.missing_count) {
    FillWindow(op);
    RowReads window;
    window.ids = op->ids.data();
    window.count = static_cast<uint32_t>(op->ids.size());
    window.type = static_cast<RowType>(residency_->table()->weight_type);
    window.rows = op->rows.data();
    window.flags = op->flags.data();
    if (!source_->Pull(window, [this, op](absl::Status status) { OnWindow(op, status); })) {
      return false;
    }
    TakeWindow(op);
  }
  return true;
}

void PoolOps::OnWindow(Op* op, const absl::Status& status) {
  if (!status.ok()) return End(op, status);
  TakeWindow(op);
  if (RunWindows(op)) End(op, absl::OkStatus());
}

void PoolOps::End(Op* op, const absl::Status& status) {
  TieredStore::Done done = std::move(op->done);
  Recycle(op);
  done(status);
}

// The next ids of the unfinished bags, as many as the bound on memory allows.
void PoolOps::FillWindow(Op* op) {
  const uint32_t row_bytes = residency_->table()->weight_bytes;
  const uint64_t rows_max = std::max<uint64_t>(1, kPoolStageBytes / row_bytes);
  op->ids.clear();
  uint32_t bag = op->bag;
  uint64_t first = op->bag_first;
  uint64_t place = op->place;
  for (uint32_t k = op->next; k < op->gather.missing_count && op->ids.size() < rows_max; ++k) {
    for (; bag < op->missing[k]; ++bag) first += op->gather.bag_lengths[bag];
    const uint64_t left = op->gather.bag_lengths[bag] - place;
    const uint64_t taken = std::min<uint64_t>(left, rows_max - op->ids.size());
    const uint64_t* const from = op->gather.ids + first + place;
    op->ids.insert(op->ids.end(), from, from + taken);
    place = 0;
  }
  op->rows.resize(row_bytes * op->ids.size());
  op->flags.resize(op->ids.size());
  op->sum.resize(residency_->table()->dim);
}

void PoolOps::TakeWindow(Op* op) {
  for (uint32_t at = 0; at < op->ids.size();) at += TakePiece(op, at);
}

// Adds the rows of the window, from row `at` on, that belong to the bag in progress; returns how
// many.
uint32_t PoolOps::TakePiece(Op* op, uint32_t at) {
  const RowReads& reads = op->gather;
  const RowTable* const table = residency_->table();
  for (; op->bag < op->missing[op->next]; ++op->bag) {
    op->bag_first += reads.bag_lengths[op->bag];
  }
  const uint32_t length = reads.bag_lengths[op->bag];
  const uint64_t first = op->bag_first + op->place;
  PoolRowsBatch piece;
  piece.table = table;
  piece.rows = op->rows.data() + uint64_t{table->weight_bytes} * at;
  piece.count = std::min<uint32_t>(length - op->place, static_cast<uint32_t>(op->ids.size()) - at);
  piece.place = op->place;
  piece.weights = reads.weights == nullptr ? nullptr : reads.weights + first;
  piece.pooling = reads.pooling;
  piece.sum = op->sum.data();
  const uint32_t dim = table->dim;
  if (reads.arg_max != nullptr) piece.arg_max = reads.arg_max + 4ull * dim * op->bag;
  state_->kernels.pool_rows(&piece);
  if (reads.flags != nullptr) std::memcpy(reads.flags + first, op->flags.data() + at, piece.count);
  op->place += piece.count;
  if (op->place == length) {
    uint8_t* const out = reads.rows + uint64_t{RowWireBytes(reads.type, dim)} * op->bag;
    state_->kernels.encode_pooled(op->sum.data(), dim, reads.type, out);
    op->place = 0;
    ++op->next;
  }
  return piece.count;
}

}  // namespace hotbed
