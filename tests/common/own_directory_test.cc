#include "common/files/own_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace hotbed {
namespace own_directory_test {

using testing::HasSubstr;

class OwnDirectoryTest : public testing::Test {
 protected:
  OwnDirectoryTest() {
    std::string pattern = testing::TempDir() + "hotbed_own_XXXXXX";
    path_ = mkdtemp(pattern.data());
  }
  ~OwnDirectoryTest() override { std::filesystem::remove_all(path_); }

  static absl::Status Claim(const std::string& path) {
    return ClaimDirectory(path, "IDENTITY", {"LOCK", "log"}, FileSystem::Real());
  }
  void Put(const std::string& name) { std::ofstream(path_ + "/" + name) << "x"; }

  std::string path_;
};

TEST_F(OwnDirectoryTest, ANewOneIsMadeForTheOwnerAlone) {
  const std::string path = path_ + "/a/b";
  ASSERT_TRUE(Claim(path).ok());
  for (const std::string& made : {path_ + "/a", path}) {
    struct stat info {};
    ASSERT_EQ(stat(made.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0700u) << made;
  }
}

TEST_F(OwnDirectoryTest, ForeignFilesAreLeftAlone) {
  Put("LOCK");
  Put("IDENTITY.tmp");
  std::filesystem::create_directory(path_ + "/lost+found");
  EXPECT_TRUE(Claim(path_).ok());
  Put("thesis.tex");
  const absl::Status refused = Claim(path_);
  EXPECT_TRUE(absl::IsFailedPrecondition(refused));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("holds \"thesis.tex\" but no IDENTITY"));
  Put("IDENTITY");
  EXPECT_TRUE(Claim(path_).ok()) << "it is a server's";
}

TEST_F(OwnDirectoryTest, TheRootIsNobodys) {
  EXPECT_THAT(std::string(Claim("/").message()), HasSubstr("is the root directory"));
  EXPECT_TRUE(absl::IsFailedPrecondition(Claim("//")));
  EXPECT_TRUE(absl::IsFailedPrecondition(Claim("/usr/..")));
}

TEST_F(OwnDirectoryTest, FilesAreForTheOwnerAloneAndALockFollowsNoLink) {
  FileSystem* const files = FileSystem::Real();
  ASSERT_TRUE(files->WriteAtomically(path_ + "/a", "x").ok());
  ASSERT_TRUE(files->OpenAppend(path_ + "/b").ok());
  ASSERT_TRUE(files->Lock(path_ + "/LOCK").ok());
  for (const char* name : {"/a", "/b", "/LOCK"}) {
    struct stat info {};
    ASSERT_EQ(stat((path_ + name).c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u) << name;
  }
  ASSERT_EQ(symlink((path_ + "/a").c_str(), (path_ + "/link").c_str()), 0);
  const absl::Status refused = files->Lock(path_ + "/link").status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("is a symbolic link"));
  EXPECT_EQ(*files->ReadAll(path_ + "/a"), "x");
}

}  // namespace own_directory_test
}  // namespace hotbed
