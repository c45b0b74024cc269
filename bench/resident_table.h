// A table whose rows are all resident, on 2 MiB pages, filled by the kernels themselves.
#ifndef HOTBED_BENCH_RESIDENT_TABLE_H_
#define HOTBED_BENCH_RESIDENT_TABLE_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "common/huge_buffer.h"
#include "common/random.h"
#include "row_math/optimizer.h"
#include "server/kernels/cpu_kernels.h"

namespace hotbed::bench {

class ResidentTable {
 public:
  // `direct`: slot = row. Otherwise rows are found by the index, and their slots are in the order
  // of requests, not of positions.
  ResidentTable(const CpuKernelSet& kernels, const OptimizerParams& optimizer, WeightType type,
                uint32_t rows, uint32_t dim, bool direct)
      : kernels_(&kernels), optimizer_(optimizer) {
    table_.dim = dim;
    table_.weight_type = type;
    table_.optimizer = &optimizer_;
    table_.initializer = {InitializerKind::kUniform, -1.0f, 1.0f};
    table_.weight_bytes = BytesPerWeight(type) * dim;
    table_.weight_stride = table_.weight_bytes;
    table_.state_bytes = StateBytes(optimizer, dim);
    table_.direct = direct;
    table_.slots = rows;
    table_.weights = Memory(uint64_t{table_.weight_stride} * rows);
    table_.state = Memory(uint64_t{table_.state_bytes} * rows);
    table_.bits = Memory(rows);
    if (!direct) {
      table_.bucket_count = rows / 12;
      table_.positions = reinterpret_cast<uint64_t*>(Memory(8ull * rows));
      table_.buckets =
          reinterpret_cast<IndexBucket*>(Memory(sizeof(IndexBucket) * table_.bucket_count));
    }
    std::vector<uint64_t> positions(rows);
    std::vector<uint32_t> slots(rows);
    const std::vector<const uint8_t*> sources(rows, nullptr);
    Random random(2);
    for (uint32_t i = 0; i < rows; ++i) {
      positions[i] = slots[i] = i;
      if (!direct) std::swap(slots[i], slots[random.Uniform(i + 1)]);
    }
    InsertBatch batch;
    batch.table = &table_;
    batch.positions = positions.data();
    batch.slots = slots.data();
    batch.sources = sources.data();
    batch.count = rows;
    kernels.insert(&batch);
  }
  ResidentTable(const ResidentTable&) = delete;  // the kernels' table points to the optimizer here
  ResidentTable& operator=(const ResidentTable&) = delete;

  RowTable* table() { return &table_; }
  float* weights() { return reinterpret_cast<float*>(table_.weights); }
  float* state() { return reinterpret_cast<float*>(table_.state); }
  uint64_t row_bytes() const { return table_.weight_bytes + table_.state_bytes; }

  void Apply(const uint32_t* slots, uint32_t count, RowType type, const uint8_t* const* gradients) {
    ApplyBatch batch;
    batch.table = &table_;
    batch.slots = slots;
    batch.count = count;
    batch.gradient_type = type;
    batch.gradients = gradients;
    batch.scalars = ResolveScalars(optimizer_, 1e-3f, 100);
    kernels_->apply(&batch);
  }

 private:
  uint8_t* Memory(uint64_t bytes) {
    memory_.push_back(HugeBuffer::Allocate(bytes + 64).value());
    return memory_.back().data();
  }

  const CpuKernelSet* kernels_;
  const OptimizerParams optimizer_;
  RowTable table_;
  std::vector<HugeBuffer> memory_;
};

}  // namespace hotbed::bench

#endif  // HOTBED_BENCH_RESIDENT_TABLE_H_
