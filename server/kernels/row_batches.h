// Batch operations on the hot rows of one shard: the arguments of the kernels (cpu_kernels.h).
//
// A kernel is a plain function on one batch. It runs on the caller's thread, allocates nothing and
// cannot fail: the caller provides all memory. A table and the batches on it are confined to the
// shard's executor.
#ifndef HOTBED_SERVER_KERNELS_ROW_BATCHES_H_
#define HOTBED_SERVER_KERNELS_ROW_BATCHES_H_

#include <cstdint>

#include "row_math/types.h"
#include "server/kernels/row_table.h"

namespace hotbed {

class AnswerMemory;

// ids -> slots; kNoSlot for rows that are not resident. Counts a visit of each row found.
struct ProbeBatch {
  const RowTable* table = nullptr;
  const uint64_t* ids = nullptr;
  uint32_t count = 0;
  uint32_t* slots = nullptr;    // count
  uint32_t* missing = nullptr;  // count: numbers of the ids without a slot, in order
  uint32_t missing_count = 0;   // out
};

// A read of rows of one shard, of the columns of its range. Ids are the caller's (not positions)
// and lie in the range.
struct RowReads {
  const uint64_t* ids = nullptr;
  uint32_t count = 0;
  RowType type = RowType::kFp32;
  // One row per id, or per bag, of RowWireBytes(type, dim) bytes each; unaligned.
  uint8_t* rows = nullptr;
  uint8_t* flags = nullptr;        // count bytes or null; bit 0 = the row exists
  AnswerMemory* answer = nullptr;  // the memory that holds `rows`; null: memory of any kind
  // Not pooled: read only ids[picks[k]], k < count; rows and flags keep the places they have in a
  // read of all ids. Null: read all.
  const uint32_t* picks = nullptr;
  // Pooled (row_math/pooling.h): the ids form `bags` consecutive bags.
  RowPooling pooling = RowPooling::kNone;
  const uint32_t* bag_lengths = nullptr;
  uint32_t bags = 0;
  const float* weights = nullptr;  // kSum: one per id, or null
  // kMax: dim u32 per bag, unaligned: the id's number in its bag, 0xffffffff if empty; or null.
  uint8_t* arg_max = nullptr;
};

// ids -> rows in the wire type, in one pass. Lists rows that are not resident in `missing` and
// writes nothing for them, except rows that exist nowhere: they get their first value and flag 0.
//
// Pooled: the rows of each bag become one, in the order of the ids, in fp32 and then written as
// `type` (fp32, fp16 or bf16); an empty bag is zeros. Rows that exist nowhere count with their
// first value. A bag with rows that must come from the spill tier is listed in `missing`, and its
// `rows`, `flags` and `arg_max` hold no values: PoolRowsBatch computes them, to the same bits.
struct GatherBatch : RowReads {
  const RowTable* table = nullptr;
  bool absent_is_initial = false;  // a row that is not resident exists nowhere
  // `count` numbers of ids, which may be the same memory as picks; or `bags` numbers of bags.
  uint32_t* missing = nullptr;
  uint32_t missing_count = 0;  // out
};

// Adds a piece of one bag, whose rows are contiguous as they are stored.
struct PoolRowsBatch {
  const RowTable* table = nullptr;
  const uint8_t* rows = nullptr;  // count * weight_bytes
  uint32_t count = 0;
  uint32_t place = 0;              // number of the first row in its bag; 0 starts the bag
  const float* weights = nullptr;  // as in RowReads, for these rows
  RowPooling pooling = RowPooling::kSum;
  float* sum = nullptr;        // dim: sum of the pieces so far
  uint8_t* arg_max = nullptr;  // dim u32, or null
};

struct GradientRows {
  uint32_t count = 0;
  RowType gradient_type = RowType::kFp32;     // fp32, fp16 or bf16
  const uint8_t* const* gradients = nullptr;  // one pointer per row, to dim unaligned elements
  UpdateScalars scalars;
  bool assign = false;  // gradients are the rows' new weights; optimizer state starts over
  bool shows = false;   // behind each gradient: f32 shows, f32 clicks (row_math/touches.h)
};

// One optimizer step on each of `count` slots; marks them dirty.
struct ApplyBatch : GradientRows {
  RowTable* table = nullptr;
  const uint32_t* slots = nullptr;  // no slot twice; kNoSlot is skipped
  const uint32_t* picks =
      nullptr;           // gradient of slots[k] is gradients[picks[k]]; null: gradients[k]
  uint32_t dirtied = 0;  // out: rows that were clean before
  uint32_t held = 0;     // out: rows that are not admitted, whose gradients were only counted
};

// Fills free slots. A row's value is weight_bytes, then state_bytes at sources[k], or its first
// value if that is null.
struct InsertBatch {
  RowTable* table = nullptr;
  const uint64_t* positions = nullptr;  // rows that are not resident
  const uint32_t* slots = nullptr;      // free slots below table->slots
  const uint8_t* const* sources = nullptr;
  uint32_t count = 0;
  bool dirty = false;  // false: the spill tier has the same values
};

// Takes rows out. `chosen`: by CLOCK, until `wanted` rows are out or none is left; with
// `unvisited_only` rows that have visits stay as they are, and one round is enough. Otherwise:
// every row of [slot_first, slot_limit). Values of dirty rows are written to `out`: weights, then
// state.
struct EvictBatch {
  RowTable* table = nullptr;
  bool chosen = true;
  bool unvisited_only = false;
  uint32_t hand = 0;  // in and out
  uint32_t wanted = 0;
  uint32_t slot_first = 0;
  uint32_t slot_limit = 0;
  uint32_t* slots = nullptr;            // room for as many rows as may leave
  uint32_t count = 0;                   // out: rows taken out
  uint64_t* dirty_positions = nullptr;  // the same room
  uint8_t* out = nullptr;               // row k at k * out_stride
  uint32_t out_stride = 0;
  uint32_t dirty_count = 0;  // out
};

// Copies out at most `wanted` dirty rows of [slot_first, table->slots) and marks them clean.
struct CollectBatch {
  RowTable* table = nullptr;
  uint32_t slot_first = 0;  // in and out: where the next call continues
  uint32_t wanted = 0;
  uint64_t* positions = nullptr;
  uint8_t* out = nullptr;
  uint32_t out_stride = 0;
  uint32_t count = 0;  // out
};

// Fills an empty index (table->buckets, zeroed) from the slots.
struct ReindexBatch {
  RowTable* table = nullptr;
};

// Takes one visit from each row of [slot_first, slot_limit) that has some, and counts those that
// have none. Slots without a row are not written.
struct AgeBatch {
  RowTable* table = nullptr;
  uint32_t slot_first = 0;
  uint32_t slot_limit = 0;
  uint32_t unvisited = 0;  // out
};

// Moves rows of an indexed table to free slots, with their bits.
struct MoveBatch {
  RowTable* table = nullptr;
  uint32_t count = 0;
  const uint32_t* from = nullptr;  // count slots with rows
  const uint32_t* to = nullptr;    // count slots without
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_KERNELS_ROW_BATCHES_H_
