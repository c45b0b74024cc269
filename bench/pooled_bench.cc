// Compares pooled lookups in process with their roof: tables of fp32 rows of 128, all resident,
// bags of 20 uniform ids, against a gather-and-add loop unrolled by hand over plain arrays on 2 MiB
// pages.
//
//   pooled_bench [-o json] [--quick]
//
// --quick: 4 tables instead of 32 (which need 3.3 GB), shorter rounds.
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
#include "server/tiers/api/host.h"
#include "server/tiers/api/tiered_store.h"

namespace hotbed::bench {
namespace {

constexpr uint32_t kDim = kPlainPooledDim;
constexpr uint64_t kRows = 100'000;
constexpr uint32_t kBags = 512;
constexpr uint32_t kBagIds = 20;
constexpr uint32_t kBatches = 16;

// A store of one table, every row written once, and the same values in a plain array.
class PooledTable {
 public:
  PooledTable(TierHost* host, uint32_t id, Random* random) : lengths_(kBags, kBagIds) {
    TableSpec table;
    table.id = id;
    table.name = absl::StrCat("bench-", id);
    table.rows = kRows;
    table.dim = kDim;
    table.optimizer.kind = OptimizerKind::kSgd;
    table.initializer = {InitializerKind::kUniform, -1.0f, 1.0f};
    TierHost::ShardParams params;
    params.table = std::move(table);
    params.shard = {id, 0};
    params.range = {0, kRows, 0, kDim};
    params.executor = &executor_;
    store_ = host->OpenShard(params).value();
    plain_ = HugeBuffer::Allocate(4 * kDim * kRows).value();
    Fill();
    for (uint32_t i = 0; i < kBatches * kBags * kBagIds; ++i) {
      ids_.push_back(random->Uniform(kRows));
    }
  }

  const uint64_t* Batch(uint64_t n) const { return ids_.data() + (n % kBatches) * kBags * kBagIds; }
  void Pull(uint64_t n, RowPooling pooling, float* out) {
    RowReads reads;
    reads.ids = Batch(n);
    reads.count = kBags * kBagIds;
    reads.rows = reinterpret_cast<uint8_t*>(out);
    reads.pooling = pooling;
    reads.bag_lengths = lengths_.data();
    reads.bags = kBags;
    HOTBED_CHECK(store_->Pull(reads, [](absl::Status) {})) << "not all rows are resident";
  }
  void PlainPull(uint64_t n, float* out) const {
    PlainPooledSum(reinterpret_cast<const float*>(plain_.data()), Batch(n), kBags, kBagIds, out);
  }

 private:
  void Fill() {
    constexpr uint32_t kBlock = 1000;
    std::vector<uint64_t> ids(kBlock);
    std::vector<float> zeros(kDim, 0.0f);
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
      reads.rows = plain_.data() + 4 * kDim * first;
      HOTBED_CHECK(store_->Pull(reads, [](absl::Status) {}));
    }
  }

  InlineExecutor executor_;
  std::unique_ptr<TieredStore> store_;
  HugeBuffer plain_;
  std::vector<uint64_t> ids_;
  const std::vector<uint32_t> lengths_;
  Lsn lsn_ = 0;
};

void Run(bool quick, const std::string& output) {
  const uint32_t tables = quick ? 4 : 32;
  std::string dir = (std::filesystem::temp_directory_path() / "hotbed-pooled-XXXXXX").string();
  HOTBED_CHECK(mkdtemp(dir.data()) != nullptr);
  {
    TierOptions options;
    options.spill_dir = dir;
    options.hot_bytes = uint64_t{tables} * kRows * 4 * kDim * 5 / 4 + (64 << 20);
    const std::unique_ptr<TierHost> host = TierHost::Open(options).value();
    Random random(1);
    std::vector<std::unique_ptr<PooledTable>> all;
    for (uint32_t t = 0; t < tables; ++t) {
      all.push_back(std::make_unique<PooledTable>(host.get(), t + 1, &random));
    }
    std::vector<float> ours(kBags * kDim), roof(kBags * kDim);
    all[0]->Pull(0, RowPooling::kSum, ours.data());
    all[0]->PlainPull(0, roof.data());
    HOTBED_CHECK(std::memcmp(ours.data(), roof.data(), 4 * ours.size()) == 0) << "other sums";
    // Many short turns, so that other load on the machine affects both sides of the ratio alike.
    RatioTable table(quick ? 15 : 61, 0.04);
    uint64_t n = 0;
    uint64_t m = 0;
    const auto plain = [&] {
      for (const auto& t : all) t->PlainPull(m, roof.data());
      ++m;
      return static_cast<double>(tables) * kBags;
    };
    for (RowPooling pooling : {RowPooling::kSum, RowPooling::kMax}) {
      const bool sum = pooling == RowPooling::kSum;
      table.Measure(
          {absl::StrCat(sum ? "pooled sums" : "pooled maxima", ", ", tables, " tables of ", kRows,
                        " x ", kDim),
           "gather-and-add by hand", "pooled rows", 0, 0, sum ? 0.9 : 0.0},
          [&] {
            for (const auto& t : all) t->Pull(n, pooling, ours.data());
            ++n;
            return static_cast<double>(tables) * kBags;
          },
          plain);
    }
    table.Print(output);
  }
  std::filesystem::remove_all(dir);
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
