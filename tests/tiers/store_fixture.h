// A TierHost whose executor and I/O queue the test runs by hand, in an order drawn from a seed.
#ifndef HOTBED_TESTS_TIERS_STORE_FIXTURE_H_
#define HOTBED_TESTS_TIERS_STORE_FIXTURE_H_

#include <gtest/gtest.h>

#include <algorithm>
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
#include "common/clock.h"
#include "common/random.h"
#include "row_math/optimizer.h"
#include "server/tiers/tier_host.h"
#include "tests/common/test_seed.h"
#include "tests/kernels/row_twin.h"
#include "tests/tiers/emulated_device.h"
#include "tests/tiers/manual_io_queue.h"
#include "tests/tiers/pinned_rows.h"

namespace hotbed {

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
    options_.clock = &clock_;
  }
  ~StoreFixture() override {
    CloseStore();
    host_ = nullptr;
    std::filesystem::remove_all(dir_);
  }

  // An emulated device with room for `buckets` buckets of rows of spec_, in messages so small that
  // most jobs are cut.
  void UseDevice(uint32_t buckets, uint32_t ids_max = 16) {
    device::RowShape shape;
    shape.dim = spec_.dim;
    shape.weight_type = spec_.weight_type;
    shape.optimizer = spec_.optimizer;
    const uint64_t slots = uint64_t{buckets} * device::kBucketSlots;
    const uint64_t bytes = device::DeviceRows::TableBytes(shape, false, slots);
    options_.open_device = EmulatedDevice(SmallMessages(ids_max), buckets == 0 ? 1024 : bytes,
                                          [this] { return device_faults_; });
  }

  void OpenHost() {
    auto host = TierHostImpl::Open(options_, &io_);
    ASSERT_TRUE(host.ok()) << host.status();
    host_ = *std::move(host);
  }
  void OpenStore() {
    range_ = {0, spec_.hashed ? 65536 : spec_.rows, 0, spec_.dim};
    if (host_ == nullptr) OpenHost();
    store_ = OpenShard(3, range_);
  }
  // A shard of spec_.
  std::unique_ptr<TieredStore> OpenShard(uint32_t index, const ShardRange& range) {
    TierHost::ShardParams params;
    params.table = spec_;
    params.shard = {spec_.id, index};
    params.range = range;
    params.executor = &executor_;
    params.hint = hint_;
    params.before_write_back = [this](Lsn lsn) {
      log_held_ = std::max(log_held_, lsn);
      return before_write_back_;
    };
    auto store = host_->OpenShard(params);
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }
  void CloseStore() {
    store_ = nullptr;
    RunAll();
  }
  // A clean stop and a start: everything is written back and flushed.
  void Reopen(Lsn lsn) {
    ASSERT_TRUE(WriteBackNow(lsn, absl::StrCat("meta ", lsn)).ok());
    ASSERT_TRUE(host_->Flush().ok());
    CloseStore();
    host_ = nullptr;
    OpenStore();
  }

  // One step of whatever waits, chosen by `random`; false: nothing waits.
  bool Step(Random& random) {
    clock_.Advance(step_ns_);
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
    PinnedRows answer(host_->answer_pinner(), 4 * rows->size());
    RowReads reads;
    reads.ids = ids.data();
    reads.count = static_cast<uint32_t>(ids.size());
    reads.rows = answer.data();
    reads.answer = &answer;
    reads.flags = flags->data();
    absl::Status result;
    bool finished = store_->Pull(reads, [&](absl::Status status) {
      result = std::move(status);
      finished = true;
    });
    if (!finished) RunAll();
    EXPECT_TRUE(finished) << "a Pull that never ends";
    if (result.ok()) answer.CopyTo(rows->data());
    return result;
  }
  absl::Status WriteBackNow(Lsn lsn, std::string meta) {
    absl::Status result;
    bool finished = false;
    store_->WriteBackAll(lsn, std::move(meta), [&](absl::Status status) {
      result = std::move(status);
      finished = true;
    });
    RunAll();
    EXPECT_TRUE(finished) << "a WriteBackAll that never ends";
    return result;
  }
  uint64_t RowCost() const {
    return HotTier::IndexedRowBytes(spec_, {0, spec_.hashed ? 65536 : spec_.rows, 0, spec_.dim});
  }

  ManualClock clock_;
  int64_t step_ns_ = 0;  // that pass with each step
  std::string dir_;
  TableSpec spec_;
  ShardRange range_;
  TierOptions options_;
  device::HostDeviceOptions device_faults_;  // of the next host
  ManualExecutor executor_;
  FetchHint* hint_ = nullptr;  // of shards that are opened
  ManualIoQueue io_;
  Lsn log_held_ = 0;
  absl::Status before_write_back_;
  std::unique_ptr<TierHostImpl> host_;
  std::unique_ptr<TieredStore> store_;
};

}  // namespace hotbed

#endif  // HOTBED_TESTS_TIERS_STORE_FIXTURE_H_
