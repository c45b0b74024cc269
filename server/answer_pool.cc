#include "server/answer_pool.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <utility>

#include "common/check.h"

namespace hotbed {

std::shared_ptr<AnswerPool> AnswerPool::Create(uint64_t bytes_max) {
  return std::shared_ptr<AnswerPool>(new AnswerPool(bytes_max));
}

uint64_t AnswerPool::pooled_bytes() const {
  absl::MutexLock lock(&mu_);
  return bytes_;
}

bool AnswerPool::Grow(int size_class) {
  const size_t size = kSmallest << size_class;
  const size_t block = std::max(size, kHugePageBytes);
  if (bytes_ + block > bytes_max_) return false;
  absl::StatusOr<HugeBuffer> memory = HugeBuffer::Allocate(block);
  if (!memory.ok()) return false;
  uint8_t* const base = memory->data();
  bytes_ += block;
  blocks_.push_back(*std::move(memory));
  const size_t count = block / size;
  headers_.push_back(std::make_unique<AnswerBuffer[]>(count));
  for (size_t i = 0; i < count; ++i) {
    AnswerBuffer* buffer = &headers_.back()[count - 1 - i];
    buffer->data = base + (count - 1 - i) * size;
    buffer->capacity = size;
    buffer->size_class = size_class;
    free_[size_class].push_back(buffer);
  }
  return true;
}

AnswerBuffer* AnswerPool::Take(size_t bytes) {
  const size_t rounded = std::max(kSmallest, std::bit_ceil(bytes));
  const int size_class = std::countr_zero(rounded) - std::countr_zero(kSmallest);
  AnswerBuffer* buffer = nullptr;
  if (size_class < kClasses) {
    absl::MutexLock lock(&mu_);
    std::vector<AnswerBuffer*>& free = free_[size_class];
    if (!free.empty() || Grow(size_class)) {
      buffer = free.back();
      free.pop_back();
    }
  }
  if (buffer == nullptr) {
    buffer = new AnswerBuffer;
    buffer->capacity = (bytes + 63) & ~size_t{63};
    buffer->data = static_cast<uint8_t*>(std::aligned_alloc(64, buffer->capacity));
    HOTBED_CHECK(buffer->data != nullptr) << "out of memory: an answer of " << bytes << " bytes";
  }
  buffer->pool = shared_from_this();
  return buffer;
}

void AnswerPool::Give(AnswerBuffer* buffer) {
  // The local owner keeps the pool until the lock is released, even if this was the last buffer
  // out.
  const std::shared_ptr<AnswerPool> pool = std::move(buffer->pool);
  if (buffer->size_class < 0) {
    std::free(buffer->data);
    delete buffer;
    return;
  }
  absl::MutexLock lock(&pool->mu_);
  pool->free_[buffer->size_class].push_back(buffer);
}

}  // namespace hotbed
