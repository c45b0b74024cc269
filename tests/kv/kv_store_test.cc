#include "kv/kv_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "tests/kv/kv_fixture.h"

namespace hotbed {
namespace kv_store_test {

using KvStoreTest = KvFixture;

TEST_F(KvStoreTest, WrittenWithTheLogSurvivesReopen) {
  MustPut(MustOpen(Options()).get(), "a", "1");
  auto store = MustOpen(Options());
  EXPECT_EQ(store->Get("a").value(), "1");
  EXPECT_EQ(store->Get("b").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(KvStoreTest, WithoutTheLogFlushMakesDurable) {
  KvOptions options = Options();
  options.wal = false;
  {
    auto store = MustOpen(options);
    MustPut(store.get(), "kept", "1");
    ASSERT_TRUE(store->Flush().ok());
  }
  EXPECT_EQ(MustOpen(options)->Get("kept").value(), "1");
}

TEST_F(KvStoreTest, MultiGetVisitsWhatExists) {
  auto store = MustOpen(Options());
  auto batch = store->NewBatch();
  for (int i = 0; i < 1000; i += 2) batch->Put(absl::StrCat("k", i), absl::StrCat("v", i));
  EXPECT_GT(batch->bytes(), 0);
  ASSERT_TRUE(store->Write(batch.get()).ok());
  ASSERT_TRUE(store->Flush().ok());

  std::vector<std::string> names;
  for (int i = 0; i < 1000; ++i) names.push_back(absl::StrCat("k", i));
  std::vector<absl::string_view> keys(names.begin(), names.end());
  std::vector<std::string> found(keys.size());
  ASSERT_TRUE(store
                  ->MultiGet(keys, [&](size_t i,
                                       absl::string_view value) { found[i] = std::string(value); })
                  .ok());
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(found[i], i % 2 ? "" : absl::StrCat("v", i));
}

// The bytes left in the cache after every value has been read once.
TEST_F(KvStoreTest, ValuesStayOutOfTheCacheOfWhoCachesThemItself) {
  constexpr int kValues = 4000;
  std::vector<std::string> names;
  for (int i = 0; i < kValues; ++i) names.push_back(absl::StrFormat("k%06d", i));
  const std::vector<absl::string_view> keys(names.begin(), names.end());
  uint64_t cached[2];
  for (const bool cache_values : {false, true}) {
    KvOptions options = Options();
    options.dir = absl::StrCat(dir_, "/db", cache_values);
    options.block_cache_bytes = 4 << 20;
    options.cache_values = cache_values;
    auto store = MustOpen(options);
    auto batch = store->NewBatch();
    for (const std::string& name : names) batch->Put(name, std::string(256, 'v'));
    ASSERT_TRUE(store->Write(batch.get()).ok());
    ASSERT_TRUE(store->Flush().ok());
    size_t found = 0;
    ASSERT_TRUE(store->MultiGet(keys, [&](size_t, absl::string_view) { ++found; }).ok());
    EXPECT_EQ(found, keys.size());
    cached[cache_values] = store->GetUsage().block_cache_bytes;
  }
  EXPECT_GT(cached[true], kValues * 256);
  EXPECT_LT(cached[false], kValues * 256 / 10);
}

TEST_F(KvStoreTest, ACompactionGivesBackTheSpaceOfReplacedValues) {
  auto store = MustOpen(Options());
  const auto put_all = [&](const std::string& value) {
    auto batch = store->NewBatch();
    for (int i = 0; i < 2000; ++i) batch->Put(absl::StrFormat("k%05d", i), absl::StrCat(i, value));
    ASSERT_TRUE(store->Write(batch.get()).ok());
    ASSERT_TRUE(store->Flush().ok());
  };
  std::string large(1000, 'x');
  for (size_t i = 0; i < large.size(); ++i) large[i] = static_cast<char>(i * i * 31 >> 3);
  put_all(large);
  put_all("");
  const uint64_t before = store->EstimateBytes("k", "l");
  ASSERT_TRUE(store->Compact("k", "l").ok());
  EXPECT_LT(store->EstimateBytes("k", "l"), before / 4);
  EXPECT_EQ(store->Get("k01999").value(), "1999");
}

TEST_F(KvStoreTest, ScanIsOrderedAndHalfOpen) {
  auto store = MustOpen(Options());
  for (const char* key : {"c", "a", "d", "b"}) MustPut(store.get(), key, key);
  std::vector<std::string> seen;
  ASSERT_TRUE(store
                  ->Scan("a", "d",
                         [&](absl::string_view key, absl::string_view) {
                           seen.emplace_back(key);
                           return true;
                         })
                  .ok());
  EXPECT_THAT(seen, ::testing::ElementsAre("a", "b", "c"));
  auto batch = store->NewBatch();
  batch->DeleteRange("a", "c");
  batch->Delete("d");
  ASSERT_TRUE(store->Write(batch.get()).ok());
  EXPECT_FALSE(store->Get("b").ok());
  EXPECT_TRUE(store->Get("c").ok());
  EXPECT_FALSE(store->Get("d").ok());
}

TEST_F(KvStoreTest, FrozenCopyKeepsItsMoment) {
  auto store = MustOpen(Options());
  MustPut(store.get(), "a", "old");
  ASSERT_TRUE(store->Freeze(dir_ + "/frozen").ok());
  MustPut(store.get(), "a", "new");
  KvOptions frozen = Options();
  frozen.dir = dir_ + "/frozen";
  frozen.read_only = true;
  auto copy = MustOpen(frozen);
  EXPECT_EQ(copy->Get("a").value(), "old");
  auto batch = copy->NewBatch();
  batch->Put("a", "x");
  EXPECT_FALSE(copy->Write(batch.get()).ok());
  EXPECT_EQ(store->Get("a").value(), "new");
}

TEST_F(KvStoreTest, DamagedBlockIsDataLoss) {
  KvOptions options = Options();
  {
    auto store = MustOpen(options);
    for (int i = 0; i < 100; ++i) {
      MustPut(store.get(), absl::StrCat("k", i), std::string(100, 'x'));
    }
    ASSERT_TRUE(store->Flush().ok());
  }
  for (const auto& entry : std::filesystem::directory_iterator(options.dir)) {
    if (entry.path().extension() != ".sst") continue;
    FILE* file = fopen(entry.path().c_str(), "r+");
    fseek(file, 200, SEEK_SET);
    fputs("damage", file);
    fclose(file);
  }
  auto store = MustOpen(options);
  EXPECT_EQ(store->Get("k0").status().code(), absl::StatusCode::kDataLoss);
}

// RocksDB reads the footer where a table of the right size has it, and blames the manifest.
TEST_F(KvStoreTest, AFileInATablesPlaceIsNamed) {
  const KvOptions options = Options();
  {
    auto store = MustOpen(options);
    for (int i = 0; i < 100; ++i) {
      MustPut(store.get(), absl::StrCat("k", i), std::string(100, 'x'));
    }
    ASSERT_TRUE(store->Flush().ok());
  }
  std::string table;
  for (const auto& entry : std::filesystem::directory_iterator(options.dir)) {
    if (entry.path().extension() == ".sst") table = entry.path();
  }
  ASSERT_NE(table, "");
  const uint64_t bytes = std::filesystem::file_size(table);
  FILE* file = fopen(table.c_str(), "w");
  fputs(std::string(bytes + 100, '\xbf').c_str(), file);
  fclose(file);
  const absl::Status status = KvStore::Open(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              testing::HasSubstr(
                  absl::StrCat(table, " has ", bytes + 100, " bytes and must have ", bytes)));
}

TEST_F(KvStoreTest, DamageThatACompactionMeetsIsToldAndStays) {
  KvOptions options = Options();
  options.wal = false;
  auto store = MustOpen(options);
  const auto fill = [&] {
    for (int i = 0; i < 100; ++i) {
      auto batch = store->NewBatch();
      batch->Put(absl::StrCat("k", i), std::string(100, 'x'));
      if (!store->Write(batch.get()).ok()) return;
    }
    (void)store->Flush();
  };
  fill();
  EXPECT_FALSE(store->GetUsage().damaged);
  for (const auto& entry : std::filesystem::directory_iterator(options.dir)) {
    if (entry.path().extension() != ".sst") continue;
    FILE* file = fopen(entry.path().c_str(), "r+");
    fseek(file, 200, SEEK_SET);
    fputs("damage", file);
    fclose(file);
  }
  for (int i = 0; i < 200 && !store->GetUsage().damaged; ++i) fill();
  EXPECT_TRUE(store->GetUsage().damaged);
  EXPECT_NE(store->GetUsage().background_error, "");
  EXPECT_FALSE(store->TryResume().ok());
  EXPECT_TRUE(store->GetUsage().damaged) << "only another store helps";
}

// As ulimit -f does, or a file system with a limit of its own.
TEST_F(KvStoreTest, AFileSizeLimitIsWaitedOutLikeAFullDisk) {
  KvOptions options = Options();
  options.wal = false;
  auto store = MustOpen(options);
  const auto fill = [&](char c) {
    auto batch = store->NewBatch();
    for (int i = 0; i < 1000; ++i) batch->Put(absl::StrCat("k", i), std::string(1000, c));
    return store->Write(batch.get());
  };
  ASSERT_TRUE(fill('a').ok());
  ASSERT_TRUE(store->Flush().ok());
  const auto before = signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit small{64 << 10, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  for (char c = 'b'; c < 'f'; ++c) {
    if (!fill(c).ok()) break;
    EXPECT_FALSE(store->Flush().ok());
  }
  EXPECT_NE(store->GetUsage().background_error, "");
  EXPECT_FALSE(store->TryResume().ok());
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  signal(SIGXFSZ, before);
  absl::Status resumed = absl::UnavailableError("not tried");
  for (int i = 0; i < 100 && !resumed.ok(); ++i) {
    resumed = store->TryResume();
    absl::SleepFor(absl::Milliseconds(20));
  }
  EXPECT_TRUE(resumed.ok()) << resumed;
  EXPECT_EQ(store->GetUsage().background_error, "");
  ASSERT_TRUE(fill('z').ok());
  ASSERT_TRUE(store->Flush().ok());
  EXPECT_EQ(*store->Get("k7"), std::string(1000, 'z'));
}

TEST_F(KvStoreTest, BytesMaxStopsWrites) {
  KvOptions options = Options();
  options.wal = false;
  options.bytes_max = 200 << 10;
  auto store = MustOpen(options);
  absl::Status status;
  for (int i = 0; i < 200 && status.ok(); ++i) {
    auto batch = store->NewBatch();
    batch->Put(absl::StrCat("k", i), std::string(8 << 10, static_cast<char>(i)));
    status = store->Write(batch.get());
    if (status.ok() && i % 10 == 9) status = store->Flush();
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
}

}  // namespace kv_store_test
}  // namespace hotbed
