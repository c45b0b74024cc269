// The addresses of a shard's resident rows, and of their store, for threads that do not own the
// rows and want to bring them into the cache before their turn on the shard's executor comes; and
// for the executor, how to read rows that are all in host memory without their store.
//
// The executor sets it and any thread reads it, without order between its values. Old or mixed
// values only give an address that is prefetched in vain, since the memory is never dereferenced.
// Rows are covered that are in host memory and whose address follows from their id (direct hot
// tiers); of other rows it fetches nothing.
#ifndef HOTBED_SERVER_TIERS_API_FETCH_HINT_H_
#define HOTBED_SERVER_TIERS_API_FETCH_HINT_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "common/fetch_lines.h"
#include "row_math/isa.h"
#include "row_math/types.h"
#include "server/kernels/row_batches.h"
#include "server/kernels/row_table.h"

namespace hotbed {

class FetchHint {
 public:
  explicit FetchHint(uint32_t dim = 0) : dim_(static_cast<uint16_t>(dim)) {
    static_assert(kDimLimit <= 0xffff);
  }
  // Elements of a row. Here because it is wanted wherever the rest is.
  uint32_t dim() const { return dim_; }

  // The most that one call fetches: a quarter of a second-level cache of 256 KiB, the smallest in
  // use.
  static constexpr uint64_t kBytesMax = 64ull << 10;
  static constexpr uint64_t kLineBytes = 64;

  // --- the executor: reads of resident rows

  using Gather = void (*)(GatherBatch*);
  // Reads may be answered from `table` by `gather`, as long as no row is missing; until CloseRows.
  void OpenRows(const RowTable* table, Gather gather, bool absent_is_initial) {
    table_.store(table, std::memory_order_relaxed);
    gather_ = gather;
    absent_is_initial_ = absent_is_initial;
  }
  // As GatherBatch::absent_is_initial.
  void SetAbsentIsInitial(bool initial) { absent_is_initial_ = initial; }
  void CloseRows() { table_.store(nullptr, std::memory_order_relaxed); }
  bool MayRead() const { return table_.load(std::memory_order_relaxed) != nullptr; }
  // The position of an id is Mix64 of it.
  bool hashed() const { return table_.load(std::memory_order_relaxed)->hashed; }
  // False: some of the rows have to be read by the store. `missing` has space for the number of
  // each id.
  bool Read(const RowReads& reads, uint32_t* missing) {
    GatherBatch gather{reads, table_.load(std::memory_order_relaxed), absent_is_initial_, missing};
    gather_(&gather);
    if (gather.missing_count != 0) return false;
    rows_read_.store(rows_read_.load(std::memory_order_relaxed) + reads.count,
                     std::memory_order_relaxed);
    return true;
  }
  // By Read; any thread.
  uint64_t rows_read() const { return rows_read_.load(std::memory_order_relaxed); }
  // Prefetches what Read needs beside the rows; any thread.
  void FetchTable() const {
    const bool direct = rows_.load(std::memory_order_relaxed) != 0;
    FetchLines(table_.load(std::memory_order_relaxed), kLineBytes * (direct ? 1 : 2));
  }

  // --- addresses

  // Sets the table from now on; its memory may be freed after the next Set or Clear.
  void Set(const RowTable& table) {
    rows_.store(0, std::memory_order_relaxed);
    if (!table.direct || table.hashed) return;
    weights_.store(reinterpret_cast<uintptr_t>(table.weights), std::memory_order_relaxed);
    bits_.store(reinterpret_cast<uintptr_t>(table.bits), std::memory_order_relaxed);
    state_.store(reinterpret_cast<uintptr_t>(table.state), std::memory_order_relaxed);
    first_.store(table.first_position, std::memory_order_relaxed);
    weight_stride_.store(table.weight_stride, std::memory_order_relaxed);
    state_stride_.store(table.state_bytes, std::memory_order_relaxed);
    rows_.store(table.slots, std::memory_order_relaxed);
  }
  void Clear() { rows_.store(0, std::memory_order_relaxed); }

  // The store, whose first line an update touches; null: nothing is known. Its memory may be freed
  // after the next call.
  void SetStore(const void* store) { store_.store(store, std::memory_order_relaxed); }
  const void* store() const { return store_.load(std::memory_order_relaxed); }
  // Prefetches what an update needs beside the rows; any thread.
  void FetchForUpdate() const {
    FetchLines(store(), kLineBytes);
    FetchLines(table_.load(std::memory_order_relaxed), RowTable::kUpdateBytes);
  }

  // Prefetches the first of these rows, up to kBytesMax, into the second-level cache; with their
  // optimizer state and their bits if they will be updated. Any ids are allowed.
  void Fetch(const uint64_t* ids, uint32_t count, bool with_state) const {
    ForEachLine(ids, count, with_state, [](uintptr_t line) {
      __builtin_prefetch(reinterpret_cast<const void*>(line), 0, 2);
    });
  }

  // Calls take(address) for a byte of each cache line that Fetch prefetches.
  template <typename Take>
  void ForEachLine(const uint64_t* ids, uint32_t count, bool with_state, Take take) const {
    const uint64_t rows = rows_.load(std::memory_order_relaxed);
    if (rows == 0) return;
    const uintptr_t weights = weights_.load(std::memory_order_relaxed);
    const uintptr_t state = state_.load(std::memory_order_relaxed);
    const uintptr_t bits = bits_.load(std::memory_order_relaxed);
    const uint64_t first = first_.load(std::memory_order_relaxed);
    const uint64_t weight_bytes = weight_stride_.load(std::memory_order_relaxed);
    const uint64_t state_bytes = with_state ? state_stride_.load(std::memory_order_relaxed) : 0;
    const uint64_t row_bytes = std::max<uint64_t>(weight_bytes + state_bytes, 1);
    const uint64_t limit = std::min<uint64_t>(count, kBytesMax / row_bytes);
    for (uint64_t i = 0; i < limit; ++i) {
      const uint64_t row = ids[i] - first;
      if (row >= rows) continue;
      Lines(weights + weight_bytes * row, weight_bytes, take);
      Lines(state + state_bytes * row, state_bytes, take);
      if (with_state) take(bits + row);
    }
  }

 private:
  template <typename Take>
  static void Lines(uintptr_t from, uint64_t bytes, Take take) {
    const uintptr_t end = from + bytes;
    for (uintptr_t at = from; at < end; at = at / kLineBytes * kLineBytes + kLineBytes) take(at);
  }

  // As small as can be: Shard::kPullStateBytes.
  std::atomic<const RowTable*> table_{nullptr};
  Gather gather_ = nullptr;
  std::atomic<uint64_t> rows_read_{0};
  std::atomic<uint32_t> rows_{0};  // 0: nothing is known
  std::atomic<uint32_t> weight_stride_{0};
  std::atomic<uint32_t> state_stride_{0};
  const uint16_t dim_;
  bool absent_is_initial_ = false;
  std::atomic<uintptr_t> weights_{0};
  std::atomic<uint64_t> first_{0};
  std::atomic<uintptr_t> state_{0};
  std::atomic<uintptr_t> bits_{0};
  std::atomic<const void*> store_{nullptr};
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_TIERS_API_FETCH_HINT_H_
