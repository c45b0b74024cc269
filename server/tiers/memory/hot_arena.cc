#include "server/tiers/memory/hot_arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/check.h"

namespace hotbed {
namespace {

constexpr uint64_t kHugeBytes = 2ull << 20;
constexpr uint64_t kPageBytes = 4ull << 10;

uint64_t RoundUp(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

// --- HotArena

bool HotArena::Take(Account* account, uint64_t bytes) {
  const uint64_t of_table = account->table->taken.load(std::memory_order_relaxed);
  const uint64_t most = account->table->most.load(std::memory_order_relaxed);
  if (bytes > unused() || of_table + bytes > most) return false;
  absl::MutexLock lock(&mu_);
  const uint64_t reserved = credits_ - account->credit;
  const uint64_t left = unused();
  if (reserved > left || bytes > left - reserved) return false;
  const uint64_t spent = std::min(bytes, account->credit);
  account->credit -= spent;
  credits_ -= spent;
  Add(account, bytes);
  return true;
}

void HotArena::TakeAnyway(Account* account, uint64_t bytes) {
  absl::MutexLock lock(&mu_);
  Add(account, bytes);
}

void HotArena::Add(Account* account, uint64_t bytes) {
  taken_.fetch_add(bytes, std::memory_order_relaxed);
  account->taken.fetch_add(bytes, std::memory_order_relaxed);
  account->table->taken.fetch_add(bytes, std::memory_order_relaxed);
}

void HotArena::Give(Account* account, uint64_t bytes) {
  absl::MutexLock lock(&mu_);
  taken_.fetch_sub(bytes, std::memory_order_relaxed);
  account->taken.fetch_sub(bytes, std::memory_order_relaxed);
  account->table->taken.fetch_sub(bytes, std::memory_order_relaxed);
}

void HotArena::SetCredit(Account* account, uint64_t bytes) {
  absl::MutexLock lock(&mu_);
  credits_ = credits_ - account->credit + bytes;
  account->credit = bytes;
}

// --- HotSlab

HotSlab::HotSlab(uint64_t bytes_max, uint64_t head_bytes, uint64_t small_bytes, bool huge_pages)
    : bytes_max_(RoundUp(bytes_max, kHugeBytes)),
      small_bytes_(small_bytes),
      head_bytes_(huge_pages ? std::min(RoundUp(head_bytes, kHugeBytes), bytes_max_) : bytes_max_) {
  if (bytes_max_ == 0) return;
  // One block more than needed, so that an aligned range lies inside; the ends are unmapped.
  // Addresses cost nothing.
  const uint64_t wide = bytes_max_ + kHugeBytes;
  void* mapped = ::mmap(nullptr, wide, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  HOTBED_CHECK(mapped != MAP_FAILED)
      << "reserving " << wide << " bytes of addresses: " << std::strerror(errno)
      << "; is the address space limited (ulimit -v)?";
  auto* start = static_cast<uint8_t*>(mapped);
  data_ = reinterpret_cast<uint8_t*>(RoundUp(reinterpret_cast<uintptr_t>(start), kHugeBytes));
  if (data_ > start) ::munmap(start, static_cast<size_t>(data_ - start));
  const uint8_t* end = start + wide;
  if (end > data_ + bytes_max_) {
    ::munmap(data_ + bytes_max_, static_cast<size_t>(end - (data_ + bytes_max_)));
  }
  // The system's own choice would not do: set to "always", a page of the head would cost 2 MiB.
  if (head_bytes_ > 0) ::madvise(data_, head_bytes_, MADV_NOHUGEPAGE);
  if (head_bytes_ < bytes_max_) {
    ::madvise(data_ + head_bytes_, bytes_max_ - head_bytes_, MADV_HUGEPAGE);
  }
  users_.resize(head_bytes_ / small_bytes_ + (bytes_max_ - head_bytes_) / kHugeBytes);
}

HotSlab::~HotSlab() {
  if (data_ != nullptr) ::munmap(data_, bytes_max_);
}

void HotSlab::Swap(HotSlab& other) {
  std::swap(data_, other.data_);
  std::swap(bytes_max_, other.bytes_max_);
  std::swap(head_bytes_, other.head_bytes_);
  std::swap(small_bytes_, other.small_bytes_);
  std::swap(users_, other.users_);
}

size_t HotSlab::BlockAt(uint64_t byte) const {
  if (byte < head_bytes_) return byte / small_bytes_;
  return head_bytes_ / small_bytes_ + (byte - head_bytes_) / kHugeBytes;
}

uint64_t HotSlab::StartOf(size_t block) const {
  const uint64_t small = head_bytes_ / small_bytes_;
  if (block <= small) return block * small_bytes_;
  return head_bytes_ + (block - small) * kHugeBytes;
}

uint64_t HotSlab::BytesToUse(uint64_t first, uint64_t limit) const {
  if (first >= limit) return 0;
  uint64_t bytes = 0;
  const size_t last = BlockAt(limit - 1);
  for (size_t block = BlockAt(first); block <= last; ++block) {
    if (users_[block] == 0) bytes += StartOf(block + 1) - StartOf(block);
  }
  return bytes;
}

void HotSlab::Use(uint64_t first, uint64_t limit) {
  if (first >= limit) return;
  HOTBED_DCHECK(limit <= bytes_max_);
  const size_t last = BlockAt(limit - 1);
  for (size_t block = BlockAt(first); block <= last; ++block) ++users_[block];
}

uint64_t HotSlab::Release(uint64_t first, uint64_t limit) {
  if (first >= limit) return 0;
  uint64_t bytes = 0;
  uint64_t from = 0, to = 0;  // blocks to give back together
  const auto give = [&] {
    const uint64_t page = RoundUp(from, kPageBytes), end = to / kPageBytes * kPageBytes;
    if (end > page) ::madvise(data_ + page, end - page, MADV_DONTNEED);
    bytes += to - from;
  };
  const size_t last = BlockAt(limit - 1);
  for (size_t block = BlockAt(first); block <= last; ++block) {
    HOTBED_DCHECK(users_[block] > 0);
    if (--users_[block] > 0) continue;
    if (StartOf(block) != to) {
      give();
      from = StartOf(block);
    }
    to = StartOf(block + 1);
  }
  give();
  return bytes;
}

}  // namespace hotbed
