#include "server/tiers/memory/hot_arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "common/check.h"

namespace hotbed {
namespace {

constexpr uint64_t kBlockBytes = 2ull << 20;

uint64_t RoundUp(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

HotSlab::HotSlab(uint64_t bytes_max, bool huge_pages)
    : bytes_max_(RoundUp(bytes_max, kBlockBytes)), huge_pages_(huge_pages) {
  if (bytes_max_ == 0) return;
  // One block more than needed, so that an aligned range lies inside; the ends are unmapped.
  // Addresses cost nothing.
  const uint64_t wide = bytes_max_ + kBlockBytes;
  void* mapped = ::mmap(nullptr, wide, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  HOTBED_CHECK(mapped != MAP_FAILED)
      << "reserving " << wide << " bytes of addresses: " << std::strerror(errno)
      << "; is the address space limited (ulimit -v)?";
  auto* start = static_cast<uint8_t*>(mapped);
  data_ = reinterpret_cast<uint8_t*>(RoundUp(reinterpret_cast<uintptr_t>(start), kBlockBytes));
  if (data_ > start) ::munmap(start, static_cast<size_t>(data_ - start));
  const uint8_t* end = start + wide;
  if (end > data_ + bytes_max_) {
    ::munmap(data_ + bytes_max_, static_cast<size_t>(end - (data_ + bytes_max_)));
  }
  // Without this, on a system that is set to "always", the first byte of a small shard would cost
  // 2 MiB.
  ::madvise(data_, bytes_max_, MADV_NOHUGEPAGE);
}

HotSlab::~HotSlab() {
  if (data_ != nullptr) ::munmap(data_, bytes_max_);
}

void HotSlab::Swap(HotSlab& other) {
  std::swap(data_, other.data_);
  std::swap(bytes_max_, other.bytes_max_);
  std::swap(advised_, other.advised_);
  std::swap(huge_pages_, other.huge_pages_);
}

void HotSlab::Extend(uint64_t bytes) {
  HOTBED_DCHECK(bytes <= bytes_max_);
  const uint64_t whole = bytes / kBlockBytes * kBlockBytes;
  if (!huge_pages_ || whole <= advised_) return;
  ::madvise(data_ + advised_, whole - advised_, MADV_HUGEPAGE);
  advised_ = whole;
}

void HotSlab::Truncate(uint64_t bytes) {
  const uint64_t from = RoundUp(bytes, static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)));
  if (data_ == nullptr || from >= bytes_max_) return;
  ::madvise(data_ + from, bytes_max_ - from, MADV_DONTNEED);
  const uint64_t whole = bytes / kBlockBytes * kBlockBytes;
  if (whole < advised_) {
    ::madvise(data_ + whole, advised_ - whole, MADV_NOHUGEPAGE);
    advised_ = whole;
  }
}

}  // namespace hotbed
