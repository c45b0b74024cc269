// Compares pooled lookups in process with their roof, over the shapes of FBGEMM's benchmarks: 32
// tables of 100,000 fp32 rows of 64 or 128, all resident; 512 or 10,240 bags of 20 ids or of 1; ids
// uniform or by Zipf(1.05). The roof is a gather-and-add loop unrolled by hand over plain arrays on
// 2 MiB pages; maxima are compared with it too. Rates are lookups per second of the thread's
// processor time.
//
//   pooled_bench [-o json] [--quick]
//
// Takes 3.3 GB. --quick: 4 tables instead of 32, 512 bags, fewer rounds.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/ratio_table.h"
#include "bench/roofs/plain_loops.h"
#include "common/check.h"
#include "common/huge_buffer.h"
#include "common/random.h"
#include "common/zipf.h"
#include "server/kernels/cpu_kernels.h"
#include "server/tiers/api/host.h"
#include "server/tiers/api/tiered_store.h"

namespace hotbed::bench {
namespace {

constexpr uint64_t kRows = 100'000;
constexpr double kZipf = 1.05;
constexpr uint32_t kBags = 10'240;  // per table, of which smaller batches are parts
constexpr uint32_t kBagIds = 20;
constexpr uint32_t kIds = kBags * kBagIds;

// The batches of one measurement: every table has `bags` bags of `length` ids.
struct Shape {
  bool zipf;
  uint32_t length;
  uint32_t bags;
};

// A store of one table, every row written once, and the same values in a plain array.
class PooledTable {
 public:
  PooledTable(TierHost* host, uint32_t id, uint32_t dim, Random* random) : dim_(dim) {
    TableSpec table;
    table.id = id;
    table.name = absl::StrCat("bench-", id);
    table.rows = kRows;
    table.dim = dim;
    table.optimizer.kind = OptimizerKind::kSgd;
    table.initializer = {InitializerKind::kUniform, -1.0f, 1.0f};
    TierHost::ShardParams params;
    params.table = std::move(table);
    params.shard = {id, 0};
    params.range = {0, kRows, 0, dim};
    params.executor = &executor_;
    store_ = host->OpenShard(params).value();
    plain_ = HugeBuffer::Allocate(4 * dim * kRows).value();
    Fill();
    const ZipfSampler zipf(kZipf, kRows);
    for (uint32_t i = 0; i < kIds; ++i) {
      uniform_.push_back(random->Uniform(kRows));
      zipf_.push_back(zipf.Sample(*random) * 48'271 % kRows);  // hot rows all over the table
    }
  }

  void Pull(uint64_t n, const Shape& shape, RowPooling pooling, float* out) {
    RowReads reads;
    reads.ids = Batch(n, shape);
    reads.count = shape.bags * shape.length;
    reads.rows = reinterpret_cast<uint8_t*>(out);
    reads.pooling = pooling;
    lengths_.assign(shape.bags, shape.length);
    reads.bag_lengths = lengths_.data();
    reads.bags = shape.bags;
    HOTBED_CHECK(store_->Pull(reads, [](absl::Status) {})) << "not all rows are resident";
  }
  void PlainPull(uint64_t n, const Shape& shape, float* out) const {
    PlainPooledSum(reinterpret_cast<const float*>(plain_.data()), Batch(n, shape), dim_, shape.bags,
                   shape.length, out);
  }

 private:
  const uint64_t* Batch(uint64_t n, const Shape& shape) const {
    const uint32_t ids = shape.bags * shape.length;
    return (shape.zipf ? zipf_ : uniform_).data() + (n % (kIds / ids)) * ids;
  }
  void Fill() {
    constexpr uint32_t kBlock = 1000;
    std::vector<uint64_t> ids(kBlock);
    std::vector<float> zeros(dim_, 0.0f);
    const std::vector<const uint8_t*> gradients(kBlock,
                                                reinterpret_cast<const uint8_t*>(zeros.data()));
    for (uint64_t first = 0; first < kRows; first += kBlock) {
      for (uint32_t i = 0; i < kBlock; ++i) ids[i] = first + i;
      RowUpdates updates;
      updates.ids = ids.data();
      updates.count = kBlock;
      updates.gradients = gradients.data();
      updates.lsn = ++lsn_;
      HOTBED_CHECK(store_->Apply(updates, [](absl::Status) {}));
      RowReads reads;
      reads.ids = ids.data();
      reads.count = kBlock;
      reads.rows = plain_.data() + 4 * dim_ * first;
      HOTBED_CHECK(store_->Pull(reads, [](absl::Status) {}));
    }
  }

  const uint32_t dim_;
  InlineExecutor executor_;
  std::unique_ptr<TieredStore> store_;
  HugeBuffer plain_;
  std::vector<uint64_t> uniform_;
  std::vector<uint64_t> zipf_;
  std::vector<uint32_t> lengths_;
  Lsn lsn_ = 0;
};

void MeasureShape(const Shape& shape, uint32_t dim,
                  const std::vector<std::unique_ptr<PooledTable>>& all, RatioTable* table) {
  std::vector<float> ours(shape.bags * dim), roof(shape.bags * dim);
  all[0]->Pull(0, shape, RowPooling::kSum, ours.data());
  all[0]->PlainPull(0, shape, roof.data());
  HOTBED_CHECK(std::memcmp(ours.data(), roof.data(), 4 * ours.size()) == 0) << "other sums";
  const double lookups = static_cast<double>(all.size()) * shape.bags * shape.length;
  uint64_t n = 0;
  uint64_t m = 0;
  for (RowPooling pooling : {RowPooling::kSum, RowPooling::kMax}) {
    const bool sum = pooling == RowPooling::kSum;
    table->Measure(
        {absl::StrCat(sum ? "sums, " : "maxima, ", dim, ", ", shape.bags, " bags of ", shape.length,
                      shape.zipf ? ", Zipf" : ", uniform"),
         "gather-and-add by hand", "lookups", 0, 0, sum ? 0.95 : 0.85, RateClock::kThread},
        [&] {
          for (const auto& t : all) t->Pull(n, shape, pooling, ours.data());
          ++n;
          return lookups;
        },
        [&] {
          for (const auto& t : all) t->PlainPull(m, shape, roof.data());
          ++m;
          return lookups;
        });
  }
}

void MeasureDim(uint32_t dim, bool quick, RatioTable* table) {
  const uint32_t tables = quick ? 4 : 32;
  std::string dir = (std::filesystem::temp_directory_path() / "hotbed-pooled-XXXXXX").string();
  HOTBED_CHECK(mkdtemp(dir.data()) != nullptr);
  {
    TierOptions options;
    options.spill_dir = dir;
    options.hot_bytes = uint64_t{tables} * kRows * 4 * dim * 5 / 4 + (64 << 20);
    const std::unique_ptr<TierHost> host = TierHost::Open(options).value();
    Random random(1);
    std::vector<std::unique_ptr<PooledTable>> all;
    for (uint32_t t = 0; t < tables; ++t) {
      all.push_back(std::make_unique<PooledTable>(host.get(), t + 1, dim, &random));
    }
    for (const bool zipf : {false, true}) {
      for (const uint32_t length : {kBagIds, 1u}) {
        for (const uint32_t bags : {512u, kBags}) {
          if (bags == kBags && quick) continue;
          MeasureShape({zipf, length, bags}, dim, all, table);
        }
      }
    }
  }
  std::filesystem::remove_all(dir);
}

void Run(bool quick, const std::string& output) {
  std::fprintf(stderr, "kernels: %s, rows are fetched %s\n", CpuKernels().name, kFetchWay.name);
  // Many short turns, so that other load on the machine affects both sides of the ratio alike.
  RatioTable table(quick ? 9 : 15, 0.04);
  for (const uint32_t dim : {64u, 128u}) MeasureDim(dim, quick, &table);
  table.Print(output);
}

}  // namespace
}  // namespace hotbed::bench

int main(int argc, char** argv) {
  bool quick = false;
  std::string output;
  CLI::App app;
  app.add_option("-o", output);
  app.add_flag("--quick", quick);
  CLI11_PARSE(app, argc, argv);
  hotbed::bench::Run(quick, output);
  return 0;
}
