// A disk that is full and has room again, many times: a store waits, says so, and continues. The
// disk is a limit of the size of files, which refuses in the middle of a write as a full disk does.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/random.h"
#include "tests/common/test_seed.h"
#include "tests/kv/kv_fixture.h"

namespace hotbed {
namespace full_disk_test {

constexpr int64_t kMs = 1'000'000;

class FullDiskTest : public KvFixture {
 protected:
  FullDiskTest() : before_(signal(SIGXFSZ, SIG_IGN)) { getrlimit(RLIMIT_FSIZE, &free_); }
  ~FullDiskTest() override {
    Free();
    signal(SIGXFSZ, before_);
  }
  // 4 KB: no file of the store can grow, small ones included.
  void Fill() {
    const rlimit full{4 << 10, free_.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &full), 0);
  }
  void Free() { setrlimit(RLIMIT_FSIZE, &free_); }

  KvOptions WithoutLog() const {
    KvOptions options = Options();
    options.wal = false;
    return options;
  }
  static std::string Error(const KvStore& store) { return store.GetUsage().background_error; }
  static bool Within(int64_t ms, const std::function<bool()>& is_so) {
    const int64_t until = Clock::Real()->NowNs() + ms * kMs;
    while (!is_so()) {
      if (Clock::Real()->NowNs() > until) return false;
      Clock::Real()->SleepNs(2 * kMs);
    }
    return true;
  }
  static std::string Key(uint64_t i) { return absl::StrCat("key", i); }
  // Batches of 50 KB, until one is refused or `batches` are written.
  absl::Status WriteSome(KvStore* store, int batches) {
    for (int b = 0; b < batches; ++b) {
      std::map<std::string, std::string> entries;
      for (int i = 0; i < 50; ++i) {
        entries[Key(random_.Uniform(2000))] =
            std::string(1000, static_cast<char>('a' + random_.Uniform(26)));
      }
      const auto batch = store->NewBatch();
      for (const auto& [key, value] : entries) batch->Put(key, value);
      if (absl::Status s = store->Write(batch.get()); !s.ok()) return s;
      for (auto& [key, value] : entries) twin_[key] = std::move(value);
    }
    return absl::OkStatus();
  }
  void CheckAll(KvStore* store) {
    std::map<std::string, std::string> found;
    ASSERT_TRUE(store
                    ->Scan("", "\xff",
                           [&](absl::string_view key, absl::string_view value) {
                             found.emplace(key, value);
                             return true;
                           })
                    .ok());
    ASSERT_EQ(found.size(), twin_.size());
    ASSERT_TRUE(found == twin_) << "what was refused was written, or what was written is lost";
  }

  const TestSeed seed_{20};
  Random random_{seed_.value()};
  std::map<std::string, std::string> twin_;  // what writes that succeeded have left
  rlimit free_{};
  const sighandler_t before_;
};

TEST_F(FullDiskTest, SaysSoRefusesAtOnceAndGoesOnByItself) {
  auto store = MustOpen(WithoutLog());
  ASSERT_TRUE(WriteSome(store.get(), 10).ok());
  ASSERT_TRUE(store->Flush().ok());
  ASSERT_TRUE(WriteSome(store.get(), 2).ok());
  Fill();
  const int64_t began = Clock::Real()->NowNs();
  EXPECT_EQ(store->Flush().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(Error(*store).find(Options().dir), std::string::npos) << Error(*store);
  EXPECT_NE(Error(*store).find("File too large"), std::string::npos) << Error(*store);
  EXPECT_FALSE(store->GetUsage().damaged);
  EXPECT_EQ(WriteSome(store.get(), 1).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(store->NewFile().status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(store->Freeze(dir_ + "/frozen").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(store->TryResume().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_LT(Clock::Real()->NowNs() - began, 20'000 * kMs) << "none of them waits";
  CheckAll(store.get());
  Clock::Real()->SleepNs(500 * kMs);
  EXPECT_NE(Error(*store), "") << "as long as it is full";
  Free();
  EXPECT_TRUE(Within(20'000, [&] { return Error(*store).empty(); })) << "nobody resumed it";
  EXPECT_TRUE(store->TryResume().ok());
  ASSERT_TRUE(WriteSome(store.get(), 10).ok());
  ASSERT_TRUE(store->Flush().ok());
  store = nullptr;
  store = MustOpen(WithoutLog());
  CheckAll(store.get());
}

TEST_F(FullDiskTest, AWriteThatWouldWaitForAMemtableIsRefused) {
  auto store = MustOpen(WithoutLog());
  Fill();
  const int64_t began = Clock::Real()->NowNs();
  EXPECT_EQ(WriteSome(store.get(), 10'000).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_LT(Clock::Real()->NowNs() - began, 30'000 * kMs);
  EXPECT_LT(store->GetUsage().memtable_bytes, 3 * WithoutLog().memtable_bytes);
  Free();
  EXPECT_TRUE(Within(20'000, [&] { return WriteSome(store.get(), 1).ok(); }));
  CheckAll(store.get());
}

// Memtables fill faster than they are flushed, and files pile up: writers wait, as ever.
TEST_F(FullDiskTest, ABusyStoreWithRoomRefusesNothing) {
  KvOptions options = WithoutLog();
  options.memtable_bytes = 256 << 10;
  auto store = MustOpen(options);
  for (int b = 0; b < 400; ++b) {
    const auto batch = store->NewBatch();
    for (int i = 0; i < 50; ++i) batch->Put(Key(b * 50 + i), std::string(1000, 'x'));
    const absl::Status status = store->Write(batch.get());
    ASSERT_TRUE(status.ok()) << status;
  }
  EXPECT_EQ(Error(*store), "");
  EXPECT_TRUE(store->Get(Key(19'999)).ok());
}

TEST_F(FullDiskTest, ClosesWhileItIsFull) {
  auto store = MustOpen(WithoutLog());
  ASSERT_TRUE(WriteSome(store.get(), 10).ok());
  ASSERT_TRUE(store->Flush().ok());
  const std::map<std::string, std::string> flushed = twin_;
  ASSERT_TRUE(WriteSome(store.get(), 2).ok());
  Fill();
  EXPECT_FALSE(store->Flush().ok());
  const int64_t began = Clock::Real()->NowNs();
  store = nullptr;
  EXPECT_LT(Clock::Real()->NowNs() - began, 20'000 * kMs);
  Free();
  store = MustOpen(WithoutLog());
  twin_ = flushed;
  CheckAll(store.get());
}

// Where RocksDB was told of the disk, DB::Resume() hung for good within six rounds, mostly.
TEST_F(FullDiskTest, ManyRoundsUnderLoadLeaveNothingStuck) {
  constexpr int kRounds = 20;
  constexpr int64_t kHungMs = 20'000;
  KvOptions options = WithoutLog();
  options.memtable_bytes = 4 << 20;
  auto store = MustOpen(options);
  std::atomic<bool> stops{false};
  std::atomic<int64_t> written{0};
  std::atomic<int64_t> flushed{0};
  std::atomic<int64_t> upkept{0};
  std::thread writer([&] {
    while (!stops) {
      if (WriteSome(store.get(), 1).ok()) {
        ++written;
      } else {
        Clock::Real()->SleepNs(5 * kMs);
      }
    }
  });
  std::thread flusher([&] {
    for (; !stops; Clock::Real()->SleepNs(30 * kMs)) flushed += store->Flush().ok();
  });
  std::thread upkeep([&] {
    for (; !stops; Clock::Real()->SleepNs(50 * kMs)) {
      if (!Error(*store).empty()) (void)store->TryResume();
      (void)store->Flush();
      ++upkept;
    }
  });
  Random times(seed_.value() + 1);
  for (int round = 0; round < kRounds && !HasFailure(); ++round) {
    SCOPED_TRACE(absl::StrCat("round ", round));
    Clock::Real()->SleepNs(static_cast<int64_t>(times.Uniform(300)) * kMs);
    Fill();
    EXPECT_TRUE(Within(kHungMs, [&] { return !Error(*store).empty(); }));
    Clock::Real()->SleepNs(static_cast<int64_t>(20 + times.Uniform(500)) * kMs);
    const int64_t turns = upkept;
    EXPECT_TRUE(Within(kHungMs, [&] { return upkept > turns; })) << "it must not wait for room";
    Free();
    const int64_t w = written;
    const int64_t f = flushed;
    EXPECT_TRUE(
        Within(kHungMs, [&] { return Error(*store).empty() && written > w && flushed > f; }))
        << "stuck: " << Error(*store);
  }
  Free();
  stops = true;
  for (std::thread* thread : {&writer, &flusher, &upkeep}) thread->join();
  CheckAll(store.get());
  ASSERT_TRUE(store->Flush().ok());
  store = nullptr;
  store = MustOpen(options);
  CheckAll(store.get());
}

}  // namespace full_disk_test
}  // namespace hotbed
