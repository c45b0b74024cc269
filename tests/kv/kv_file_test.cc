// Files that a store takes over whole.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "tests/kv/kv_fixture.h"

namespace hotbed {
namespace kv_file_test {

class KvFileTest : public KvFixture {
 protected:
  static std::string Key(int i) { return absl::StrFormat("k%06d", i); }
  // Entries [first, limit) with this value.
  static absl::Status Fill(KvFile* file, int first, int limit, const std::string& value) {
    for (int i = first; i < limit; ++i) {
      if (absl::Status s = file->Add(Key(i), value); !s.ok()) return s;
    }
    return absl::OkStatus();
  }
  static std::unique_ptr<KvFile> MustMake(KvStore* store) {
    auto file = store->NewFile();
    EXPECT_TRUE(file.ok()) << file.status();
    return *std::move(file);
  }
  static void MustIngest(KvStore* store, int first, int limit, const std::string& value) {
    const auto file = MustMake(store);
    ASSERT_TRUE(Fill(file.get(), first, limit, value).ok());
    ASSERT_TRUE(file->Ingest().ok());
  }
  static void ExpectAll(KvStore* store, int first, int limit, const std::string& value) {
    for (int i = first; i < limit; ++i) {
      const auto found = store->Get(Key(i));
      ASSERT_TRUE(found.ok()) << Key(i) << ": " << found.status();
      ASSERT_EQ(*found, value) << Key(i);
    }
  }
  size_t Incoming() const {
    std::error_code none;
    size_t files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(Options().dir + "/incoming", none))
      files += entry.is_regular_file();
    return files;
  }
  static KvOptions WithoutLog(KvOptions options) {
    options.wal = false;
    return options;
  }
};

TEST_F(KvFileTest, WhatIsTakenOverIsDurableWithoutAFlush) {
  const KvOptions options = WithoutLog(Options());
  {
    auto store = MustOpen(options);
    MustPut(store.get(), "a", "lost");
    MustIngest(store.get(), 0, 1000, "1");
    EXPECT_EQ(Incoming(), 0u);
    EXPECT_GT(store->GetUsage().disk_bytes, 1000u);
  }
  auto store = MustOpen(options);
  ExpectAll(store.get(), 0, 1000, "1");
}

// Whatever lies in which level: the later one counts.
TEST_F(KvFileTest, WhatIsTakenOverIsNewerThanWhatWasWrittenBefore) {
  auto store = MustOpen(WithoutLog(Options()));
  MustIngest(store.get(), 0, 100, "file");
  for (int i = 10; i < 40; ++i) MustPut(store.get(), Key(i), "memtable");
  MustIngest(store.get(), 20, 60, "file over memtable");
  for (int i = 30; i < 50; ++i) MustPut(store.get(), Key(i), "memtable over file");
  ASSERT_TRUE(store->Flush().ok());
  MustIngest(store.get(), 45, 70, "file over flushed");
  for (const bool reopened : {false, true}) {
    SCOPED_TRACE(reopened);
    if (reopened) {
      store = nullptr;
      store = MustOpen(WithoutLog(Options()));
    }
    ExpectAll(store.get(), 0, 10, "file");
    ExpectAll(store.get(), 10, 20, "memtable");
    ExpectAll(store.get(), 20, 30, "file over memtable");
    ExpectAll(store.get(), 30, 45, "memtable over file");
    ExpectAll(store.get(), 45, 70, "file over flushed");
    ExpectAll(store.get(), 70, 100, "file");
  }
}

TEST_F(KvFileTest, ASnapshotTakenBeforeDoesNotSeeIt) {
  auto store = MustOpen(WithoutLog(Options()));
  MustIngest(store.get(), 0, 10, "old");
  const auto snapshot = store->TakeSnapshot();
  MustIngest(store.get(), 5, 20, "new");
  int seen = 0;
  ASSERT_TRUE(snapshot
                  ->Scan("", "l",
                         [&](absl::string_view, absl::string_view value) {
                           EXPECT_EQ(value, "old");
                           return ++seen > 0;
                         })
                  .ok());
  EXPECT_EQ(seen, 10);
}

TEST_F(KvFileTest, WhatIsNotTakenOverIsDeleted) {
  const KvOptions options = WithoutLog(Options());
  auto store = MustOpen(options);
  {
    const auto file = MustMake(store.get());
    ASSERT_TRUE(Fill(file.get(), 0, 1000, std::string(1000, 'x')).ok());
    EXPECT_EQ(Incoming(), 1u);
  }
  EXPECT_EQ(Incoming(), 0u);
  EXPECT_FALSE(store->Get(Key(0)).ok());
  // As a kill leaves it.
  std::filesystem::create_directories(options.dir + "/incoming");
  std::ofstream(options.dir + "/incoming/1.sst") << "half a file";
  EXPECT_EQ(Incoming(), 1u);
  store = nullptr;
  store = MustOpen(options);
  EXPECT_EQ(Incoming(), 0u);
  MustIngest(store.get(), 0, 10, "after");
  ExpectAll(store.get(), 0, 10, "after");
}

TEST_F(KvFileTest, AFileDeletesEntries) {
  auto store = MustOpen(WithoutLog(Options()));
  MustIngest(store.get(), 0, 10, "before");
  {
    const auto file = MustMake(store.get());
    ASSERT_TRUE(file->Add(Key(1), "after").ok());
    ASSERT_TRUE(file->Delete(Key(2)).ok());
    ASSERT_TRUE(file->Delete(Key(20)).ok()) << "there is none of this key";
    ASSERT_TRUE(file->Ingest().ok());
  }
  store = nullptr;
  store = MustOpen(WithoutLog(Options()));
  ExpectAll(store.get(), 1, 2, "after");
  EXPECT_TRUE(absl::IsNotFound(store->Get(Key(2)).status()));
  ExpectAll(store.get(), 3, 10, "before");
}

TEST_F(KvFileTest, KeysMustGrow) {
  auto store = MustOpen(Options());
  const auto file = MustMake(store.get());
  ASSERT_TRUE(file->Add("b", "1").ok());
  EXPECT_EQ(file->Add("a", "1").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(store->GetUsage().background_error, "") << "the disk is well";
}

TEST_F(KvFileTest, FilesOfARangeAloneGoAtOnce) {
  auto store = MustOpen(WithoutLog(Options()));
  const std::string value(1000, 'x');
  MustIngest(store.get(), 0, 1000, value);
  MustIngest(store.get(), 1000, 2000, value);
  MustIngest(store.get(), 2000, 3000, value);
  const uint64_t before = store->GetUsage().disk_bytes;
  ASSERT_TRUE(store->DeleteFiles(Key(500), Key(2000)).ok());
  EXPECT_LT(store->GetUsage().disk_bytes, before - 1'000'000);
  ExpectAll(store.get(), 0, 1000, value);
  ExpectAll(store.get(), 2000, 3000, value);
  for (int i = 1000; i < 2000; ++i) ASSERT_FALSE(store->Get(Key(i)).ok()) << i;
  store = nullptr;
  store = MustOpen(WithoutLog(Options()));
  EXPECT_FALSE(store->Get(Key(1500)).ok());
}

TEST_F(KvFileTest, AFileThatFindsNoRoomLeavesTheStoreWell) {
  auto store = MustOpen(WithoutLog(Options()));
  const auto before = signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit small{64 << 10, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  {
    const auto file = MustMake(store.get());
    absl::Status status = Fill(file.get(), 0, 10000, std::string(1000, 'x'));
    if (status.ok()) status = file->Ingest();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_EQ(store->GetUsage().background_error, "");
  }
  EXPECT_EQ(Incoming(), 0u);
  EXPECT_FALSE(store->Get(Key(0)).ok()) << "nothing of it";
  MustIngest(store.get(), 0, 30, std::string(1000, 'x'));  // for this there is room
  MustPut(store.get(), Key(50), "x");
  EXPECT_TRUE(store->Flush().ok());
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  signal(SIGXFSZ, before);
  MustIngest(store.get(), 0, 10000, "x");
}

// Another error of the disk than want of room: the folder has become a file.
TEST_F(KvFileTest, AnErrorOfTheDiskIsToldUntilTheStoreIsResumed) {
  auto store = MustOpen(WithoutLog(Options()));
  const std::string incoming = Options().dir + "/incoming";
  {
    const auto file = MustMake(store.get());
    ASSERT_TRUE(Fill(file.get(), 0, 10, "x").ok());
    std::filesystem::remove_all(incoming);
    EXPECT_FALSE(file->Ingest().ok());
  }
  EXPECT_NE(store->GetUsage().background_error, "");
  EXPECT_FALSE(store->NewFile().ok()) << "until it is resumed";
  absl::Status resumed = absl::UnavailableError("not tried");
  for (int i = 0; i < 100 && !resumed.ok(); ++i) {
    resumed = store->TryResume();
    absl::SleepFor(absl::Milliseconds(20));
  }
  EXPECT_TRUE(resumed.ok()) << resumed;
  EXPECT_EQ(store->GetUsage().background_error, "");
  MustIngest(store.get(), 0, 100, "x");
}

TEST_F(KvFileTest, NothingIsTakenOverWhileTheStoreHasAnError) {
  auto store = MustOpen(WithoutLog(Options()));
  const auto file = MustMake(store.get());
  ASSERT_TRUE(Fill(file.get(), 0, 10, "file").ok());
  const auto before = signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit small{64 << 10, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  for (int i = 100; i < 400; ++i) MustPut(store.get(), Key(i), std::string(1000, 'x'));
  EXPECT_FALSE(store->Flush().ok());
  EXPECT_FALSE(file->Ingest().ok());
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  signal(SIGXFSZ, before);
  EXPECT_FALSE(store->Get(Key(0)).ok());
}

TEST_F(KvFileTest, BytesMaxCountsThem) {
  KvOptions options = WithoutLog(Options());
  options.bytes_max = 2 << 20;
  auto store = MustOpen(options);
  const std::string value(1000, 'x');
  MustIngest(store.get(), 0, 1000, value);
  {
    const auto file = MustMake(store.get());
    EXPECT_EQ(Fill(file.get(), 1000, 3000, value).code(), absl::StatusCode::kResourceExhausted);
  }
  EXPECT_LT(store->GetUsage().disk_bytes, options.bytes_max);
  // Written and flushed data counts against the limit too.
  MustIngest(store.get(), 1000, 1900, value);
  absl::Status status;
  for (int i = 5000; i < 7000 && status.ok(); ++i) {
    auto batch = store->NewBatch();
    batch->Put(Key(i), value);
    status = store->Write(batch.get());
    if (status.ok() && i % 100 == 99) status = store->Flush();
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_LT(store->GetUsage().disk_bytes, options.bytes_max + (512 << 10));
}

// Several threads write files at once.
TEST_F(KvFileTest, BytesMaxCountsFilesThatAreNotWhole) {
  KvOptions options = WithoutLog(Options());
  options.bytes_max = 3 << 20;
  auto store = MustOpen(options);
  const std::string value(1000, 'x');
  MustIngest(store.get(), 9000, 9900, value);
  std::vector<std::unique_ptr<KvFile>> files;
  for (int f = 0; f < 3; ++f) files.push_back(MustMake(store.get()));
  const auto add_to_each = [&](int first, int limit) {
    int added = 0;
    for (int i = first; i < limit; ++i) {
      for (int f = 0; f < 3; ++f) {
        if (files[f] == nullptr) continue;
        const absl::Status status = files[f]->Add(Key(3000 * f + i), value);
        if (!status.ok()) {
          EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
          files[f] = nullptr;  // what it had is there for the others
          return added;
        }
        ++added;
      }
    }
    return added;
  };
  EXPECT_NEAR(add_to_each(0, 3000), 2200, 50) << "of 3 MiB, less the 900 before";
  EXPECT_GT(add_to_each(1000, 1200), 300);
  for (int f = 0; f < 3; ++f) {
    if (files[f] != nullptr) {
      EXPECT_TRUE(files[f]->Ingest().ok());
    }
  }
  files.clear();
  EXPECT_LT(store->GetUsage().disk_bytes, options.bytes_max);
  EXPECT_EQ(store->GetUsage().background_error, "");
  // Entries that the store has taken over are counted once.
  const uint64_t left = options.bytes_max - store->GetUsage().disk_bytes;
  const auto file = MustMake(store.get());
  EXPECT_TRUE(Fill(file.get(), 9900, 9900 + static_cast<int>(left / 1100), value).ok());
  EXPECT_FALSE(Fill(file.get(), 20'000, 20'300, value).ok());
}

}  // namespace kv_file_test
}  // namespace hotbed
