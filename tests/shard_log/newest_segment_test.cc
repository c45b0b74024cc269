#include "server/shard_log/newest_segment.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace hotbed {
namespace newest_segment_test {

constexpr uint64_t kMiB = 1ull << 20;

// A file in memory that counts the space that it was told to expect.
class MemoryFile final : public WritableFile {
 public:
  MemoryFile(std::string* content, std::vector<uint64_t>* expected)
      : content_(content), expected_(expected) {}
  absl::Status Append(absl::Span<const iovec> pieces) override {
    for (const iovec& piece : pieces) {
      content_->append(static_cast<const char*>(piece.iov_base), piece.iov_len);
    }
    return full ? absl::ResourceExhaustedError("full") : absl::OkStatus();
  }
  void ExpectAppends(uint64_t bytes) override { expected_->push_back(bytes); }
  absl::Status Sync() override { return absl::OkStatus(); }
  absl::Status Truncate(uint64_t size) override {
    content_->resize(size);
    return absl::OkStatus();
  }
  uint64_t size() const override { return content_->size(); }
  absl::Status Close() override { return absl::OkStatus(); }

  bool full = false;

 private:
  std::string* const content_;
  std::vector<uint64_t>* const expected_;
};

class NewestSegmentTest : public ::testing::Test {
 protected:
  NewestSegmentTest() {
    auto file = std::make_unique<MemoryFile>(&content_, &expected_);
    file_ = file.get();
    segment_ = NewestSegment(std::move(file), /*bytes=*/4, /*bytes_max=*/20 * kMiB);
  }
  absl::Status Append(std::string text) {
    const iovec piece = {text.data(), text.size()};
    return segment_.Append({&piece, 1}, text.size());
  }

  std::string content_ = "head";
  std::vector<uint64_t> expected_;
  MemoryFile* file_ = nullptr;
  NewestSegment segment_;
};

TEST_F(NewestSegmentTest, CutBackTakesOutAppendsThatDoNotCount) {
  ASSERT_TRUE(Append("one").ok());
  segment_.Keep(3);
  file_->full = true;
  ASSERT_FALSE(Append("two").ok());
  EXPECT_EQ(segment_.bytes(), 7u);
  ASSERT_TRUE(segment_.CutBack().ok());
  EXPECT_EQ(content_, "headone");
}

TEST_F(NewestSegmentTest, AProbeLeavesTheFileAsItWas) {
  ASSERT_TRUE(segment_.Probe().ok());
  EXPECT_EQ(content_, "head");
  file_->full = true;
  EXPECT_EQ(segment_.Probe().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(content_, "head");
}

TEST_F(NewestSegmentTest, SpaceIsSetAsideInStepsAndNotBeyondTheLimit) {
  ASSERT_TRUE(Append("one").ok());
  segment_.Keep(3);
  ASSERT_TRUE(Append("two").ok());
  EXPECT_EQ(expected_, std::vector<uint64_t>({16 * kMiB})) << "the second append needs no more";
  segment_.Keep(16 * kMiB);
  ASSERT_TRUE(Append("three").ok());
  EXPECT_EQ(expected_.back(), 4 * kMiB - 7) << "up to the limit";
  segment_.Keep(4 * kMiB);
  const size_t before = expected_.size();
  ASSERT_TRUE(Append("four").ok());
  EXPECT_EQ(expected_.size(), before) << "nothing beyond the limit";
}

}  // namespace newest_segment_test
}  // namespace hotbed
