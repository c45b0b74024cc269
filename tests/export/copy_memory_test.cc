// The memory of copies of shards: who gets it, and whether copies need no more than they take.
#include "server/host/copy_memory.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "common/random.h"
#include "server/host/shard_copy.h"
#include "tests/common/test_seed.h"
#include "tests/shard/host_fixture.h"

namespace hotbed {
namespace copy_memory_test {

absl::Status Wanted() { return absl::OkStatus(); }

TEST(CopyMemoryTest, ManyThreadsStayWithinIt) {
  const TestSeed seed(3);
  constexpr uint64_t kMax = 100;
  CopyMemory memory(kMax);
  std::atomic<uint64_t> taken{0};
  std::atomic<uint64_t> large{0};
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      Random random(seed.value() + t);
      for (int i = 0; i < 200; ++i) {
        const bool is_large = random.OneIn(20);
        // At least one byte: a copy of none fits beside a large one that came later.
        const uint64_t bytes = is_large ? kMax + 1 + random.Uniform(50) : 1 + random.Uniform(kMax);
        const auto share = memory.Take(bytes, Wanted);
        ASSERT_TRUE(share.ok());
        const uint64_t now = taken.fetch_add(bytes) + bytes;
        EXPECT_TRUE(now <= kMax || now == bytes) << now << " with " << bytes;
        if (is_large) large.fetch_add(1);
        std::this_thread::yield();
        taken.fetch_sub(bytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(large.load(), 0u);
  EXPECT_EQ(memory.bytes(), 0u);
}

// A small copy does not overtake a large one, and one that is not wanted any more makes way.
TEST(CopyMemoryTest, CopiesTakeTurns) {
  CopyMemory memory(100);
  auto first = memory.Take(60, Wanted);
  ASSERT_TRUE(first.ok());
  std::atomic<bool> wanted{true};
  std::atomic<int> asked{0};
  std::atomic<bool> small_has{false};
  std::thread large([&] {
    const auto refused = memory.Take(90, [&] {
      asked.fetch_add(1);
      return wanted.load() ? absl::OkStatus() : absl::CancelledError("not wanted");
    });
    EXPECT_TRUE(absl::IsCancelled(refused.status()));
  });
  while (asked.load() == 0) std::this_thread::yield();
  std::atomic<int> small_asked{0};
  std::thread small([&] {
    const auto share = memory.Take(10, [&] {
      small_asked.fetch_add(1);
      return absl::OkStatus();
    });
    small_has.store(true);
  });
  while (small_asked.load() < 3) std::this_thread::yield();
  EXPECT_FALSE(small_has.load()) << "the large one was first";
  wanted.store(false);
  large.join();
  small.join();
  EXPECT_TRUE(small_has.load());
}

uint64_t HeapBytes() {
  const struct mallinfo2 now = mallinfo2();
  return now.uordblks + now.hblkhd;
}

// Drops the rows, and looks at the heap while it has them.
class Meter : public RowSink {
 public:
  absl::Status BeginPass(uint64_t /*bytes*/) override {
    Look();
    return absl::OkStatus();
  }
  absl::Status Take(absl::Span<const uint64_t> ids, absl::Span<const uint8_t> payloads) override {
    Look();
    rows_ += ids.size();
    bytes_ += payloads.size();
    return absl::OkStatus();
  }
  uint64_t rows() const { return rows_; }
  uint64_t bytes() const { return bytes_; }
  uint64_t most() const { return most_ - std::min(begun_, most_); }

 private:
  void Look() { most_ = std::max(most_, HeapBytes()); }

  const uint64_t begun_ = HeapBytes();
  uint64_t most_ = 0;
  uint64_t rows_ = 0;
  uint64_t bytes_ = 0;
};

// A shard of 40 MiB, from memory and then, those that have changed, from the disk.
TEST(CopyMemoryTest, ACopyNeedsNoMoreThanItTakes) {
  constexpr uint64_t kRows = 160'000;
  constexpr uint32_t kDim = 64;
  constexpr uint64_t kBatch = 4000;
  TempDir dir;
  ShardHostOptions options;
  options.data_dir = dir.path();
  options.host_bytes = 256ull << 20;
  options.checkpoint_interval_ms = 0;
  TestServer server(options, {TestTable(1, "t", kRows, kDim, OptimizerKind::kSgd)}, 1);
  TestClient client(&server, 7);
  server.Start();
  const std::vector<float> gradients(kBatch * kDim, 0.5f);
  std::vector<uint64_t> ids(kBatch);
  for (uint64_t step = 1; step <= kRows / kBatch; ++step) {
    for (uint64_t i = 0; i < kBatch; ++i) ids[i] = (step - 1) * kBatch + i;
    client.Push(1, step, ids, gradients);
  }
  const ShardId shard = server.ShardOf(1, 0);
  ShardHost::CopyOptions how;
  how.writes_back_first = true;  // into memory of the store, which has a budget of its own
  Meter first;
  ASSERT_TRUE(server.host()->Copy(shard, how, &first).ok());
  Meter all;
  const auto copied = server.host()->Copy(shard, how, &all);
  ASSERT_TRUE(copied.ok()) << copied.status();
  EXPECT_EQ(all.rows(), kRows);
  EXPECT_LE(all.most(), kCopyBytes);
  client.Push(1, kRows, ids, gradients);
  how.above = {copied->lsn_epoch, copied->lsn};
  Meter changed;
  const auto again = server.host()->Copy(shard, how, &changed);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->above, copied->lsn);
  EXPECT_EQ(changed.rows(), kBatch);
  EXPECT_LE(changed.most(), kCopyBytes);
}

}  // namespace copy_memory_test
}  // namespace hotbed
