#include "server/answer_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <vector>

namespace hotbed {
namespace {

TEST(AnswerPoolTest, BuffersAreAlignedApartAndRecycled) {
  const auto pool = AnswerPool::Create(8 << 20);
  std::vector<AnswerBuffer*> buffers;
  for (const size_t bytes : {1, 4096, 4097, 130'000, 300'000, 3'000'000}) {
    AnswerBuffer* const buffer = pool->Take(bytes);
    EXPECT_GE(buffer->capacity, bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data) % 64, 0u);
    std::memset(buffer->data, static_cast<int>(buffers.size() + 1), bytes);
    buffers.push_back(buffer);
  }
  for (size_t i = 0; i < buffers.size(); ++i) EXPECT_EQ(buffers[i]->data[0], i + 1);
  uint8_t* const again = buffers[3]->data;
  AnswerPool::Give(buffers[3]);
  AnswerBuffer* const recycled = pool->Take(131'072);
  EXPECT_EQ(recycled->data, again);
  buffers[3] = recycled;
  for (AnswerBuffer* buffer : buffers) AnswerPool::Give(buffer);
}

TEST(AnswerPoolTest, BeyondItsLimitBuffersComeFromTheHeap) {
  const auto pool = AnswerPool::Create(2 << 20);
  std::vector<AnswerBuffer*> buffers;
  std::set<uint8_t*> places;
  for (int i = 0; i < 5; ++i) {
    buffers.push_back(pool->Take(1 << 20));
    places.insert(buffers.back()->data);
    EXPECT_LE(pool->pooled_bytes(), 2u << 20);
  }
  EXPECT_EQ(places.size(), 5u);
  for (AnswerBuffer* buffer : buffers) AnswerPool::Give(buffer);
  EXPECT_EQ(pool->pooled_bytes(), 2u << 20);
}

TEST(AnswerPoolTest, ABufferOutlivesThePoolsOwner) {
  auto pool = AnswerPool::Create(8 << 20);
  AnswerBuffer* const buffer = pool->Take(10'000);
  pool.reset();
  std::memset(buffer->data, 1, 10'000);
  EXPECT_EQ(buffer->data[9'999], 1);
  AnswerPool::Give(buffer);
}

}  // namespace
}  // namespace hotbed
