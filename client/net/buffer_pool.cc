#include "client/net/buffer_pool.h"

#include <bit>
#include <cstdlib>
#include <new>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/check.h"

namespace hotbed {

// One free list per power of two. Thread-safe.
class BufferPool {
 public:
  // Never deleted: slices that gRPC holds may outlive every client.
  static BufferPool& Global() {
    static BufferPool* const pool = new BufferPool;
    return *pool;
  }

  BufferRef::Block* Take(size_t capacity) {
    absl::MutexLock lock(&mu_);
    std::vector<BufferRef::Block*>& list = free_[std::countr_zero(capacity)];
    if (list.empty()) return nullptr;
    BufferRef::Block* block = list.back();
    list.pop_back();
    pooled_bytes_ -= capacity;
    return block;
  }

  // False when the pool is full: the caller frees the block.
  bool Give(BufferRef::Block* block) {
    if (block->capacity > kPooledBlockMax) return false;
    absl::MutexLock lock(&mu_);
    if (pooled_bytes_ + block->capacity > kPooledBytesMax) return false;
    free_[std::countr_zero(block->capacity)].push_back(block);
    pooled_bytes_ += block->capacity;
    return true;
  }

 private:
  absl::Mutex mu_;
  std::vector<BufferRef::Block*> free_[64] ABSL_GUARDED_BY(mu_);
  size_t pooled_bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

BufferRef BufferRef::Allocate(size_t size) {
  size_t capacity = size + kHeader;
  const bool pooled = capacity <= kPooledBlockMax;
  capacity = pooled ? std::bit_ceil(capacity < kPooledBlockMin ? kPooledBlockMin : capacity)
                    : (capacity + 63) / 64 * 64;
  BufferRef ref;
  if (pooled) ref.block_ = BufferPool::Global().Take(capacity);
  if (ref.block_ == nullptr) {
    void* memory = std::aligned_alloc(64, capacity);
    HOTBED_CHECK(memory != nullptr)
        << "out of memory for a message buffer of " << capacity << " bytes";
    ref.block_ = static_cast<Block*>(memory);
  }
  new (ref.block_) Block;
  ref.block_->capacity = capacity;
  return ref;
}

void BufferRef::Unref(Block* block) {
  if (block == nullptr || block->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  if (!BufferPool::Global().Give(block)) std::free(block);
}

}  // namespace hotbed
