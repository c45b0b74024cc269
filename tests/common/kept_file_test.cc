#include "common/files/kept_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/common/fault_file_system.h"

namespace hotbed {
namespace kept_file_test {

using ::testing::HasSubstr;

constexpr char kPath[] = "/CATALOG";

class KeptFileTest : public ::testing::Test {
 protected:
  KeptFileTest() : marks_(*Marks::Open("/MARKS", &files_, /*make=*/true)) {}
  KeptFile File(uint64_t run, uint64_t run_before) {
    return KeptFile(
        kPath, &files_,
        {.marks = marks_.get(), .field = Marks::kCatalog, .run = run, .run_before = run_before});
  }
  std::string Bytes() { return *files_.ReadAll(kPath); }
  void Put(const std::string& bytes) { ASSERT_TRUE(files_.WriteAtomically(kPath, bytes).ok()); }
  void ExpectRefused(KeptFile file, const std::string& why) {
    const absl::Status refused = file.Read().status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kDataLoss) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr(kPath));
    EXPECT_THAT(std::string(refused.message()), HasSubstr(why));
  }
  FaultFileSystem files_{1};
  std::unique_ptr<Marks> marks_;
};

TEST_F(KeptFileTest, ReadsWhatWasWrittenLast) {
  KeptFile file = File(1, 0);
  EXPECT_EQ(file.Read().status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(file.Write("one").ok());
  ASSERT_TRUE(file.Write("two").ok());
  EXPECT_EQ(*File(2, 1).Read(), "two");
}

TEST_F(KeptFileTest, AnOlderOneIsRefused) {
  KeptFile file = File(1, 0);
  ASSERT_TRUE(file.Write("one").ok());
  const std::string older = Bytes();
  ASSERT_TRUE(file.Write("two").ok());
  Put(older);
  ExpectRefused(File(2, 1), "older");
}

TEST_F(KeptFileTest, OneOfAReplicaIsRefused) {
  KeptFile file = File(1, 0);
  ASSERT_TRUE(file.Write("one").ok());
  const std::string common = Bytes();
  // The copy goes on as run 9, without these marks.
  KeptFile copy(kPath, &files_, {.run = 9});
  ASSERT_TRUE(copy.Read().ok());
  ASSERT_TRUE(copy.Write("copied").ok());
  const std::string copied = Bytes();
  ASSERT_TRUE(copy.Write("copied twice").ok());
  const std::string copied_twice = Bytes();
  Put(common);
  KeptFile again = File(2, 1);
  ASSERT_TRUE(again.Read().ok());
  ASSERT_TRUE(again.Write("two").ok());
  Put(copied);
  ExpectRefused(File(3, 2), "copy");
  Put(copied_twice);
  ExpectRefused(File(3, 2), "copy");
}

TEST_F(KeptFileTest, AWriteThatAKillKeptFromItsMarkCounts) {
  KeptFile file = File(1, 0);
  ASSERT_TRUE(file.Write("one").ok());
  const Mark before = marks_->Get(Marks::kCatalog);
  ASSERT_TRUE(file.Write("two").ok());
  marks_->Set(Marks::kCatalog, before);
  EXPECT_EQ(*File(2, 1).Read(), "two");
}

TEST_F(KeptFileTest, EveryCutIsFound) {
  KeptFile file = File(1, 0);
  ASSERT_TRUE(file.Write("some content").ok());
  const std::string whole = Bytes();
  for (size_t size = 0; size < whole.size(); ++size) {
    Put(whole.substr(0, size));
    ExpectRefused(File(2, 1), "cut short");
  }
}

}  // namespace kept_file_test
}  // namespace hotbed
