#include "server/host/data_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/common/fault_file_system.h"

namespace hotbed {
namespace data_directory_test {

using ::testing::HasSubstr;

constexpr char kDataPath[] = "/data";
constexpr ShardId kHeldShard{1, 0};

class DataDirectoryTest : public testing::Test {
 protected:
  void Open() {
    data_.reset();
    auto opened = DataDirectory::Open(kDataPath, &files_);
    ASSERT_TRUE(opened.ok()) << opened.status();
    data_ = *std::move(opened);
  }
  absl::Status AddShard() {
    return data_->ChangeCatalog([](Catalog* catalog) {
      catalog->tables[1].id = 1;
      catalog->shards[kHeldShard] = {0, 10, 0, 4};
    });
  }
  FaultFileSystem files_{1};
  std::unique_ptr<DataDirectory> data_;
};

TEST_F(DataDirectoryTest, OnlyOneProcessAtATime) {
  Open();
  EXPECT_FALSE(DataDirectory::Open(kDataPath, &files_).ok());
}

TEST_F(DataDirectoryTest, IsCleanOnlyAfterItsMark) {
  Open();
  EXPECT_TRUE(data_->was_clean()) << "it is new";
  ASSERT_TRUE(data_->MarkRecovered().ok());
  Open();
  EXPECT_FALSE(data_->was_clean()) << "the last run did not mark it";
  ASSERT_TRUE(data_->MarkClean().ok());
  Open();
  EXPECT_TRUE(data_->was_clean());
  Open();
  EXPECT_FALSE(data_->was_clean()) << "a mark counts once";
}

TEST_F(DataDirectoryTest, BelongsToOneServerForGood) {
  Open();
  ASSERT_TRUE(data_->SetIdentity({7, "a"}).ok());
  data_->SetIncarnation(3);
  Open();
  EXPECT_TRUE(data_->SetIdentity({7, "a"}).ok());
  EXPECT_EQ(data_->self(), (Member{7, 0})) << "another process, another incarnation";
  data_->LearnServers({{7, "s7"}, {9, "s=9"}});
  Open();
  EXPECT_EQ(data_->servers().size(), 2u);
  EXPECT_EQ(data_->servers()[9], "s=9");
  const absl::Status other = data_->SetIdentity({8, "a"});
  EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(other.message()), HasSubstr("belongs to server 7 of cluster a"));
}

TEST_F(DataDirectoryTest, ACatalogThatCannotBeWrittenStaysAsItWas) {
  Open();
  files_.SetFreeBytes(4);
  EXPECT_FALSE(AddShard().ok());
  EXPECT_TRUE(data_->catalog()->shards.empty());
  files_.SetFreeBytes(1 << 20);
  ASSERT_TRUE(AddShard().ok());
  Open();
  EXPECT_TRUE(data_->catalog()->shards.contains(kHeldShard));
}

TEST_F(DataDirectoryTest, WhatIsForgottenIsForgottenInMemoryAtLeast) {
  Open();
  ASSERT_TRUE(AddShard().ok());
  const auto before = data_->catalog();
  files_.SetFreeBytes(4);
  data_->ForgetInCatalog([](Catalog* catalog) { catalog->shards.clear(); });
  EXPECT_TRUE(data_->catalog()->shards.empty());
  EXPECT_TRUE(before->shards.contains(kHeldShard))
      << "a catalog that was handed out does not change";
  files_.SetFreeBytes(1 << 20);
  Open();
  EXPECT_TRUE(data_->catalog()->shards.contains(kHeldShard));
}

TEST_F(DataDirectoryTest, ADirectoryOfSomethingElseIsRefusedUntouched) {
  ASSERT_TRUE(files_.MakeDir(kDataPath).ok());
  ASSERT_TRUE(files_.WriteAtomically("/data/thesis.tex", "x").ok());
  const absl::Status refused = DataDirectory::Open(kDataPath, &files_).status();
  EXPECT_THAT(std::string(refused.message()), HasSubstr("holds \"thesis.tex\" but no IDENTITY"));
  EXPECT_FALSE(files_.Exists("/data/LOCK"));
}

}  // namespace data_directory_test
}  // namespace hotbed
