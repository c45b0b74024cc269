// A TierHost whose executor and I/O queue the test runs by hand, in an order drawn from a seed, and
// a dumb twin of its rows.
#ifndef HOTBED_TESTS_TIERS_STORE_FIXTURE_H_
#define HOTBED_TESTS_TIERS_STORE_FIXTURE_H_

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/random.h"
#include "row_math/half.h"
#include "row_math/initializer.h"
#include "row_math/optimizer.h"
#include "server/kernels/cpu/cpu_kernels.h"
#include "server/tiers/tier_host.h"

namespace hotbed {

inline uint64_t TestSeed(uint64_t fallback) {
  const char* set = std::getenv("HOTBED_TEST_SEED");
  return set != nullptr ? std::strtoull(set, nullptr, 10) : fallback;
}

// Says how to run a failing random test again.
inline std::string Replay(uint64_t seed) {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  return absl::StrCat("replay: HOTBED_TEST_SEED=", seed,
                      " --gtest_filter=", test->test_suite_name(), ".", test->name());
}

class ManualExecutor : public Executor {
 public:
  void Run(absl::AnyInvocable<void()> task) override { tasks_.push_back(std::move(task)); }
  bool RunOne() {
    if (tasks_.empty()) return false;
    absl::AnyInvocable<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    task();
    return true;
  }

 private:
  std::deque<absl::AnyInvocable<void()>> tasks_;
};

// Rows as they should be, by the formulas of row_math/optimizer.h written out plainly.
class RowTwin {
 public:
  struct Row {
    std::vector<float> weights;
    std::vector<float> state;
  };
  RowTwin(const TableSpec& spec, const ShardRange& range) : spec_(spec), range_(range) {
    dim_ = range.column_limit - range.column_first;
  }

  Row Read(uint64_t id) const {
    const auto it = rows_.find(id);
    return it != rows_.end() ? it->second : First(id);
  }
  bool Exists(uint64_t id) const { return rows_.count(id) > 0; }

  void Update(uint64_t id, const std::vector<float>& gradient, const UpdateScalars& s) {
    Row row = Read(id);
    const OptimizerParams& p = spec_.optimizer;
    std::vector<float> d(dim_);
    for (uint32_t i = 0; i < dim_; ++i) d[i] = gradient[i] + p.weight_decay * row.weights[i];
    float step = 0;
    if (p.kind == OptimizerKind::kRowwiseAdagrad) {
      row.state[0] += SquareSum(d) / static_cast<float>(dim_);
      step = s.learning_rate / (std::sqrt(row.state[0]) + p.epsilon);
    }
    for (uint32_t i = 0; i < dim_; ++i) {
      float& w = row.weights[i];
      switch (p.kind) {
        case OptimizerKind::kSgd:
          w -= s.learning_rate * d[i];
          break;
        case OptimizerKind::kAdagrad:
          row.state[i] += d[i] * d[i];
          w -= s.learning_rate * d[i] / (std::sqrt(row.state[i]) + p.epsilon);
          break;
        case OptimizerKind::kRowwiseAdagrad:
          w -= step * d[i];
          break;
        case OptimizerKind::kAdam: {
          float& m = row.state[i];
          float& v = row.state[dim_ + i];
          m = p.beta1 * m + (1.0f - p.beta1) * d[i];
          v = p.beta2 * v + (1.0f - p.beta2) * (d[i] * d[i]);
          w -= s.learning_rate * (m / s.bias_correction1) /
               (std::sqrt(v / s.bias_correction2) + p.epsilon);
          break;
        }
      }
      w = Stored(w);
    }
    rows_[id] = std::move(row);
  }

  const std::map<uint64_t, Row>& rows() const { return rows_; }
  void Clear() { rows_.clear(); }

 private:
  float Stored(float w) const {
    switch (spec_.weight_type) {
      case WeightType::kFp32:
        return w;
      case WeightType::kFp16:
        return Fp16ToFloat(FloatToFp16(w));
      case WeightType::kBf16:
        return Bf16ToFloat(FloatToBf16(w));
    }
    return w;
  }
  Row First(uint64_t id) const {
    Row row;
    for (uint32_t i = 0; i < dim_; ++i) {
      row.weights.push_back(
          Stored(InitialValue(spec_.initializer, spec_.seed, id, range_.column_first + i)));
    }
    row.state.assign(StateElements(spec_.optimizer.kind, dim_), InitialState(spec_.optimizer));
    return row;
  }
  float SquareSum(const std::vector<float>& d) const {
    std::vector<float> lanes(32, 0.0f);
    for (uint32_t i = 0; i < dim_; ++i) lanes[i % 32] += d[i] * d[i];
    for (int half = 16; half > 0; half /= 2) {
      for (int l = 0; l < half; ++l) lanes[l] += lanes[l + half];
    }
    return lanes[0];
  }

  const TableSpec spec_;
  const ShardRange range_;
  uint32_t dim_ = 0;
  std::map<uint64_t, Row> rows_;
};

class StoreFixture : public ::testing::Test {
 protected:
  StoreFixture() {
    dir_ = ::testing::TempDir() + "/tiers_" +
           ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::replace(dir_.begin() + 1, dir_.end(), '.', '_');
    std::filesystem::remove_all(dir_);
    spec_.id = 7;
    spec_.name = "clicks";
    spec_.rows = 200;
    spec_.dim = 6;
    spec_.seed = 42;
    spec_.initializer = {InitializerKind::kUniform, -1.0f, 1.0f};
    options_.spill_dir = dir_;
    options_.memtable_bytes = 1 << 20;
    options_.block_cache_bytes = 1 << 20;
    options_.use_huge_pages = false;
  }
  ~StoreFixture() override {
    CloseStore();
    host_ = nullptr;
    std::filesystem::remove_all(dir_);
  }

  void OpenHost() {
    auto host = TierHostImpl::Open(options_, &io_, CpuRowKernels());
    ASSERT_TRUE(host.ok()) << host.status();
    host_ = *std::move(host);
  }
  void OpenStore() {
    range_ = {0, spec_.hashed ? 65536 : spec_.rows, 0, spec_.dim};
    if (host_ == nullptr) OpenHost();
    TierHost::ShardParams params;
    params.table = spec_;
    params.shard = {spec_.id, 3};
    params.range = range_;
    params.executor = &executor_;
    params.before_write_back = [this](Lsn lsn) {
      log_held_ = std::max(log_held_, lsn);
      return before_write_back_;
    };
    auto store = host_->OpenShard(params);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }
  void CloseStore() {
    store_ = nullptr;
    RunAll();
  }
  // What a clean stop and a start leave: all swept and flushed.
  void Reopen(Lsn lsn) {
    ASSERT_TRUE(SweepNow(lsn, absl::StrCat("meta ", lsn)).ok());
    ASSERT_TRUE(host_->Flush().ok());
    CloseStore();
    host_ = nullptr;
    OpenStore();
  }

  // One step of whatever waits, chosen by `random`; false: nothing waits.
  bool Step(Random& random) {
    const bool io_first = random.OneIn(2);
    for (int turn = 0; turn < 2; ++turn) {
      if ((turn == 0) == io_first) {
        if (io_.depth() > 0) {
          io_.RunAt(random.Uniform(io_.depth()));
          return true;
        }
      } else if (executor_.RunOne()) {
        return true;
      }
    }
    return false;
  }
  void RunAll() {
    Random random(1);
    while (Step(random)) {
    }
  }

  absl::Status ApplyNow(const std::vector<uint64_t>& ids,
                        const std::vector<std::vector<float>>& gradients, Lsn lsn,
                        UpdateScalars scalars = {0.1f, 1.0f, 1.0f}) {
    std::vector<const uint8_t*> rows;
    for (const auto& g : gradients) rows.push_back(reinterpret_cast<const uint8_t*>(g.data()));
    RowUpdates updates;
    updates.ids = ids.data();
    updates.count = static_cast<uint32_t>(ids.size());
    updates.gradients = rows.data();
    updates.scalars = scalars;
    updates.lsn = lsn;
    absl::Status result;
    bool finished = store_->Apply(updates, [&](absl::Status status) {
      result = std::move(status);
      finished = true;
    });
    if (!finished) RunAll();
    EXPECT_TRUE(finished) << "an Apply that never ends";
    return result;
  }
  absl::Status PullNow(const std::vector<uint64_t>& ids, std::vector<float>* rows,
                       std::vector<uint8_t>* flags) {
    rows->assign(ids.size() * spec_.dim, -77.0f);
    flags->assign(ids.size(), 77);
    RowReads reads;
    reads.ids = ids.data();
    reads.count = static_cast<uint32_t>(ids.size());
    reads.rows = reinterpret_cast<uint8_t*>(rows->data());
    reads.flags = flags->data();
    absl::Status result;
    bool finished = store_->Pull(reads, [&](absl::Status status) {
      result = std::move(status);
      finished = true;
    });
    if (!finished) RunAll();
    EXPECT_TRUE(finished) << "a Pull that never ends";
    return result;
  }
  absl::Status SweepNow(Lsn lsn, std::string meta) {
    absl::Status result;
    bool finished = false;
    store_->Sweep(lsn, std::move(meta), [&](absl::Status status) {
      result = std::move(status);
      finished = true;
    });
    RunAll();
    EXPECT_TRUE(finished) << "a Sweep that never ends";
    return result;
  }
  uint64_t RowCost() const {
    return HotTier::IndexedRowBytes(spec_, {0, spec_.hashed ? 65536 : spec_.rows, 0, spec_.dim});
  }

  std::string dir_;
  TableSpec spec_;
  ShardRange range_;
  TierOptions options_;
  ManualExecutor executor_;
  ManualIoQueue io_;
  Lsn log_held_ = 0;
  absl::Status before_write_back_;
  std::unique_ptr<TierHostImpl> host_;
  std::unique_ptr<TieredStore> store_;
};

}  // namespace hotbed

#endif  // HOTBED_TESTS_TIERS_STORE_FIXTURE_H_
