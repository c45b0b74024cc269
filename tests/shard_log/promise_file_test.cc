#include "server/shard_log/promise_file.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/fault_file_system.h"

namespace hotbed {
namespace promise_file_test {

using ::testing::HasSubstr;

constexpr char kPath[] = "/promises";
constexpr ShardId kA{1, 0};
constexpr ShardId kB{1, 1};
constexpr ShardId kC{2, 0};

class PromiseFileTest : public ::testing::Test {
 protected:
  std::unique_ptr<PromiseFile> Open() { return *PromiseFile::Open(File(), /*make=*/true); }
  KeptFile File() { return KeptFile(kPath, &files_, {}); }
  FaultFileSystem files_{1};
};

TEST_F(PromiseFileTest, PromisesSurviveAPowerLossAndNeverFall) {
  auto promises = Open();
  EXPECT_EQ(promises->Get(kA), 0);
  ASSERT_TRUE(promises->Raise({{kA, 3}, {kB, 5}}).ok());
  ASSERT_TRUE(promises->Raise({{kA, 2}, {kB, 6}, {kC, 1}}).ok());
  files_.Crash();
  promises = Open();
  EXPECT_EQ(promises->Get(kA), 3);
  EXPECT_EQ(promises->Get(kB), 6);
  EXPECT_EQ(promises->Get(kC), 1);
}

TEST_F(PromiseFileTest, HoldersBelongToTheirEpoch) {
  using ::testing::ElementsAre;
  auto promises = Open();
  ASSERT_TRUE(promises->Raise({{kA, 3, {1, 2}}, {kB, 5, {}}, {kC, 2, {7}}}).ok());
  ASSERT_TRUE(promises->Raise({{kA, 2, {9}}}).ok());
  ASSERT_TRUE(promises->Raise({{kC, 2, {}}}).ok());
  promises = Open();
  EXPECT_THAT(promises->Find(kA).holders, ElementsAre(1, 2)) << "those of an earlier epoch";
  EXPECT_THAT(promises->Find(kB).holders, ElementsAre());
  EXPECT_THAT(promises->Find(kC).holders, ElementsAre(7)) << "what is not known takes nothing away";
  ASSERT_TRUE(promises->Raise({{kA, 3, {1}}, {kC, 3, {}}}).ok());
  files_.Crash();
  promises = Open();
  EXPECT_THAT(promises->Find(kA).holders, ElementsAre(1));
  EXPECT_EQ(promises->Get(kA), 3);
  EXPECT_THAT(promises->Find(kC).holders, ElementsAre()) << "of the new epoch none are known";
}

TEST_F(PromiseFileTest, AMissingFileIsNamed) {
  const absl::Status missing = PromiseFile::Open(File(), /*make=*/false).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(missing.message()), HasSubstr(kPath));
}

TEST_F(PromiseFileTest, AFailedWriteChangesNothing) {
  auto promises = Open();
  ASSERT_TRUE(promises->Raise({{kA, 3}}).ok());
  files_.SetFreeBytes(4);
  EXPECT_EQ(promises->Raise({{kA, 4}}).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(promises->Get(kA), 3);
  EXPECT_TRUE(promises->Raise({{kA, 3}}).ok()) << "nothing to raise, nothing to write";
  EXPECT_EQ(Open()->Get(kA), 3);
}

TEST_F(PromiseFileTest, ADroppedTableIsForgotten) {
  auto promises = Open();
  ASSERT_TRUE(promises->Raise({{kA, 3}, {kB, 5}, {kC, 7}}).ok());
  ASSERT_TRUE(promises->ForgetTable(1).ok());
  EXPECT_EQ(Open()->Get(kA), 0);
  EXPECT_EQ(Open()->Get(kC), 7);
}

TEST_F(PromiseFileTest, EveryFlippedByteIsFound) {
  ASSERT_TRUE(Open()->Raise({{kA, 3, {1, 2}}, {kB, 5}}).ok());
  const uint64_t size = *files_.FileSize(kPath);
  for (uint64_t at = 0; at < size; ++at) {
    files_.FlipBit(kPath, at, 2);
    const auto promises = PromiseFile::Open(File(), /*make=*/false);
    EXPECT_FALSE(promises.ok()) << "byte " << at;
    files_.FlipBit(kPath, at, 2);
  }
  EXPECT_EQ(Open()->Get(kB), 5);
}

TEST_F(PromiseFileTest, AnotherVersionIsRefusedWithBothNumbers) {
  ASSERT_TRUE(Open()->Raise({{kA, 3}}).ok());
  files_.FlipBit(kPath, 8, 3);
  const auto promises = PromiseFile::Open(File(), /*make=*/false);
  EXPECT_EQ(promises.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(promises.status().message()), HasSubstr("version 10"));
  EXPECT_THAT(std::string(promises.status().message()), HasSubstr("version 2"));
  // No version that keeps the checksum where this one does wrote that.
  EXPECT_THAT(std::string(promises.status().message()), HasSubstr("it is damaged"));
}

}  // namespace promise_file_test
}  // namespace hotbed
