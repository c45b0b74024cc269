#include "tests/device/ptx/work_arrays.h"

#include <algorithm>
#include <set>

namespace hotbed {
namespace device {
namespace {

// Null is no array.
template <typename T>
void AddArray(const T* array, uint64_t count, PtxMemory* arrays) {
  if (array != nullptr && count > 0) arrays->Add(array, sizeof(T) * count);
}

void AddTable(const Table* table, PtxMemory* arrays) {
  const uint64_t buckets = (uint64_t{table->slots} + kBucketSlots - 1) / kBucketSlots;
  AddArray(table, 1, arrays);
  AddArray(table->weights, uint64_t{table->shape.weight_stride()} * table->slots, arrays);
  AddArray(table->state, uint64_t{table->shape.state_stride()} * table->slots, arrays);
  AddArray(table->buckets, buckets, arrays);
  AddArray(table->positions, table->slots, arrays);
  AddArray(table->hands, buckets, arrays);
}

void AddTables(const Table* tables, const std::set<uint32_t>& numbers, PtxMemory* arrays) {
  for (const uint32_t number : numbers) AddTable(&tables[number], arrays);
}

// The segments and their tables; and, of each, its rows in the batch's row buffer.
void AddSegments(const Table* tables, const Segments& segments, const uint8_t* rows,
                 PtxMemory* arrays) {
  std::set<uint32_t> numbers;
  AddArray(segments.at, segments.count, arrays);
  for (uint32_t s = 0; s < segments.count; ++s) {
    const Segment& segment = segments.at[s];
    const uint32_t limit = s + 1 < segments.count ? segments.at[s + 1].first : segments.ids;
    numbers.insert(segment.table);
    if (rows == nullptr) continue;
    const uint64_t bytes = RowWireBytes(segment.type, tables[segment.table].shape.dim);
    AddArray(rows + segment.rows_at, bytes * (limit - segment.first), arrays);
  }
  AddTables(tables, numbers, arrays);
}

}  // namespace

PtxMemory ArraysOf(const ReadWork& work) {
  PtxMemory arrays;
  const uint64_t ids = work.segments.ids;
  AddSegments(work.tables, work.segments, work.rows, &arrays);
  AddArray(work.ids, ids, &arrays);
  AddArray(work.numbers, ids, &arrays);
  AddArray(work.missing, work.units(), &arrays);
  AddArray(work.flags, ids, &arrays);
  return arrays;
}

PtxMemory ArraysOf(const LeftWork& work) { return ArraysOf(work.read); }

PtxMemory ArraysOf(const PoolWork& work) {
  PtxMemory arrays;
  const uint64_t bags = work.segments.ids, ids = bags > 0 ? work.offsets[bags] : 0;
  AddSegments(work.tables, work.segments, work.rows, &arrays);
  AddArray(work.offsets, bags + 1, &arrays);
  AddArray(work.ids, ids, &arrays);
  AddArray(work.numbers, ids, &arrays);
  AddArray(work.weights, ids, &arrays);
  AddArray(work.arg_max, work.arg_stride * bags, &arrays);
  AddArray(work.incomplete, bags, &arrays);
  return arrays;
}

PtxMemory ArraysOf(const BucketWork& work) {
  PtxMemory arrays;
  const InsertBatch& batch = work.batch;
  AddTables(batch.tables, {batch.table_of, batch.table_of + batch.count}, &arrays);
  AddArray(batch.positions, batch.count, &arrays);
  AddArray(batch.table_of, batch.count, &arrays);
  AddArray(batch.buckets, batch.count, &arrays);
  return arrays;
}

PtxMemory ArraysOf(const InsertWork& work) {
  const InsertBatch& batch = work.batch;
  PtxMemory arrays = ArraysOf(BucketWork{batch});
  AddArray(batch.sorted, batch.count, &arrays);
  AddArray(batch.order, batch.count, &arrays);
  AddArray(batch.numbers, batch.count, &arrays);
  AddArray(batch.victims, batch.count, &arrays);
  return arrays;
}

PtxMemory ArraysOf(const ExchangeWork& work) {
  const InsertBatch& batch = work.batch;
  PtxMemory arrays = ArraysOf(InsertWork{batch});
  AddArray(batch.sources, batch.count, &arrays);
  for (uint32_t k = 0; k < batch.count; ++k) {
    const uint64_t bytes = batch.tables[batch.table_of[k]].shape.stored_bytes();
    if (batch.sources[k] != kNowhere) AddArray(batch.staged + batch.sources[k], bytes, &arrays);
    AddArray(batch.victim_rows + uint64_t{batch.victim_stride} * k, bytes, &arrays);
  }
  return arrays;
}

PtxMemory ArraysOf(const FirstValueWork& work) { return ArraysOf(ExchangeWork{work.batch}); }

PtxMemory ArraysOf(const TakeWork& work) {
  PtxMemory arrays;
  AddTables(work.tables, {work.table_of, work.table_of + work.count}, &arrays);
  AddArray(work.table_of, work.count, &arrays);
  AddArray(work.numbers, work.count, &arrays);
  AddArray(work.positions, work.count, &arrays);
  for (uint32_t k = 0; k < work.count; ++k) {
    AddArray(work.rows + uint64_t{work.row_stride} * k,
             work.tables[work.table_of[k]].shape.stored_bytes(), &arrays);
  }
  return arrays;
}

PtxMemory ArraysOf(const ReleaseWork& work) {
  PtxMemory arrays;
  if (work.table_of != nullptr) {
    AddTables(work.tables, {work.table_of, work.table_of + work.count}, &arrays);
    AddArray(work.table_of, work.count, &arrays);
  } else {
    AddSegments(work.tables, work.segments, nullptr, &arrays);
  }
  AddArray(work.numbers, work.count, &arrays);
  return arrays;
}

PtxMemory ArraysOf(const UpdateBatch& batch) {
  PtxMemory arrays;
  const uint32_t ids = batch.segments.ids;
  AddSegments(batch.tables, batch.segments, batch.gradients, &arrays);
  AddArray(batch.sorted, ids, &arrays);
  AddArray(batch.order, ids, &arrays);
  AddArray(batch.sums, uint64_t{batch.sum_stride} * SumsOf(ids), &arrays);
  return arrays;
}

}  // namespace device
}  // namespace hotbed
