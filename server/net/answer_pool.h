// Recycled buffers for answers: 64-byte aligned, not zero-filled, on 2 MiB pages, handed to the
// transport by reference.
//
// Sizes are rounded up to a power of two from 4 KiB. Sizes up to 2 MiB are cut from 2 MiB blocks
// that stay with the pool; when the pool holds `bytes_max`, further buffers come from the heap and
// return to it. Thread-safe. A buffer keeps the pool alive until it is given back, so buffers may
// outlive every other owner of the pool. A buffer that a device still writes is held (AnswerMemory)
// and returns to the pool when the write ends.
//
// With a pinner, blocks are pinned when they are allocated, so that a device writes rows straight
// into answers. If pinning is refused, blocks work unpinned.
#ifndef HOTBED_SERVER_NET_ANSWER_POOL_H_
#define HOTBED_SERVER_NET_ANSWER_POOL_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/huge_buffer.h"
#include "server/tiers/api/answer_memory.h"

namespace hotbed {

class AnswerPool;

struct AnswerBlock {
  HugeBuffer memory;
  std::atomic<bool> pinned{false};
};

struct AnswerBuffer final : AnswerMemory {
  bool pinned() const override {
    return block != nullptr && block->pinned.load(std::memory_order_acquire);
  }
  void Hold() override { owners.fetch_add(1, std::memory_order_relaxed); }
  void Release() override;

  uint8_t* data = nullptr;  // 64-byte aligned
  size_t capacity = 0;
  int size_class = -1;                 // -1: from the heap
  const AnswerBlock* block = nullptr;  // null: from the heap
  std::atomic<uint32_t> owners{0};     // the taker, and every Hold()
  std::shared_ptr<AnswerPool> pool;    // set while there are owners
};

class AnswerPool : public std::enable_shared_from_this<AnswerPool> {
 public:
  // `pinner` null: nothing is pinned.
  static std::shared_ptr<AnswerPool> Create(uint64_t bytes_max,
                                            std::shared_ptr<MemoryPinner> pinner = nullptr);
  ~AnswerPool();
  AnswerPool(const AnswerPool&) = delete;
  AnswerPool& operator=(const AnswerPool&) = delete;

  // At least `bytes` (> 0). Never null: the process ends when it is out of memory.
  AnswerBuffer* Take(size_t bytes);
  // Any thread; the transport calls it through the slice that wraps the buffer.
  static void Give(AnswerBuffer* buffer);

  uint64_t pooled_bytes() const;  // in 2 MiB blocks, in use or not

 private:
  static constexpr int kClasses = 16;  // 4 KiB .. 128 MiB
  static constexpr size_t kSmallest = 4096;

  AnswerPool(uint64_t bytes_max, std::shared_ptr<MemoryPinner> pinner)
      : bytes_max_(bytes_max), pinner_(std::move(pinner)) {}
  // Null: `bytes_max` is reached, or there is no memory.
  AnswerBlock* Grow(int size_class) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const uint64_t bytes_max_;
  const std::shared_ptr<MemoryPinner> pinner_;
  mutable absl::Mutex mu_;
  uint64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<AnswerBuffer*> free_[kClasses] ABSL_GUARDED_BY(mu_);
  std::vector<std::unique_ptr<AnswerBlock>> blocks_ ABSL_GUARDED_BY(mu_);
  std::vector<std::unique_ptr<AnswerBuffer[]>> headers_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_NET_ANSWER_POOL_H_
