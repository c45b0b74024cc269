// Reference-counted buffers for messages, which are filled once; the transport and resends then
// read them without a memcpy.
//
// Blocks come from a process-wide pool of power-of-two classes, so that a steady stream of messages
// neither faults new pages nor zero-fills them. The pool keeps at most kPooledBytesMax bytes, and
// no block larger than kPooledBlockMax. Thread-safe in the way of shared_ptr: the count is atomic,
// the content is not guarded (fill it before sharing it).
#ifndef HOTBED_CLIENT_NET_BUFFER_POOL_H_
#define HOTBED_CLIENT_NET_BUFFER_POOL_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace hotbed {

inline constexpr size_t kPooledBlockMin = 4 << 10;
inline constexpr size_t kPooledBlockMax = 8 << 20;
inline constexpr size_t kPooledBytesMax = 128 << 20;

class BufferRef {
 public:
  BufferRef() = default;
  // At least `size` bytes, uninitialised, aligned to 64.
  static BufferRef Allocate(size_t size);
  BufferRef(const BufferRef& other) : block_(other.block_) { Ref(); }
  BufferRef(BufferRef&& other) noexcept : block_(std::exchange(other.block_, nullptr)) {}
  BufferRef& operator=(BufferRef other) noexcept {
    std::swap(block_, other.block_);
    return *this;
  }
  ~BufferRef() { Unref(block_); }

  char* data() const {
    return block_ == nullptr ? nullptr : reinterpret_cast<char*>(block_) + kHeader;
  }
  explicit operator bool() const { return block_ != nullptr; }

  // Gives the reference away as a pointer, for C callbacks; Adopt takes it back.
  void* Release() { return std::exchange(block_, nullptr); }
  static BufferRef Adopt(void* released) {
    BufferRef ref;
    ref.block_ = static_cast<Block*>(released);
    return ref;
  }

 private:
  static constexpr size_t kHeader = 64;
  struct Block {
    std::atomic<uint32_t> references{1};
    size_t capacity = 0;  // of the whole block
  };
  friend class BufferPool;

  void Ref() const {
    if (block_ != nullptr) block_->references.fetch_add(1, std::memory_order_relaxed);
  }
  static void Unref(Block* block);

  Block* block_ = nullptr;
};

// Some bytes of a buffer, which keep it alive.
struct BytesRef {
  BufferRef owner;
  const char* data = nullptr;
  size_t size = 0;
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_NET_BUFFER_POOL_H_
