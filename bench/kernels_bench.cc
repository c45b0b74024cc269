// The row kernels of each instruction set of this processor, compared with memcpy and the plain
// loops.
//
//   kernels_bench [--benchmark_filter=REGEX] [--benchmark_min_time=SECONDS] [...]
//
// A table of 262,144 rows x 64 on 2 MiB pages, row-wise uniform ids, 512 unique ids per batch, as
// in a message of the client. Names: kernel/type or optimizer/way to the slot/instruction set.
// `bytes_per_second` counts gathered or updated bytes once (weights, and state for the optimizers),
// so that the roofs' figures compare directly. For ratios against a roof in the same run,
// interleaved, see tiers_bench. The head says how rows are fetched; HOTBED_CPU_FETCH=near|far in
// the environment chooses, to find the better way on another processor.
#include <benchmark/benchmark.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/resident_table.h"
#include "bench/roofs/machine.h"
#include "bench/roofs/plain_loops.h"
#include "common/huge_buffer.h"
#include "common/random.h"
#include "server/kernels/cpu_kernels.h"

namespace hotbed::bench {
namespace {

constexpr uint32_t kDim = kPlainDim;
constexpr uint32_t kRows = 1u << 18;
constexpr uint32_t kBatchIds = 512;
constexpr uint32_t kBatches = 256;

const char* NameOf(RowType type) {
  constexpr const char* kNames[] = {"fp32", "fp16", "bf16", "int8"};
  return kNames[static_cast<int>(type)];
}
const char* NameOf(OptimizerKind kind) {
  constexpr const char* kNames[] = {"sgd", "adagrad", "rowwise_adagrad", "adam"};
  return kNames[static_cast<int>(kind)];
}

// Ids 0..kRows-1, unique in each batch: an odd stride through a power of two.
const uint64_t* BatchOfIds(uint64_t n) {
  static const std::vector<uint64_t>* const ids = [] {
    auto* all = new std::vector<uint64_t>;
    Random random(1);
    for (uint32_t b = 0; b < kBatches; ++b) {
      const uint64_t first = random.Uniform(kRows);
      const uint64_t stride = 2 * random.Uniform(kRows / 2) + 1;
      for (uint32_t i = 0; i < kBatchIds; ++i) all->push_back((first + i * stride) % kRows);
    }
    return all;
  }();
  return ids->data() + (n % kBatches) * kBatchIds;
}

class Rows {
 public:
  Rows(const CpuKernelSet& kernels, WeightType type, OptimizerKind optimizer, bool direct)
      : kernels_(kernels), table_(kernels, Params(optimizer), type, kRows, kDim, direct) {}

  RowTable* table() { return table_.table(); }
  uint64_t row_bytes() const { return table_.row_bytes(); }
  void Gather(uint64_t n, RowType type, uint8_t* out) {
    GatherBatch batch;
    batch.table = table();
    batch.ids = BatchOfIds(n);
    batch.count = kBatchIds;
    batch.type = type;
    batch.rows = out;
    batch.missing = scratch_.data();
    kernels_.gather(&batch);
  }
  void Probe(uint64_t n, uint32_t* slots) {
    ProbeBatch batch;
    batch.table = table();
    batch.ids = BatchOfIds(n);
    batch.count = kBatchIds;
    batch.slots = slots;
    batch.missing = scratch_.data();
    kernels_.probe(&batch);
  }
  void Apply(const uint32_t* slots, RowType type, const uint8_t* const* gradients) {
    table_.Apply(slots, kBatchIds, type, gradients);
  }

 private:
  static OptimizerParams Params(OptimizerKind kind) {
    OptimizerParams params;
    params.kind = kind;
    return params;
  }

  const CpuKernelSet& kernels_;
  ResidentTable table_;
  std::vector<uint32_t> scratch_ = std::vector<uint32_t>(kBatchIds);
};

void Count(benchmark::State& state, uint64_t bytes_per_row) {
  state.SetItemsProcessed(state.iterations() * kBatchIds);
  state.SetBytesProcessed(state.iterations() * kBatchIds * static_cast<int64_t>(bytes_per_row));
}

void GatherRun(benchmark::State& state, const CpuKernelSet& kernels, WeightType stored,
               RowType wire, bool direct) {
  Rows rows(kernels, stored, OptimizerKind::kSgd, direct);
  HugeBuffer out = HugeBuffer::Allocate(kBatchIds * 4 * kDim).value();
  uint64_t n = 0;
  for (auto _ : state) {
    rows.Gather(n++, wire, out.data());
    benchmark::ClobberMemory();
  }
  Count(state, RowWireBytes(wire, kDim));
}

// A push in the tiered store: probe, then one optimizer step per row.
void ApplyRun(benchmark::State& state, const CpuKernelSet& kernels, OptimizerKind optimizer,
              RowType gradient, WeightType stored, bool direct) {
  Rows rows(kernels, stored, optimizer, direct);
  const uint32_t gradient_bytes = RowWireBytes(gradient, kDim);
  std::vector<uint8_t> gradients(kBatchIds * gradient_bytes);
  std::vector<const uint8_t*> pointers;
  for (uint32_t i = 0; i < kBatchIds; ++i) {
    uint8_t* const row = gradients.data() + i * gradient_bytes;
    const uint16_t half = gradient == RowType::kFp16 ? 0x1400 : 0x3a80;  // 2^-10 in either format
    const float whole = 1e-3f;
    for (uint32_t k = 0; k < kDim; ++k) {
      if (gradient == RowType::kFp32) {
        std::memcpy(row + 4 * k, &whole, 4);
      } else {
        std::memcpy(row + 2 * k, &half, 2);
      }
    }
    pointers.push_back(row);
  }
  std::vector<uint32_t> slots(kBatchIds);
  uint64_t n = 0;
  for (auto _ : state) {
    rows.Probe(n++, slots.data());
    rows.Apply(slots.data(), gradient, pointers.data());
    benchmark::ClobberMemory();
  }
  Count(state, rows.row_bytes());
}

// Rows are loaded from the spill tier's records and evicted again: the cost of a miss for the
// shard.
void InsertEvictRun(benchmark::State& state, const CpuKernelSet& kernels) {
  Rows rows(kernels, WeightType::kFp32, OptimizerKind::kRowwiseAdagrad, /*direct=*/false);
  std::vector<uint8_t> record(rows.row_bytes());
  const std::vector<const uint8_t*> sources(kBatchIds, record.data());
  std::vector<uint64_t> positions(kBatchIds);
  std::vector<uint64_t> dirty(kBatchIds);
  std::vector<uint32_t> slots(kBatchIds);
  uint64_t next = kRows;  // never seen before
  uint32_t hand = 0;
  for (auto _ : state) {
    EvictBatch evict;
    evict.table = rows.table();
    evict.hand = hand;
    evict.wanted = kBatchIds;
    evict.slots = slots.data();
    evict.dirty_positions = dirty.data();
    kernels.evict(&evict);
    hand = evict.hand;
    for (uint32_t i = 0; i < kBatchIds; ++i) positions[i] = next++;
    InsertBatch insert;
    insert.table = rows.table();
    insert.positions = positions.data();
    insert.slots = slots.data();
    insert.sources = sources.data();
    insert.count = kBatchIds;
    kernels.insert(&insert);
  }
  Count(state, rows.row_bytes());
}

void MemcpyRoof(benchmark::State& state) {
  const uint64_t bytes = uint64_t{kRows} * 4 * kDim;
  HugeBuffer from = HugeBuffer::Allocate(bytes).value();
  HugeBuffer to = HugeBuffer::Allocate(kBatchIds * 4 * kDim).value();
  std::memset(from.data(), 1, bytes);
  uint64_t n = 0;
  for (auto _ : state) {
    std::memcpy(to.data(), from.data() + (n++ * kBatchIds * 4 * kDim) % bytes,
                kBatchIds * 4 * kDim);
    benchmark::ClobberMemory();
  }
  Count(state, 4 * kDim);
}

void PlainGatherRoof(benchmark::State& state) {
  HugeBuffer from = HugeBuffer::Allocate(uint64_t{kRows} * 4 * kDim).value();
  HugeBuffer to = HugeBuffer::Allocate(kBatchIds * 4 * kDim).value();
  std::memset(from.data(), 1, from.size());
  uint64_t n = 0;
  for (auto _ : state) {
    PlainGather(reinterpret_cast<const float*>(from.data()), BatchOfIds(n++), kBatchIds,
                reinterpret_cast<float*>(to.data()));
    benchmark::ClobberMemory();
  }
  Count(state, 4 * kDim);
}

void PlainAdagradRoof(benchmark::State& state) {
  HugeBuffer rows = HugeBuffer::Allocate(uint64_t{kRows} * 4 * kDim).value();
  HugeBuffer sums = HugeBuffer::Allocate(uint64_t{kRows} * 4).value();
  const std::vector<float> gradients(kBatchIds * kDim, 1e-3f);
  std::memset(rows.data(), 0, rows.size());
  std::memset(sums.data(), 0, sums.size());
  uint64_t n = 0;
  for (auto _ : state) {
    PlainRowwiseAdagrad(reinterpret_cast<float*>(rows.data()),
                        reinterpret_cast<float*>(sums.data()), BatchOfIds(n++), kBatchIds,
                        gradients.data(), 1e-3f, 1e-8f);
    benchmark::ClobberMemory();
  }
  Count(state, 4 * kDim + 4);
}

void Register() {
  benchmark::RegisterBenchmark("roof/memcpy", MemcpyRoof);
  benchmark::RegisterBenchmark("roof/plain_gather/fp32", PlainGatherRoof);
  benchmark::RegisterBenchmark("roof/plain_rowwise_adagrad/fp32", PlainAdagradRoof);
  const CpuKernelSets sets = AvailableCpuKernelSets();
  for (int s = 0; s < sets.count; ++s) {
    const CpuKernelSet& kernels = *sets.sets[s];
    for (const bool direct : {true, false}) {
      const std::string tail = absl::StrCat(direct ? "/direct/" : "/indexed/", kernels.name);
      for (RowType wire : {RowType::kFp32, RowType::kFp16, RowType::kBf16, RowType::kInt8}) {
        for (WeightType stored : {WeightType::kFp32, WeightType::kFp16, WeightType::kBf16}) {
          if (!direct && (stored != WeightType::kFp32 || wire != RowType::kFp32)) continue;
          benchmark::RegisterBenchmark(absl::StrCat("gather/", NameOf(static_cast<RowType>(stored)),
                                                    "_as_", NameOf(wire), tail)
                                           .c_str(),
                                       [&kernels, stored, wire, direct](benchmark::State& state) {
                                         GatherRun(state, kernels, stored, wire, direct);
                                       });
        }
      }
      for (OptimizerKind kind : {OptimizerKind::kSgd, OptimizerKind::kAdagrad,
                                 OptimizerKind::kRowwiseAdagrad, OptimizerKind::kAdam}) {
        for (RowType gradient : {RowType::kFp32, RowType::kFp16, RowType::kBf16}) {
          for (WeightType stored : {WeightType::kFp32, WeightType::kFp16, WeightType::kBf16}) {
            if (!direct && (stored != WeightType::kFp32 || gradient != RowType::kFp32)) continue;
            benchmark::RegisterBenchmark(
                absl::StrCat("apply/", NameOf(kind), "_", NameOf(gradient), "_to_",
                             NameOf(static_cast<RowType>(stored)), tail)
                    .c_str(),
                [&kernels, kind, gradient, stored, direct](benchmark::State& state) {
                  ApplyRun(state, kernels, kind, gradient, stored, direct);
                });
          }
        }
      }
    }
    benchmark::RegisterBenchmark(
        absl::StrCat("evict_insert/indexed/", kernels.name).c_str(),
        [&kernels](benchmark::State& state) { InsertEvictRun(state, kernels); });
  }
}

}  // namespace
}  // namespace hotbed::bench

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  const hotbed::bench::MachineNote note;
  benchmark::AddCustomContext("rows are fetched", hotbed::kFetchWay.name);
  hotbed::bench::Register();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
