#include "server/net/answer_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <vector>

namespace hotbed {
namespace answer_pool_test {

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

// Remembers what is pinned; refuses all after the first `allowed`.
class FakePinner : public MemoryPinner {
 public:
  explicit FakePinner(size_t allowed) : allowed_(allowed) {}
  bool Pin(uint8_t* memory, uint64_t bytes) override {
    if (pinned_.size() == allowed_) return false;
    return pinned_.emplace(memory, bytes).second;
  }
  void Unpin(uint8_t* memory, uint64_t bytes) override {
    EXPECT_EQ(pinned_.at(memory), bytes);
    pinned_.erase(memory);
  }
  size_t count() const { return pinned_.size(); }
  bool Has(const AnswerBuffer& buffer) const {
    const auto next = pinned_.upper_bound(buffer.data);
    if (next == pinned_.begin()) return false;
    const auto& [memory, bytes] = *std::prev(next);
    return buffer.data + buffer.capacity <= memory + bytes;
  }

 private:
  const size_t allowed_;
  std::map<uint8_t*, uint64_t> pinned_;
};

TEST(AnswerPoolTest, BlocksArePinnedOnceAndAsLongAsThereAreAny) {
  const auto pinner = std::make_shared<FakePinner>(2);
  auto pool = AnswerPool::Create(8 << 20, pinner);
  std::vector<AnswerBuffer*> buffers;
  for (const size_t bytes : {4096, 4096, 1 << 20, 1 << 20, 100'000, 8 << 20}) {
    buffers.push_back(pool->Take(bytes));
  }
  const std::vector<bool> want = {true, true, true, true, false, false};
  for (size_t i = 0; i < buffers.size(); ++i) {
    EXPECT_EQ(buffers[i]->pinned(), want[i]) << i;
    EXPECT_EQ(pinner->Has(*buffers[i]), want[i]) << i;
    std::memset(buffers[i]->data, 1, buffers[i]->capacity);
  }
  pool = nullptr;
  for (AnswerBuffer* buffer : buffers) {
    EXPECT_EQ(pinner->count(), 2u);
    AnswerPool::Give(buffer);
  }
  EXPECT_EQ(pinner->count(), 0u);
}

TEST(AnswerPoolTest, WhatIsHeldGoesBackWhenItIsReleased) {
  auto pool = AnswerPool::Create(2 << 20);
  AnswerBuffer* const held = pool->Take(2 << 20);
  AnswerBuffer* const from_heap = pool->Take(2 << 20);
  for (AnswerBuffer* buffer : {held, from_heap}) {
    buffer->Hold();
    buffer->Hold();
    AnswerPool::Give(buffer);
    buffer->Release();
    std::memset(buffer->data, 1, buffer->capacity);
  }
  AnswerBuffer* const other = pool->Take(2 << 20);
  EXPECT_NE(other->data, held->data);
  AnswerPool::Give(other);
  uint8_t* const data = held->data;
  held->Release();
  from_heap->Release();
  AnswerBuffer* const again = pool->Take(2 << 20);
  EXPECT_EQ(again->data, data);
  AnswerPool::Give(again);
}

}  // namespace answer_pool_test
}  // namespace hotbed
