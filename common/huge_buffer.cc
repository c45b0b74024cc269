#include "common/huge_buffer.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace hotbed {

absl::StatusOr<HugeBuffer> HugeBuffer::Allocate(size_t bytes) {
  HugeBuffer buffer;
  if (bytes == 0) return buffer;
  if (bytes > std::numeric_limits<size_t>::max() / 2) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot reserve ", bytes, " bytes of memory"));
  }
  const size_t size = (bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  // Map one huge page more than needed, then unmap the unaligned ends.
  const size_t reserved = size + kHugePageBytes;
  void* const base = mmap(nullptr, reserved, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot reserve ", size, " bytes of memory (", std::strerror(errno),
                     "): lower the memory budget or raise the limit on address space (ulimit -v)"));
  }
  const uintptr_t start = reinterpret_cast<uintptr_t>(base);
  const uintptr_t aligned = (start + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  const size_t head = aligned - start;
  const size_t tail = reserved - head - size;
  if (head > 0) munmap(base, head);
  if (tail > 0) munmap(reinterpret_cast<void*>(aligned + size), tail);
  buffer.data_ = reinterpret_cast<uint8_t*>(aligned);
  buffer.size_ = size;
  madvise(buffer.data_, size, MADV_HUGEPAGE);  // advice only; works without huge pages too
  return buffer;
}

HugeBuffer::HugeBuffer(HugeBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

HugeBuffer& HugeBuffer::operator=(HugeBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

HugeBuffer::~HugeBuffer() {
  if (data_ != nullptr) munmap(data_, size_);
}

}  // namespace hotbed
