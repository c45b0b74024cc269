#include "common/files/file_system.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits.h>
#include <sys/uio.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/common/fault_file_system.h"

namespace hotbed {
namespace file_system_test {

// The same contract for the real file system and the one in memory.
class FileSystemTest : public testing::TestWithParam<bool> {
 protected:
  FileSystemTest() : in_memory_(1) {
    if (GetParam()) {
      dir_ = "/data";
      EXPECT_TRUE(in_memory_.MakeDir(dir_).ok());
    } else {
      std::string pattern = testing::TempDir() + "hotbed_file_system_XXXXXX";
      dir_ = mkdtemp(pattern.data());
    }
  }
  ~FileSystemTest() override {
    if (!GetParam()) std::filesystem::remove_all(dir_);
  }

  FileSystem* fs() { return GetParam() ? &in_memory_ : FileSystem::Real(); }
  std::string Path(const std::string& name) const { return dir_ + "/" + name; }

  static absl::Status Append(WritableFile* file, const std::vector<std::string>& pieces) {
    std::vector<iovec> vectors;
    for (const std::string& piece : pieces) {
      vectors.push_back({const_cast<char*>(piece.data()), piece.size()});
    }
    return file->Append(vectors);
  }

  FaultFileSystem in_memory_;
  std::string dir_;
};

TEST_P(FileSystemTest, AppendsInPiecesAndGoesOnWhereItStopped) {
  const std::string path = Path("a");
  {
    auto file = fs()->OpenAppend(path);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_TRUE(Append(file->get(), {"ab", "", "c"}).ok());
    EXPECT_TRUE(Append(file->get(), {}).ok());
    EXPECT_EQ((*file)->size(), 3u);
    EXPECT_TRUE((*file)->Sync().ok());
    EXPECT_TRUE((*file)->Close().ok());
  }
  auto file = fs()->OpenAppend(path);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ((*file)->size(), 3u);
  EXPECT_TRUE(Append(file->get(), {"defg"}).ok());
  EXPECT_TRUE((*file)->Truncate(5).ok());
  EXPECT_TRUE(Append(file->get(), {"X"}).ok());
  EXPECT_EQ(*fs()->ReadAll(path), "abcdeX");
  EXPECT_EQ(*fs()->FileSize(path), 6u);
  char buffer[8] = {};
  EXPECT_EQ(*fs()->ReadAt(path, 4, 8, buffer), 2u);
  EXPECT_EQ(std::string(buffer), "eX");
  EXPECT_EQ(*fs()->ReadAt(path, 6, 8, buffer), 0u);
}

TEST_P(FileSystemTest, ExpectedAppendsChangeNeitherSizeNorContent) {
  const std::string path = Path("expected");
  auto file = fs()->OpenAppend(path);
  ASSERT_TRUE(file.ok());
  (*file)->ExpectAppends(1 << 20);
  EXPECT_EQ((*file)->size(), 0u);
  EXPECT_EQ(*fs()->FileSize(path), 0u);
  ASSERT_TRUE(Append(file->get(), {"abc"}).ok());
  (*file)->ExpectAppends(1 << 20);
  EXPECT_EQ(*fs()->FileSize(path), 3u);
  EXPECT_EQ(*fs()->ReadAll(path), "abc");
}

TEST_P(FileSystemTest, WritesOverAFileAndRenamesIt) {
  ASSERT_TRUE(fs()->WriteAtomically(Path("a"), "0123456789").ok());
  EXPECT_TRUE(fs()->InMemory(Path("a")));
  auto file = fs()->OpenAt(Path("a"), 2);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE(Append(file->get(), {"ab", "c"}).ok());
  EXPECT_EQ((*file)->size(), 5u);
  EXPECT_EQ(*fs()->ReadAll(Path("a")), "01abc56789");
  ASSERT_TRUE(fs()->Rename(Path("a"), Path("b")).ok());
  EXPECT_FALSE(fs()->Exists(Path("a")));
  ASSERT_TRUE(Append(file->get(), {"defghijk"}).ok());
  EXPECT_EQ(*fs()->ReadAll(Path("b")), "01abcdefghijk");
  ASSERT_TRUE((*file)->Truncate(3).ok());
  EXPECT_EQ(*fs()->ReadAll(Path("b")), "01a");
  EXPECT_EQ(fs()->OpenAt(Path("a"), 0).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(fs()->Rename(Path("a"), Path("c")).code(), absl::StatusCode::kNotFound);
}

TEST_P(FileSystemTest, MorePiecesThanOneCallTakes) {
  std::vector<std::string> pieces;
  std::string expected;
  for (int i = 0; i < 3 * IOV_MAX + 7; ++i) {
    pieces.push_back(std::string(i % 5, static_cast<char>('a' + i % 26)));
    expected += pieces.back();
  }
  auto file = fs()->OpenAppend(Path("many"));
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(Append(file->get(), pieces).ok());
  EXPECT_EQ(*fs()->ReadAll(Path("many")), expected);
}

TEST_P(FileSystemTest, WritesAtomicallyAndLists) {
  EXPECT_TRUE(fs()->WriteAtomically(Path("b"), "one").ok());
  EXPECT_TRUE(fs()->WriteAtomically(Path("b"), "two").ok());
  EXPECT_TRUE(fs()->WriteAtomically(Path("a"), "").ok());
  EXPECT_TRUE(fs()->MakeDir(Path("x/y")).ok());
  EXPECT_TRUE(fs()->MakeDir(Path("x/y")).ok());
  EXPECT_EQ(*fs()->ReadAll(Path("b")), "two");
  EXPECT_THAT(*fs()->List(dir_), testing::ElementsAre("a", "b", "x"));
  EXPECT_TRUE(fs()->Delete(Path("b")).ok());
  EXPECT_FALSE(fs()->Exists(Path("b")));
  EXPECT_TRUE(fs()->Exists(Path("x/y")));
  EXPECT_TRUE(fs()->SyncDir(dir_).ok());
}

TEST_P(FileSystemTest, MissingIsNotFoundAndNamed) {
  const std::string path = Path("none");
  EXPECT_EQ(fs()->ReadAll(path).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(fs()->ReadAll(path).status().message()), testing::HasSubstr(path));
  EXPECT_EQ(fs()->FileSize(path).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(fs()->Delete(path).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(fs()->List(path).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(fs()->OpenAppend(Path("none/a")).status().code(), absl::StatusCode::kNotFound);
}

TEST_P(FileSystemTest, ALockHasOneHolder) {
  auto first = fs()->Lock(Path("LOCK"));
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(fs()->Lock(Path("LOCK")).status().code(), absl::StatusCode::kAlreadyExists);
  first->reset();
  EXPECT_TRUE(fs()->Lock(Path("LOCK")).ok());
}

INSTANTIATE_TEST_SUITE_P(All, FileSystemTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Memory" : "Real"; });

TEST(PosixFileSystem, TheHolderOfALockIsNamed) {
  const std::string path = testing::TempDir() + "hotbed_lock_" + std::to_string(getpid());
  auto lock = FileSystem::Real()->Lock(path);
  ASSERT_TRUE(lock.ok());
  EXPECT_THAT(std::string(FileSystem::Real()->Lock(path).status().message()),
              testing::HasSubstr("process " + std::to_string(getpid())));
  unlink(path.c_str());
}

TEST(PosixFileSystem, NoSpaceIsResourceExhausted) {
  auto file = FileSystem::Real()->OpenAppend("/dev/full");
  if (!file.ok()) GTEST_SKIP() << "no /dev/full here";
  const iovec piece = {const_cast<char*>("x"), 1};
  EXPECT_EQ((*file)->Append({&piece, 1}).code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace file_system_test
}  // namespace hotbed
