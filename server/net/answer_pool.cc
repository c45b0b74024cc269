#include "server/net/answer_pool.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <utility>

#include "common/check.h"

namespace hotbed {

void AnswerBuffer::Release() { AnswerPool::Give(this); }

std::shared_ptr<AnswerPool> AnswerPool::Create(uint64_t bytes_max,
                                               std::shared_ptr<MemoryPinner> pinner) {
  return std::shared_ptr<AnswerPool>(new AnswerPool(bytes_max, std::move(pinner)));
}

AnswerPool::~AnswerPool() {
  absl::MutexLock lock(&mu_);
  for (const auto& block : blocks_) {
    if (block->pinned.load()) pinner_->Unpin(block->memory.data(), block->memory.size());
  }
}

uint64_t AnswerPool::pooled_bytes() const {
  absl::MutexLock lock(&mu_);
  return bytes_;
}

AnswerBlock* AnswerPool::Grow(int size_class) {
  const size_t size = kSmallest << size_class;
  const size_t block = std::max(size, kHugePageBytes);
  if (bytes_ + block > bytes_max_) return nullptr;
  absl::StatusOr<HugeBuffer> memory = HugeBuffer::Allocate(block);
  if (!memory.ok()) return nullptr;
  uint8_t* const base = memory->data();
  bytes_ += block;
  blocks_.push_back(std::make_unique<AnswerBlock>());
  blocks_.back()->memory = *std::move(memory);
  const size_t count = block / size;
  headers_.push_back(std::make_unique<AnswerBuffer[]>(count));
  for (size_t i = 0; i < count; ++i) {
    AnswerBuffer* buffer = &headers_.back()[count - 1 - i];
    buffer->data = base + (count - 1 - i) * size;
    buffer->capacity = size;
    buffer->size_class = size_class;
    buffer->block = blocks_.back().get();
    free_[size_class].push_back(buffer);
  }
  return blocks_.back().get();
}

AnswerBuffer* AnswerPool::Take(size_t bytes) {
  const size_t rounded = std::max(kSmallest, std::bit_ceil(bytes));
  const int size_class = std::countr_zero(rounded) - std::countr_zero(kSmallest);
  AnswerBuffer* buffer = nullptr;
  AnswerBlock* grown = nullptr;
  if (size_class < kClasses) {
    absl::MutexLock lock(&mu_);
    std::vector<AnswerBuffer*>& free = free_[size_class];
    if (free.empty()) grown = Grow(size_class);
    if (!free.empty()) {
      buffer = free.back();
      free.pop_back();
    }
  }
  // Pinning takes about a millisecond: outside the lock.
  if (grown != nullptr && pinner_ != nullptr) {
    const bool pinned = pinner_->Pin(grown->memory.data(), grown->memory.size());
    grown->pinned.store(pinned, std::memory_order_release);
  }
  if (buffer == nullptr) {
    buffer = new AnswerBuffer;
    buffer->capacity = (bytes + 63) & ~size_t{63};
    buffer->data = static_cast<uint8_t*>(std::aligned_alloc(64, buffer->capacity));
    HOTBED_CHECK(buffer->data != nullptr) << "out of memory: an answer of " << bytes << " bytes";
  }
  buffer->owners.store(1, std::memory_order_relaxed);
  buffer->pool = shared_from_this();
  return buffer;
}

void AnswerPool::Give(AnswerBuffer* buffer) {
  if (buffer->owners.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  // The local reference keeps the pool alive until the lock is released, even if this was its last
  // buffer.
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
