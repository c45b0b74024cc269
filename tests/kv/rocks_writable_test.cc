#include "kv/rocks_writable.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>

#include "common/clock.h"
#include "common/random.h"
#include "rocksdb/file_system.h"
#include "tests/common/test_seed.h"
#include "tests/kv/kv_fixture.h"

namespace hotbed {
namespace rocks_writable_test {

using rocksdb::FileOptions;
using rocksdb::FSWritableFile;
using rocksdb::IOOptions;
using rocksdb::IOStatus;

constexpr int64_t kMs = 1'000'000;

class RocksWritableTest : public KvFixture {
 protected:
  RocksWritableTest()
      : before_(signal(SIGXFSZ, SIG_IGN)), files_(NewWaitingFileSystem(dir_, &room_)) {
    getrlimit(RLIMIT_FSIZE, &free_);
    room_.StartWaiting();
  }
  ~RocksWritableTest() override {
    Limit(free_.rlim_cur);
    signal(SIGXFSZ, before_);
  }
  void Limit(rlim_t bytes) const {
    const rlimit limit{bytes, free_.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  static std::unique_ptr<FSWritableFile> MustOpen(rocksdb::FileSystem* files,
                                                  const std::string& path) {
    FileOptions options;
    options.strict_bytes_per_sync = true;
    std::unique_ptr<FSWritableFile> file;
    const IOStatus status = files->NewWritableFile(path, options, &file, nullptr);
    EXPECT_TRUE(status.ok()) << status.ToString();
    return file;
  }
  static IOStatus Append(FSWritableFile* file, const std::string& data) {
    return file->Append(data, IOOptions(), nullptr);
  }
  static std::string Content(const std::string& path) {
    std::stringstream content;
    content << std::ifstream(path, std::ios::binary).rdbuf();
    return content.str();
  }
  std::string RandomBytes(uint64_t bytes) {
    std::string data(bytes, '\0');
    for (char& c : data) c = static_cast<char>(random_.Next());
    return data;
  }

  const TestSeed seed_{7};
  Random random_{seed_.value()};
  rlimit free_{};
  const sighandler_t before_;
  RocksRoom room_;
  std::shared_ptr<rocksdb::FileSystem> files_;
};

// The same calls go to a file of RocksDB's own.
TEST_F(RocksWritableTest, DoesWhatRocksDbsOwnFileDoes) {
  const std::string paths[] = {dir_ + "/ours", dir_ + "/theirs"};
  uint64_t blocks[2];
  const std::string data = RandomBytes(300'000);
  for (int i = 0; i < 2; ++i) {
    rocksdb::FileSystem* files = i == 0 ? files_.get() : rocksdb::FileSystem::Default().get();
    std::ofstream(paths[i]) << "what was there before";
    auto file = MustOpen(files, paths[i]);
    file->SetPreallocationBlockSize(1 << 20);
    for (size_t at = 0; at < data.size(); at += 1000) {
      file->PrepareWrite(at, 1000, IOOptions(), nullptr);
      ASSERT_TRUE(Append(file.get(), data.substr(at, 1000)).ok());
      if (at % 100'000 == 0) {
        ASSERT_TRUE(file->RangeSync(0, at, IOOptions(), nullptr).ok());
      }
    }
    EXPECT_EQ(file->GetFileSize(IOOptions(), nullptr), data.size());
    EXPECT_TRUE(file->Sync(IOOptions(), nullptr).ok());
    EXPECT_TRUE(file->Fsync(IOOptions(), nullptr).ok());
    EXPECT_TRUE(file->InvalidateCache(0, 0).ok());
    EXPECT_TRUE(file->IsSyncThreadSafe());
    ASSERT_TRUE(file->Truncate(250'001, IOOptions(), nullptr).ok());
    EXPECT_EQ(file->GetFileSize(IOOptions(), nullptr), 250'001u);
    ASSERT_TRUE(file->Close(IOOptions(), nullptr).ok());
    EXPECT_EQ(Content(paths[i]), data.substr(0, 250'001));
    struct stat now {};
    ASSERT_EQ(stat(paths[i].c_str(), &now), 0);
    EXPECT_EQ(now.st_mode & 0777, 0644u);
    blocks[i] = static_cast<uint64_t>(now.st_blocks);
  }
  EXPECT_EQ(blocks[0], blocks[1]) << "room that was allocated ahead";
}

// The limit lies anywhere, mostly in the middle of a piece, and moves on.
TEST_F(RocksWritableTest, GoesOnWhereTheDiskStoppedIt) {
  std::string all;
  auto file = MustOpen(files_.get(), dir_ + "/file");
  Limit(1);
  std::atomic<bool> ends{false};
  std::thread writer([&] {
    for (int i = 0; i < 40; ++i) {
      const std::string piece = RandomBytes(random_.Uniform(20'000));
      EXPECT_TRUE(Append(file.get(), piece).ok());
      all += piece;
    }
    ends = true;
  });
  Random limits(seed_.value() + 1);
  bool told = false;
  for (rlim_t limit = 1; !ends; limit += limits.Uniform(60'000)) {
    Limit(limit);
    Clock::Real()->SleepNs(20 * kMs);
    told |= room_.error().IsNoSpace();
  }
  writer.join();
  Limit(free_.rlim_cur);
  EXPECT_TRUE(told);
  EXPECT_EQ(file->GetFileSize(IOOptions(), nullptr), all.size());
  file = nullptr;
  EXPECT_TRUE(Content(dir_ + "/file") == all);
  Clock::Real()->SleepNs(300 * kMs);
  EXPECT_TRUE(room_.error().ok());
}

TEST_F(RocksWritableTest, OnlyTheStoresOwnFilesWait) {
  std::filesystem::create_directories(dir_ + "/incoming");
  const std::string data(1000, 'x');
  for (const char* name : {"/incoming/1.sst", "/000001.log"}) {
    auto file = MustOpen(files_.get(), dir_ + name);
    Limit(100);
    EXPECT_TRUE(Append(file.get(), data).IsIOError()) << name;
    Limit(free_.rlim_cur);
  }
  EXPECT_TRUE(room_.error().ok()) << "nobody waited";
}

TEST_F(RocksWritableTest, OtherErrorsAreGivenBack) {
  std::unique_ptr<FSWritableFile> file;
  std::filesystem::create_directories(dir_ + "/folder");
  EXPECT_TRUE(files_->NewWritableFile(dir_ + "/folder", FileOptions(), &file, nullptr).IsIOError());
  EXPECT_EQ(file, nullptr);
  EXPECT_FALSE(files_->RenameFile(dir_ + "/none", dir_ + "/new", IOOptions(), nullptr).ok());
  RocksRoom::Try tried(&room_, dir_);
  EXPECT_FALSE(tried.Again(EIO));
  EXPECT_TRUE(room_.error().ok());
}

TEST_F(RocksWritableTest, ARoomThatStopsWaitingLetsWaitersGo) {
  auto file = MustOpen(files_.get(), dir_ + "/file");
  Limit(100);
  std::atomic<bool> refused{false};
  std::thread writer([&] { refused = Append(file.get(), std::string(1000, 'x')).IsIOError(); });
  while (room_.error().ok()) Clock::Real()->SleepNs(kMs);
  Clock::Real()->SleepNs(100 * kMs);
  EXPECT_FALSE(refused);
  room_.StopWaiting();
  writer.join();
  EXPECT_TRUE(refused);
  EXPECT_TRUE(Append(file.get(), "x").IsIOError()) << "and nobody waits after";
}

}  // namespace rocks_writable_test
}  // namespace hotbed
