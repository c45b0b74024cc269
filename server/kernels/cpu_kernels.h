// The row kernels of the processor: tables of functions, one per instruction set, of which the best
// is chosen at the first use.
//
// All sets compute the same bits (row_math/isa.h). HOTBED_CPU_ISA=base|avx2|avx512 in the
// environment forces one, and HOTBED_CPU_FETCH=near|far a way to fetch rows, for tests and
// measurements. Functions are stateless; see row_batches.h
// and rank_batch.h.
#ifndef HOTBED_SERVER_KERNELS_CPU_KERNELS_H_
#define HOTBED_SERVER_KERNELS_CPU_KERNELS_H_

#include <cstdint>

#include "row_math/rank_batch.h"
#include "server/kernels/row_batches.h"

namespace hotbed {

// One instruction set's functions.
struct CpuKernelSet {
  const char* name;
  void (*probe)(ProbeBatch*);
  void (*gather)(GatherBatch*);
  void (*gather_pooled)(GatherBatch*);
  void (*apply)(ApplyBatch*);
  void (*insert)(InsertBatch*);
  void (*evict)(EvictBatch*);
  void (*collect)(CollectBatch*);
  void (*reindex)(ReindexBatch*);
  void (*age)(AgeBatch*);
  void (*move)(MoveBatch*);
  // Stored weights to the wire; a row's first value, as stored, with its state unless that is null.
  void (*encode_row)(const RowTable&, const uint8_t* weights, RowType type, uint8_t* out);
  void (*first_value)(const RowTable&, uint64_t position, uint8_t* weights, uint8_t* state);
  void (*pool_rows)(PoolRowsBatch*);
  // The result of pool_rows for a whole bag to the wire (fp32, fp16 or bf16).
  void (*encode_pooled)(const float* sum, uint32_t dim, RowType type, uint8_t* out);
  void (*rank_rows)(RankBatch*);
};

// The sets that this processor can run, best first; the last one is always "base".
struct CpuKernelSets {
  const CpuKernelSet* sets[3];
  int count;
};
CpuKernelSets AvailableCpuKernelSets();

// The set in use: the best, or the one that HOTBED_CPU_ISA names.
const CpuKernelSet& CpuKernels();

// How kernels fetch rows before they use them. Which way is faster depends on the processor, not on
// its instruction sets. Results are the same bits.
struct FetchWay {
  const char* name;
  bool near;                    // to the first-level cache, otherwise to the second
  uint32_t update_lines_ahead;  // of rows to be updated
  uint32_t update_rows_ahead;   // at most
  uint32_t read_rows_ahead;     // at most, of rows to be read
};

// What CPUID says of a processor; empty where there is none.
struct CpuModel {
  char vendor[13];
  uint32_t family;
};

// The way of a processor, or the one that `forced` (may be null) names.
FetchWay ChooseFetchWay(const CpuModel& cpu, const char* forced);

// The way of this process: of its processor, or the one that HOTBED_CPU_FETCH names.
extern const FetchWay kFetchWay;

}  // namespace hotbed

#endif  // HOTBED_SERVER_KERNELS_CPU_KERNELS_H_
