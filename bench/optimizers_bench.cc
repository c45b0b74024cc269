// Compares fused updates of every optimizer with the plain loop over the same memory, and exact
// row-wise Adagrad on skewed ids with one update per lookup.
//
//   optimizers_bench [--benchmark_filter=REGEX] [--benchmark_min_time=SECONDS] [...]
//
// update/OPTIMIZER/DIM: default options, 262,144 rows of fp32 on 2 MiB pages, 512 random rows per
// batch, 262,144 rows per turn; the loop reads, adds to and writes the weights and state of the
// same rows in the same order. `of_loop` is the ratio of the rates, the median over turns in which
// both ran (required: 0.75). update_cached: 32,768 of the rows, repeatedly.
// exact_adagrad/zipf_1.05: 32 tables of 100,000 x 128, 512 bags of 20 ids each; every id of a bag
// has the bag's gradient. Ours: the client's removal of duplicates, then sums and one update per
// row. `of_each` and `of_each_prefetched` are ratios to one update per lookup, without and with
// software prefetch (required: 2.5). Times are the thread's processor time.
#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/ratio_table.h"
#include "bench/resident_table.h"
#include "bench/roofs/plain_loops.h"
#include "client/batch/dedupe.h"
#include "client/rows/row_sums.h"
#include "common/huge_buffer.h"
#include "common/random.h"
#include "common/tables/table_spec.h"
#include "row_math/optimizer.h"
#include "server/kernels/cpu_kernels.h"

namespace hotbed::bench {
namespace {

double ThreadSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double SecondsOf(const std::function<void()>& work) {
  const double start = ThreadSeconds();
  work();
  return ThreadSeconds() - start;
}

ResidentTable MakeTable(OptimizerKind kind, uint32_t rows, uint32_t dim) {
  OptimizerParams optimizer;
  optimizer.kind = kind;
  return ResidentTable(CpuKernels(), optimizer, WeightType::kFp32, rows, dim, /*direct=*/true);
}

constexpr uint32_t kRows = 1u << 18;
constexpr uint32_t kBatchRows = 512;
constexpr uint32_t kBatches = 512;       // per turn: as many rows as the table has
constexpr uint32_t kBatchesCached = 64;  // per turn whose rows stay in a third-level cache

void UpdateRun(benchmark::State& state, OptimizerKind kind, uint32_t dim, uint32_t batches) {
  ResidentTable table = MakeTable(kind, kRows, dim);
  const auto state_floats = static_cast<uint32_t>(table.row_bytes() / 4 - dim);
  Random random(1);
  std::vector<uint32_t> slots;
  for (uint32_t b = 0; b < batches; ++b) {
    const uint64_t first = random.Uniform(kRows);
    const uint64_t stride = 2 * random.Uniform(kRows / 2) + 1;  // through a power of two: unique
    for (uint32_t i = 0; i < kBatchRows; ++i) {
      slots.push_back(static_cast<uint32_t>((first + i * stride) % kRows));
    }
  }
  std::vector<float> gradients(kBatchRows * dim);
  std::vector<const uint8_t*> pointers;
  for (float& g : gradients) g = static_cast<float>(1e-3 * random.Double());
  for (uint32_t i = 0; i < kBatchRows; ++i) {
    pointers.push_back(reinterpret_cast<const uint8_t*>(gradients.data() + i * dim));
  }
  const auto ours = [&] {
    for (uint32_t b = 0; b < batches; ++b) {
      table.Apply(slots.data() + b * kBatchRows, kBatchRows, RowType::kFp32, pointers.data());
    }
  };
  const auto loop = [&] {
    for (uint32_t b = 0; b < batches; ++b) {
      PlainReadModifyWrite(table.weights(), table.state(), dim, state_floats,
                           slots.data() + b * kBatchRows, kBatchRows, gradients.data());
    }
  };
  ours();
  loop();
  std::vector<double> ratios;
  for (auto _ : state) {
    const double seconds = SecondsOf(ours);
    ratios.push_back(SecondsOf(loop) / seconds);
    state.SetIterationTime(seconds);
  }
  state.SetItemsProcessed(state.iterations() * batches * kBatchRows);
  state.SetBytesProcessed(state.items_processed() * static_cast<int64_t>(table.row_bytes()));
  state.counters["of_loop"] = Median(ratios);
}

constexpr uint32_t kTables = 32;
constexpr uint32_t kTableRows = 100000;
constexpr uint32_t kTableDim = 128;
constexpr uint32_t kBags = 512;
constexpr uint32_t kBagIds = 20;
constexpr uint32_t kLookups = kBags * kBagIds;  // of a table

// Ranks by P(rank) ~ rank^-1.05, spread over the table.
std::vector<uint64_t> ZipfIds(uint64_t seed, size_t count) {
  std::vector<double> sums(kTableRows);
  double sum = 0;
  for (uint32_t r = 0; r < kTableRows; ++r) sums[r] = sum += std::pow(r + 1.0, -1.05);
  Random random(seed);
  std::vector<uint64_t> ids(count);
  for (uint64_t& id : ids) {
    const auto rank = std::upper_bound(sums.begin(), sums.end(), random.Double() * sum);
    id = static_cast<uint64_t>(rank - sums.begin()) * 48271 % kTableRows;
  }
  return ids;
}

// One table and step: the client's removal of duplicates and sums, then one update per row.
class ExactPush {
 public:
  void Run(const uint64_t* ids, const uint8_t* const* gradients, ResidentTable* table) {
    const IdsPart part{{ids, kLookups}};
    deduper_.Run(absl::MakeConstSpan(&part, 1), &unique_);
    const auto rows = static_cast<uint32_t>(unique_.unique.size());
    slots_.assign(unique_.unique.begin(), unique_.unique.end());
    Sum(gradients);
    table->Apply(slots_.data(), rows, RowType::kFp32, pointers_.data());
    rows_ = rows;
  }
  uint32_t rows() const { return rows_; }

 private:
  // As client/batch/gradient_sum.cc, from the bags' gradients.
  void Sum(const uint8_t* const* gradients) {
    const size_t rows = unique_.unique.size();
    pointers_.resize(rows);
    if (sums_.size() < rows * kTableDim) sums_.resize(rows * kTableDim);
    const RowSums& row_sums = BestRowSums();
    float* sum = sums_.data();
    for (size_t u = 0; u < rows; ++u) {
      const uint32_t first = unique_.first[u];
      pointers_[u] = gradients[first];
      if (unique_.next[first] == kNoIndex) continue;
      terms_.clear();
      for (uint32_t i = first; i != kNoIndex; i = unique_.next[i]) {
        terms_.push_back(reinterpret_cast<const float*>(gradients[i]));
      }
      row_sums.sum(terms_.data(), nullptr, static_cast<uint32_t>(terms_.size()), kTableDim, sum);
      pointers_[u] = reinterpret_cast<const uint8_t*>(sum);
      sum += kTableDim;
    }
  }

  Deduper deduper_;
  UniqueIds unique_;
  std::vector<float> sums_;
  std::vector<uint32_t> slots_;
  std::vector<const uint8_t*> pointers_;
  std::vector<const float*> terms_;
  uint32_t rows_ = 0;
};

void ExactAdagradRun(benchmark::State& state) {
  std::vector<ResidentTable> tables;
  for (uint32_t t = 0; t < kTables; ++t) {
    tables.push_back(MakeTable(OptimizerKind::kRowwiseAdagrad, kTableRows, kTableDim));
  }
  const std::vector<uint64_t> ids = ZipfIds(1, kTables * kLookups);
  Random random(2);
  std::vector<float> gradients(kTables * kBags * kTableDim);
  for (float& g : gradients) g = static_cast<float>(1e-3 * (random.Double() - 0.5));
  const auto gradients_of = [&](uint32_t t) { return gradients.data() + t * kBags * kTableDim; };
  std::vector<const uint8_t*> pointers;  // of each lookup: its bag's
  for (uint32_t i = 0; i < kTables * kLookups; ++i) {
    pointers.push_back(
        reinterpret_cast<const uint8_t*>(gradients.data() + uint64_t{kTableDim} * (i / kBagIds)));
  }
  ExactPush push;
  const auto ours = [&] {
    for (uint32_t t = 0; t < kTables; ++t) {
      push.Run(ids.data() + t * kLookups, pointers.data() + t * kLookups, &tables[t]);
    }
  };
  const auto each = [&](bool prefetch) {
    for (uint32_t t = 0; t < kTables; ++t) {
      PlainUpdatePerLookup(tables[t].weights(), tables[t].state(), ids.data() + t * kLookups,
                           kLookups, kBagIds, gradients_of(t), 1e-3f, 1e-8f, prefetch);
    }
  };
  ours();
  std::vector<double> plain, prefetched;
  for (auto _ : state) {
    const double seconds = SecondsOf(ours);
    plain.push_back(SecondsOf([&] { each(false); }) / seconds);
    prefetched.push_back(SecondsOf([&] { each(true); }) / seconds);
    state.SetIterationTime(seconds);
  }
  state.SetItemsProcessed(state.iterations() * kTables * kLookups);
  state.counters["of_each"] = Median(plain);
  state.counters["of_each_prefetched"] = Median(prefetched);
  state.counters["rows_of_lookups"] = static_cast<double>(push.rows()) / kLookups;
}

void Register() {
  for (int k = 0; k <= static_cast<int>(kLastOptimizerKind); ++k) {
    const auto kind = static_cast<OptimizerKind>(k);
    if (kind == OptimizerKind::kNone) continue;  // touches nothing
    for (uint32_t dim : {64u, 128u}) {
      for (const bool cached : {false, true}) {
        const std::string name =
            absl::StrCat(cached ? "update_cached/" : "update/", kOptimizerWords[k], "/", dim);
        const uint32_t batches = cached ? kBatchesCached : kBatches;
        benchmark::RegisterBenchmark(name.c_str(), [kind, dim, batches](benchmark::State& state) {
          UpdateRun(state, kind, dim, batches);
        })->UseManualTime();
      }
    }
  }
  benchmark::RegisterBenchmark("exact_adagrad/zipf_1.05", ExactAdagradRun)->UseManualTime();
}

}  // namespace
}  // namespace hotbed::bench

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  hotbed::bench::Register();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
