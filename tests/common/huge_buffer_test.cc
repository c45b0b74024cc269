#include "common/huge_buffer.h"

#include <gtest/gtest.h>

#include <utility>

namespace hotbed {
namespace huge_buffer_test {

TEST(HugeBuffer, IsAlignedZeroedAndRoundedUp) {
  const absl::StatusOr<HugeBuffer> buffer = HugeBuffer::Allocate(kHugePageBytes + 1);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  EXPECT_EQ(buffer->size(), 2 * kHugePageBytes);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % kHugePageBytes, 0u);
  EXPECT_EQ(buffer->data()[0], 0);
  buffer->data()[buffer->size() - 1] = 7;
  EXPECT_EQ(buffer->data()[buffer->size() - 1], 7);
}

TEST(HugeBuffer, MovesItsMemory) {
  HugeBuffer first = *HugeBuffer::Allocate(1);
  uint8_t* const data = first.data();
  data[3] = 9;
  HugeBuffer second = std::move(first);
  EXPECT_EQ(second.data(), data);
  EXPECT_EQ(first.data(), nullptr);  // NOLINT(bugprone-use-after-move): what it promises
  first = std::move(second);
  EXPECT_EQ(first.data()[3], 9);
}

TEST(HugeBuffer, NothingAndTooMuch) {
  EXPECT_EQ(HugeBuffer::Allocate(0)->size(), 0u);
  EXPECT_EQ(HugeBuffer::Allocate(SIZE_MAX).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(HugeBuffer::Allocate(size_t{1} << 60).status().code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace huge_buffer_test
}  // namespace hotbed
