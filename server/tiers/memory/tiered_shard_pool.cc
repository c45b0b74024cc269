// Pooled reads: bags whose rows are resident in one pass, the others window after window.
//
// A window is a pull of rows as they are stored, so it meets resident rows, rows being written back
// and the spill tier as every pull does, and its size bounds the memory. The pieces of a bag are
// added in order to the sum that its last window left, which gives the bits of one pass.
#include <algorithm>
#include <cstring>
#include <utility>

#include "server/kernels/cpu_kernels.h"
#include "server/tiers/memory/tiered_shard.h"

namespace hotbed {

bool TieredShard::PullPooled(const RowReads& reads, Done done) {
  PoolOp* const op = NewPoolOp(reads);
  op->done = std::move(done);  // a kernel may end on its own; see below for who ends here
  const bool gathered = kernels_->Submit(&op->gather, [this, op] {
    if (AfterPooledGather(op)) EndPooled(op, absl::OkStatus());
  });
  if (!gathered || !AfterPooledGather(op)) return false;
  Recycle(op);  // finished before Pull returns: `done` never runs
  return true;
}

TieredShard::PoolOp* TieredShard::NewPoolOp(const RowReads& reads) {
  if (free_pool_ops_.empty()) {
    pool_ops_.push_back(std::make_unique<PoolOp>());
    free_pool_ops_.push_back(pool_ops_.back().get());
  }
  PoolOp* const op = free_pool_ops_.back();
  free_pool_ops_.pop_back();
  op->reads = reads;
  if (op->missing.size() < reads.bags) op->missing.resize(reads.bags);
  op->next = op->bag = op->place = 0;
  op->bag_first = 0;
  op->gather = GatherPooledBatch();
  op->gather.table = table();
  op->gather.ids = reads.ids;
  op->gather.lengths = reads.bag_lengths;
  op->gather.weights = reads.weights;
  op->gather.bags = reads.bags;
  op->gather.pooling = reads.pooling;
  op->gather.type = reads.type;
  op->gather.absent_is_initial = !may_miss_;
  op->gather.rows = reads.rows;
  op->gather.flags = reads.flags;
  op->gather.arg_max = reads.arg_max;
  op->gather.missing = op->missing.data();
  return op;
}

void TieredShard::Recycle(PoolOp* op) {
  constexpr size_t kKeptBagsMax = 64 << 10;
  op->done = nullptr;
  if (op->missing.size() > kKeptBagsMax) op->missing = {};
  op->rows = {};  // not kept: it is counted for pulls under way only
  free_pool_ops_.push_back(op);
}

// False: rows have to be fetched.
bool TieredShard::AfterPooledGather(PoolOp* op) {
  uint64_t unfinished = 0;  // their ids count as hits or misses when their windows are pulled
  for (uint32_t k = 0; k < op->gather.missing_count; ++k) {
    unfinished += op->reads.bag_lengths[op->missing[k]];
  }
  counters_.hits.fetch_add(op->reads.count - unfinished, std::memory_order_relaxed);
  return PoolWindows(op);
}

bool TieredShard::PoolWindows(PoolOp* op) {
  while (op->next < op->gather.missing_count) {
    FillWindow(op);
    RowReads window;
    window.ids = op->ids.data();
    window.count = static_cast<uint32_t>(op->ids.size());
    window.type = static_cast<RowType>(table()->weight_type);
    window.rows = op->rows.data();
    window.flags = op->flags.data();
    if (!above_->Pull(window, [this, op](absl::Status status) { OnWindow(op, status); }))
      return false;
    TakeWindow(op);
  }
  return true;
}

void TieredShard::OnWindow(PoolOp* op, const absl::Status& status) {
  if (!status.ok()) return EndPooled(op, status);
  TakeWindow(op);
  if (PoolWindows(op)) EndPooled(op, absl::OkStatus());
}

void TieredShard::EndPooled(PoolOp* op, const absl::Status& status) {
  Done done = std::move(op->done);
  Recycle(op);
  done(status);
}

// The next ids of the bags that are left, as many as the bound on memory allows.
void TieredShard::FillWindow(PoolOp* op) {
  const uint32_t row_bytes = table()->weight_bytes;
  const uint64_t rows_max = std::max<uint64_t>(1, kPoolStageBytes / row_bytes);
  op->ids.clear();
  uint32_t bag = op->bag;
  uint64_t first = op->bag_first;
  uint64_t place = op->place;
  for (uint32_t k = op->next; k < op->gather.missing_count && op->ids.size() < rows_max; ++k) {
    for (; bag < op->missing[k]; ++bag) first += op->reads.bag_lengths[bag];
    const uint64_t left = op->reads.bag_lengths[bag] - place;
    const uint64_t taken = std::min<uint64_t>(left, rows_max - op->ids.size());
    const uint64_t* const from = op->reads.ids + first + place;
    op->ids.insert(op->ids.end(), from, from + taken);
    place = 0;
  }
  op->rows.resize(row_bytes * op->ids.size());
  op->flags.resize(op->ids.size());
  op->sum.resize(table()->dim);
}

void TieredShard::TakeWindow(PoolOp* op) {
  for (uint32_t at = 0; at < op->ids.size();) at += TakePiece(op, at);
}

// What the window has of the bag at hand, from its row `at` on; how many rows that were.
uint32_t TieredShard::TakePiece(PoolOp* op, uint32_t at) {
  const RowReads& reads = op->reads;
  for (; op->bag < op->missing[op->next]; ++op->bag) {
    op->bag_first += reads.bag_lengths[op->bag];
  }
  const uint32_t length = reads.bag_lengths[op->bag];
  const uint64_t first = op->bag_first + op->place;
  PoolRowsBatch piece;
  piece.table = table();
  piece.rows = op->rows.data() + uint64_t{table()->weight_bytes} * at;
  piece.count = std::min<uint32_t>(length - op->place, static_cast<uint32_t>(op->ids.size()) - at);
  piece.place = op->place;
  piece.weights = reads.weights == nullptr ? nullptr : reads.weights + first;
  piece.pooling = reads.pooling;
  piece.sum = op->sum.data();
  const uint32_t dim = table()->dim;
  if (reads.arg_max != nullptr) piece.arg_max = reads.arg_max + 4ull * dim * op->bag;
  CpuKernels().pool_rows(&piece);
  if (reads.flags != nullptr) std::memcpy(reads.flags + first, op->flags.data() + at, piece.count);
  op->place += piece.count;
  if (op->place == length) {
    uint8_t* const out = reads.rows + uint64_t{RowWireBytes(reads.type, dim)} * op->bag;
    CpuKernels().encode_pooled(op->sum.data(), dim, reads.type, out);
    op->place = 0;
    ++op->next;
  }
  return piece.count;
}

}  // namespace hotbed
