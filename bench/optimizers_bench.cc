// Compares fused updates of every optimizer with the plain loop over the same memory, and exact
// row-wise Adagrad with one update per lookup.
//
//   optimizers_bench [--quick] [--benchmark_filter=REGEX] [--benchmark_min_time=SECONDS] [...]
//
// update/OPTIMIZER/DIM: default options, 262,144 rows of fp32 on 2 MiB pages, 512 random rows per
// batch, 262,144 rows per turn; the loop reads, adds to and writes the weights and state of the
// same rows in the same order. `of_loop` is the ratio of the rates, the median over turns in which
// both ran; `bar` is what it must be at least: 0.9 for adam and for rowwise-adagrad of 128 floats,
// 0.95 for sgd of 128 floats, 0.75 for all others. update_cached: 32,768 of the rows, repeatedly.
// update_zipf: the rows of a batch are drawn by Zipf(1.05), each once.
// exact_adagrad/DIM/BAGSxIDS/ids: 32 tables of 100,000 rows; every id of a bag has the bag's
// gradient. Ours: the client's removal of duplicates, then sums and one update per row. `of_each`
// and `of_each_prefetched` are ratios to one update per lookup, without and with software prefetch
// (`bar`, for 128/512x20/zipf: 2.5). Times are the thread's processor time. --quick: 4 tables,
// 512 bags, few turns.
#include <benchmark/benchmark.h>
#include <time.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "bench/ratio_table.h"
#include "bench/resident_table.h"
#include "bench/roofs/machine.h"
#include "bench/roofs/plain_loops.h"
#include "client/batch/dedupe.h"
#include "client/rows/row_sums.h"
#include "common/huge_buffer.h"
#include "common/random.h"
#include "common/tables/table_spec.h"
#include "common/zipf.h"
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

constexpr double kZipf = 1.05;
constexpr uint32_t kRows = 1u << 18;
constexpr uint32_t kBatchRows = 512;
constexpr uint32_t kBatches = 512;       // per turn: as many rows as the table has
constexpr uint32_t kBatchesCached = 64;  // per turn whose rows stay in a third-level cache

enum class Draw { kUniform, kCached, kZipf };

std::vector<uint32_t> UpdateSlots(Draw draw) {
  Random random(1);
  std::vector<uint32_t> slots;
  if (draw == Draw::kZipf) {
    const ZipfSampler zipf(kZipf, kRows);
    for (uint32_t b = 0; b < kBatches; ++b) {
      absl::flat_hash_set<uint32_t> drawn;
      while (drawn.size() < kBatchRows) {
        const auto slot = static_cast<uint32_t>(zipf.Sample(random) * 48'271 % kRows);
        if (drawn.insert(slot).second) slots.push_back(slot);
      }
    }
    return slots;
  }
  for (uint32_t b = 0; b < (draw == Draw::kCached ? kBatchesCached : kBatches); ++b) {
    const uint64_t first = random.Uniform(kRows);
    const uint64_t stride = 2 * random.Uniform(kRows / 2) + 1;  // through a power of two: unique
    for (uint32_t i = 0; i < kBatchRows; ++i) {
      slots.push_back(static_cast<uint32_t>((first + i * stride) % kRows));
    }
  }
  return slots;
}

double UpdateBar(OptimizerKind kind, uint32_t dim) {
  if (kind == OptimizerKind::kAdam) return 0.9;
  if (kind == OptimizerKind::kRowwiseAdagrad && dim == 128) return 0.9;
  if (kind == OptimizerKind::kSgd && dim == 128) return 0.95;
  return 0.75;
}

void UpdateRun(benchmark::State& state, OptimizerKind kind, uint32_t dim, Draw draw) {
  ResidentTable table = MakeTable(kind, kRows, dim);
  const auto state_floats = static_cast<uint32_t>(table.row_bytes() / 4 - dim);
  const std::vector<uint32_t> slots = UpdateSlots(draw);
  const auto batches = static_cast<uint32_t>(slots.size() / kBatchRows);
  Random random(1);
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
  state.counters["bar"] = UpdateBar(kind, dim);
}

constexpr uint32_t kTableRows = 100'000;

// Every table has `bags` bags of `length` ids.
struct Shape {
  uint32_t tables;
  uint32_t dim;
  uint32_t bags;
  uint32_t length;
  bool zipf;
  uint32_t lookups() const { return bags * length; }  // of a table
};

std::vector<uint64_t> DrawIds(const Shape& shape) {
  Random random(1);
  const ZipfSampler zipf(kZipf, kTableRows);
  std::vector<uint64_t> ids(shape.tables * shape.lookups());
  for (uint64_t& id : ids) {
    id = shape.zipf ? zipf.Sample(random) * 48'271 % kTableRows : random.Uniform(kTableRows);
  }
  return ids;
}

// One table and step: the client's removal of duplicates and sums, then one update per row.
class ExactPush {
 public:
  explicit ExactPush(const Shape& shape) : shape_(shape) {}
  void Run(const uint64_t* ids, const uint8_t* const* gradients, ResidentTable* table) {
    const IdsPart part{{ids, shape_.lookups()}};
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
    if (sums_.size() < rows * shape_.dim) sums_.resize(rows * shape_.dim);
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
      row_sums.sum(terms_.data(), nullptr, static_cast<uint32_t>(terms_.size()), shape_.dim, sum);
      pointers_[u] = reinterpret_cast<const uint8_t*>(sum);
      sum += shape_.dim;
    }
  }

  const Shape shape_;
  Deduper deduper_;
  UniqueIds unique_;
  std::vector<float> sums_;
  std::vector<uint32_t> slots_;
  std::vector<const uint8_t*> pointers_;
  std::vector<const float*> terms_;
  uint32_t rows_ = 0;
};

void ExactAdagradRun(benchmark::State& state, const Shape& shape) {
  const uint32_t dim = shape.dim;
  const uint32_t lookups = shape.lookups();
  std::vector<std::unique_ptr<ResidentTable>> tables;
  for (uint32_t t = 0; t < shape.tables; ++t) {
    tables.emplace_back(
        new ResidentTable(MakeTable(OptimizerKind::kRowwiseAdagrad, kTableRows, dim)));
  }
  const std::vector<uint64_t> ids = DrawIds(shape);
  Random random(2);
  std::vector<float> gradients(shape.tables * shape.bags * dim);
  for (float& g : gradients) g = static_cast<float>(1e-3 * (random.Double() - 0.5));
  std::vector<const uint8_t*> pointers;  // of each lookup: its bag's
  for (uint32_t i = 0; i < shape.tables * lookups; ++i) {
    pointers.push_back(
        reinterpret_cast<const uint8_t*>(gradients.data() + uint64_t{dim} * (i / shape.length)));
  }
  ExactPush push(shape);
  const auto ours = [&] {
    for (uint32_t t = 0; t < shape.tables; ++t) {
      push.Run(ids.data() + t * lookups, pointers.data() + t * lookups, tables[t].get());
    }
  };
  const auto each = [&](bool prefetch) {
    for (uint32_t t = 0; t < shape.tables; ++t) {
      PlainUpdatePerLookup(tables[t]->weights(), tables[t]->state(), dim, ids.data() + t * lookups,
                           lookups, shape.length, gradients.data() + t * shape.bags * dim, 1e-3f,
                           1e-8f, prefetch);
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
  state.SetItemsProcessed(state.iterations() * shape.tables * lookups);
  state.counters["of_each"] = Median(plain);
  state.counters["of_each_prefetched"] = Median(prefetched);
  if (dim == 128 && shape.bags == 512 && shape.length == 20 && shape.zipf) {
    state.counters["bar"] = 2.5;
  }
  state.counters["rows_of_lookups"] = static_cast<double>(push.rows()) / lookups;
}

void RegisterUpdates() {
  constexpr const char* kNames[] = {"update/", "update_cached/", "update_zipf/"};
  for (int k = 0; k <= static_cast<int>(kLastOptimizerKind); ++k) {
    const auto kind = static_cast<OptimizerKind>(k);
    if (kind == OptimizerKind::kNone) continue;  // touches nothing
    for (uint32_t dim : {64u, 128u}) {
      for (const Draw draw : {Draw::kUniform, Draw::kCached, Draw::kZipf}) {
        const std::string name =
            absl::StrCat(kNames[static_cast<int>(draw)], kOptimizerWords[k], "/", dim);
        benchmark::RegisterBenchmark(name.c_str(), [kind, dim, draw](benchmark::State& state) {
          UpdateRun(state, kind, dim, draw);
        })->UseManualTime();
      }
    }
  }
}

void RegisterExact(bool quick) {
  for (uint32_t dim : {64u, 128u}) {
    for (uint32_t bags : {512u, 10'240u}) {
      if (quick && bags > 512) continue;
      for (uint32_t length : {20u, 1u}) {
        for (bool zipf : {true, false}) {
          const Shape shape{quick ? 4u : 32u, dim, bags, length, zipf};
          const std::string name = absl::StrCat("exact_adagrad/", dim, "/", bags, "x", length,
                                                zipf ? "/zipf" : "/uniform");
          benchmark::RegisterBenchmark(name.c_str(), [shape](benchmark::State& state) {
            ExactAdagradRun(state, shape);
          })->UseManualTime();
        }
      }
    }
  }
}

}  // namespace
}  // namespace hotbed::bench

int main(int argc, char** argv) {
  std::vector<char*> args(argv, argv + argc);
  const bool quick = std::erase_if(args, [](const char* a) { return !std::strcmp(a, "--quick"); });
  char few[] = "--benchmark_min_time=0.01";
  if (quick) args.insert(args.begin() + 1, few);
  int count = static_cast<int>(args.size());
  benchmark::Initialize(&count, args.data());
  if (benchmark::ReportUnrecognizedArguments(count, args.data())) return 2;
  const hotbed::bench::MachineNote note;
  benchmark::AddCustomContext("kernels", hotbed::CpuKernels().name);
  benchmark::AddCustomContext("rows are fetched", hotbed::kFetchWay.name);
  hotbed::bench::RegisterUpdates();
  hotbed::bench::RegisterExact(quick);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
