// The tiered store against its roofs, in one process: gather and row-wise Adagrad of resident rows
// against plain loops on 2 MiB pages; pulls of a table of four times the hot budget against
// RocksDB's MultiGet with a block cache of that size.
//
//   tiers_bench [-o json] [--quick] [--resident | --spilled | --zipf | --uniform]
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "bench/ratio_table.h"
#include "bench/roofs/plain_loops.h"
#include "common/check.h"
#include "common/files/byte_order.h"
#include "common/huge_buffer.h"
#include "common/random.h"
#include "common/zipf.h"
#include "kv/kv_store.h"
#include "server/tiers/api/host.h"
#include "server/tiers/api/tiered_store.h"

namespace hotbed::bench {
namespace {

constexpr uint32_t kDim = kPlainDim;
constexpr uint32_t kBatchIds = 512;
constexpr uint32_t kInFlight = 8;

// The shard's executor is the thread that runs the measurement.
class QueueExecutor : public Executor {
 public:
  void Run(absl::AnyInvocable<void()> task) override {
    absl::MutexLock lock(&mu_);
    tasks_.push_back(std::move(task));
  }
  void WaitAndRunOne() {
    {
      absl::MutexLock lock(&mu_);
      mu_.Await(absl::Condition(this, &QueueExecutor::HasTask));
    }
    RunOne();  // nobody else takes tasks
  }
  bool RunOne() {
    absl::AnyInvocable<void()> task;
    {
      absl::MutexLock lock(&mu_);
      if (tasks_.empty()) return false;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
    return true;
  }

 private:
  bool HasTask() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return !tasks_.empty(); }

  absl::Mutex mu_;
  std::deque<absl::AnyInvocable<void()>> tasks_ ABSL_GUARDED_BY(mu_);
};

// A store of one shard of `rows` rows x 64 fp32 with row-wise Adagrad, every row written once.
class BenchStore {
 public:
  BenchStore(const std::string& dir, uint64_t rows, uint64_t hot_bytes, uint64_t block_cache_bytes)
      : rows_(rows) {
    TierOptions options;
    options.spill_dir = dir;
    options.hot_bytes = hot_bytes;
    options.block_cache_bytes = block_cache_bytes;
    host_ = TierHost::Open(options).value();
    TableSpec table;
    table.id = 1;
    table.name = "bench";
    table.rows = rows;
    table.dim = kDim;
    table.initializer = {InitializerKind::kUniform, -1.0f, 1.0f};
    TierHost::ShardParams params;
    params.table = std::move(table);
    params.shard = {1, 0};
    params.range = {0, rows, 0, kDim};
    params.executor = &executor_;
    store_ = host_->OpenShard(params).value();
    Fill();
  }

  void Apply(const uint64_t* ids, uint32_t count, const uint8_t* const* gradients) {
    RowUpdates updates;
    updates.ids = ids;
    updates.count = count;
    updates.gradients = gradients;
    updates.scalars.learning_rate = 0.01f;
    updates.lsn = ++lsn_;
    bool finished = false;
    finished = store_->Apply(updates, [&](absl::Status status) {
      HOTBED_CHECK(status.ok()) << status;
      finished = true;
    });
    while (!finished) executor_.WaitAndRunOne();
  }

  // Several pulls in flight, as on streams; answers go to slices of `out` in turn.
  void Pull(const uint64_t* ids, uint32_t count, uint8_t* out) {
    while (in_flight_ >= kInFlight) executor_.WaitAndRunOne();
    while (executor_.RunOne()) {
    }
    RowReads reads;
    reads.ids = ids;
    reads.count = count;
    reads.rows = out;
    ++in_flight_;
    const bool finished = store_->Pull(reads, [this](absl::Status status) {
      HOTBED_CHECK(status.ok()) << status;
      --in_flight_;
    });
    if (finished) --in_flight_;
  }
  void Drain() {
    while (in_flight_ > 0) executor_.WaitAndRunOne();
  }
  // All rows in SSTs, as after hours of running.
  void Settle() {
    bool finished = false;
    store_->WriteBackAll(lsn_, "", [&](absl::Status status) {
      HOTBED_CHECK(status.ok()) << status;
      finished = true;
    });
    while (!finished) executor_.WaitAndRunOne();
    HOTBED_CHECK(host_->Flush().ok());
  }
  StoreStats Stats() const { return store_->Stats(); }

 private:
  void Fill() {
    std::vector<float> gradient(kDim, 0.01f);
    std::vector<const uint8_t*> gradients(kBatchIds,
                                          reinterpret_cast<const uint8_t*>(gradient.data()));
    std::vector<uint64_t> ids(kBatchIds);
    for (uint64_t first = 0; first < rows_; first += kBatchIds) {
      const uint32_t count = static_cast<uint32_t>(std::min<uint64_t>(kBatchIds, rows_ - first));
      for (uint32_t i = 0; i < count; ++i) ids[i] = first + i;
      Apply(ids.data(), count, gradients.data());
    }
  }

  const uint64_t rows_;
  QueueExecutor executor_;
  std::unique_ptr<TierHost> host_;
  std::unique_ptr<TieredStore> store_;
  Lsn lsn_ = 0;
  uint32_t in_flight_ = 0;
};

// Unique ids per batch, as the client sends them.
std::vector<uint64_t> UniqueBatches(uint32_t batches, const std::function<uint64_t()>& draw) {
  std::vector<uint64_t> ids;
  std::vector<uint64_t> batch;
  for (uint32_t b = 0; b < batches; ++b) {
    batch.clear();
    while (batch.size() < kBatchIds) {
      for (uint32_t i = 0; i < kBatchIds; ++i) batch.push_back(draw());
      std::sort(batch.begin(), batch.end());
      batch.erase(std::unique(batch.begin(), batch.end()), batch.end());
    }
    Random shuffle(b);
    std::shuffle(batch.begin(), batch.end(), shuffle);
    ids.insert(ids.end(), batch.begin(), batch.begin() + kBatchIds);
  }
  return ids;
}

// RocksDB by itself: the same rows as values, read by MultiGet on as many threads as the store uses
// for I/O.
class RocksRoof {
 public:
  RocksRoof(const std::string& dir, uint64_t rows, uint64_t cache_bytes) {
    KvOptions options;
    options.dir = dir;
    options.wal = false;
    options.block_cache_bytes = cache_bytes;
    store_ = KvStore::Open(options).value();
    const std::string value(4 * kDim + 4, 'x');
    auto batch = store_->NewBatch();
    for (uint64_t row = 0; row < rows; ++row) {
      char key[8];
      StoreBig64(key, row);
      batch->Put({key, 8}, value);
      if (batch->bytes() < (1 << 20) && row + 1 < rows) continue;
      HOTBED_CHECK(store_->Write(batch.get()).ok());
      batch->Clear();
    }
    HOTBED_CHECK(store_->Flush().ok());
  }

  void Read(const uint64_t* ids, uint32_t count, uint8_t* out) {
    std::vector<uint64_t> keys(count);
    std::vector<absl::string_view> views(count);
    for (uint32_t i = 0; i < count; ++i) {
      StoreBig64(&keys[i], ids[i]);
      views[i] = {reinterpret_cast<const char*>(&keys[i]), 8};
    }
    const absl::Status status = store_->MultiGet(views, [&](size_t i, absl::string_view value) {
      std::memcpy(out + i * 4 * kDim, value.data(), 4 * kDim);
    });
    HOTBED_CHECK(status.ok()) << status;
  }

 private:
  std::unique_ptr<KvStore> store_;
};

struct Settings {
  bool quick = false;
  std::string only;  // resident, spilled, zipf, uniform or empty
  std::string dir;
};

void MeasureResident(const Settings& settings, RatioTable* table) {
  const uint64_t rows = settings.quick ? 100000 : 1000000;
  BenchStore store(settings.dir + "/resident", rows, 2 * rows * (4 * kDim + 32), 8 << 20);
  HugeBuffer plain_rows = HugeBuffer::Allocate(rows * 4 * kDim).value();
  HugeBuffer plain_state = HugeBuffer::Allocate(rows * 4).value();
  auto* plain = reinterpret_cast<float*>(plain_rows.data());
  auto* state = reinterpret_cast<float*>(plain_state.data());
  for (uint64_t i = 0; i < rows * kDim; ++i) plain[i] = static_cast<float>(i);
  for (uint64_t i = 0; i < rows; ++i) state[i] = 1.0f;

  Random random(1);
  constexpr uint32_t kBatches = 512;
  const std::vector<uint64_t> ids = UniqueBatches(kBatches, [&] { return random.Uniform(rows); });
  HugeBuffer out = HugeBuffer::Allocate(kBatchIds * 4 * kDim).value();
  std::vector<float> gradients(kBatchIds * kDim, 0.001f);
  std::vector<const uint8_t*> gradient_rows;
  for (uint32_t i = 0; i < kBatchIds; ++i) {
    gradient_rows.push_back(reinterpret_cast<const uint8_t*>(gradients.data() + i * kDim));
  }
  uint32_t at = 0;
  const auto next = [&] { return ids.data() + (at++ % kBatches) * kBatchIds; };
  table->Measure(
      {"gather 512 x 64 fp32, resident", "plain prefetching loop", "rows", 0, 0, 0.9},
      [&] {
        store.Pull(next(), kBatchIds, out.data());
        return double{kBatchIds};
      },
      [&] {
        PlainGather(plain, next(), kBatchIds, reinterpret_cast<float*>(out.data()));
        return double{kBatchIds};
      });
  table->Measure(
      {"row-wise Adagrad 512 x 64 fp32, resident", "plain prefetching loop", "rows", 0, 0, 0.8},
      [&] {
        store.Apply(next(), kBatchIds, gradient_rows.data());
        return double{kBatchIds};
      },
      [&] {
        PlainRowwiseAdagrad(plain, state, next(), kBatchIds, gradients.data(), 0.01f, 1e-8f);
        return double{kBatchIds};
      });
  const StoreStats stats = store.Stats();
  std::fprintf(
      stderr, "resident rows %llu, overhead %.2f bytes a row\n",
      static_cast<unsigned long long>(stats.rows_resident),
      static_cast<double>(stats.overhead_bytes) / static_cast<double>(stats.rows_resident));
}

void MeasureSpilled(const Settings& settings, RatioTable* table) {
  const uint64_t rows = settings.quick ? 200000 : 1000000;
  const uint64_t hot_bytes = rows * 4 * kDim / 4;
  BenchStore store(settings.dir + "/spilled", rows, hot_bytes, hot_bytes / 11);
  store.Settle();
  RocksRoof roof(settings.dir + "/roof", rows, hot_bytes);
  RocksRoof* roof_ptr = &roof;
  Random random(2);
  ZipfSampler zipf(1.05, rows);
  constexpr uint32_t kBatches = 8192;  // so many that few repeat in a run
  // Spreads popular ids over the table: an odd multiplier permutes a power of two, which is then
  // folded into the rows.
  const auto scatter = [&](uint64_t rank) { return rank * 0x9e3779b97f4a7c15ull % rows; };
  const std::vector<uint64_t> skewed =
      UniqueBatches(kBatches, [&] { return scatter(zipf.Sample(random)); });
  const std::vector<uint64_t> uniform =
      UniqueBatches(kBatches, [&] { return random.Uniform(rows); });
  std::vector<uint8_t> out(uint64_t{kInFlight + 1} * kBatchIds * 4 * kDim);
  uint32_t at = 0;
  StoreStats before = store.Stats();
  const auto measure = [&](const char* name, const std::vector<uint64_t>& ids, double bar) {
    table->Measure(
        {name, "RocksDB MultiGet, cache as large", "rows", 0, 0, bar},
        [&] {
          for (int i = 0; i < 32; ++i) {
            const uint32_t b = at++;
            store.Pull(ids.data() + (b % kBatches) * kBatchIds, kBatchIds,
                       out.data() + (b % (kInFlight + 1)) * kBatchIds * 4 * kDim);
          }
          store.Drain();
          return 32.0 * kBatchIds;
        },
        [&] {
          std::thread threads[2];
          for (int t = 0; t < 2; ++t) {
            threads[t] = std::thread([&, t, first = at] {
              for (uint32_t i = 0; i < 16; ++i) {
                const uint32_t b = (first + 16 * t + i) % kBatches;
                roof_ptr->Read(ids.data() + b * kBatchIds, kBatchIds,
                               out.data() + t * kBatchIds * 4 * kDim);
              }
            });
          }
          for (std::thread& thread : threads) thread.join();
          at += 32;
          return 32.0 * kBatchIds;
        });
    const StoreStats after = store.Stats();
    const double hits = static_cast<double>(after.hits - before.hits);
    const double misses = static_cast<double>(after.misses - before.misses);
    std::fprintf(stderr, "%s: %.1f %% hits\n", name, 100.0 * hits / (hits + misses));
    before = after;
  };
  if (settings.only != "uniform") measure("pull Zipf(1.05), table 4 x hot budget", skewed, 3.0);
  if (settings.only != "zipf") measure("pull uniform, table 4 x hot budget", uniform, 0.8);
}

int Main(int argc, char** argv) {
  Settings settings;
  std::string output;
  CLI::App app;
  app.add_option("-o", output);
  app.add_flag("--quick", settings.quick);
  for (const std::string part : {"resident", "spilled", "zipf", "uniform"}) {
    app.add_flag_callback("--" + part, [&settings, part] { settings.only = part; });
  }
  CLI11_PARSE(app, argc, argv);
  settings.dir =
      absl::StrCat(std::filesystem::temp_directory_path().string(), "/tiers_bench.", ::getpid());
  std::filesystem::create_directories(settings.dir);
  RatioTable table(/*rounds=*/5, settings.quick ? 0.2 : 1.0);
  if (settings.only.empty() || settings.only == "resident") MeasureResident(settings, &table);
  if (settings.only != "resident") MeasureSpilled(settings, &table);
  table.Print(output);
  std::filesystem::remove_all(settings.dir);
  return 0;
}

}  // namespace
}  // namespace hotbed::bench

int main(int argc, char** argv) { return hotbed::bench::Main(argc, argv); }
