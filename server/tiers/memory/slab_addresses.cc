#include "server/tiers/memory/slab_addresses.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "common/check.h"

namespace hotbed {
namespace {

constexpr uint64_t kReservedBytes = 64ull << 30;  // at a time
constexpr int kCollapse = 25;  // MADV_COLLAPSE of Linux 6.1; older headers lack it
// Each shared huge page may be a mapping of its own, and split another. 16 GiB of small slabs.
constexpr size_t kSharedPagesMax = 8192;
constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

uint64_t WholeHugePages(uint64_t bytes) {
  return (bytes + SlabAddresses::kHugeBytes - 1) & ~(SlabAddresses::kHugeBytes - 1);
}

// Addresses that begin at a huge page, at least `bytes` of them. The first of a new mapping need
// not begin at one, so one huge page more is asked for, and the ends are unmapped.
uintptr_t Reserve(uint64_t* bytes) {
  for (const uint64_t size : {std::max(*bytes, kReservedBytes), *bytes}) {
    const uint64_t wide = size + SlabAddresses::kHugeBytes;
    void* const mapped = ::mmap(nullptr, wide, PROT_READ | PROT_WRITE, kFlags, -1, 0);
    if (mapped == MAP_FAILED) continue;  // the address space may be limited: less may do
    const auto start = reinterpret_cast<uintptr_t>(mapped);
    const uintptr_t aligned = WholeHugePages(start);
    if (aligned > start) ::munmap(mapped, aligned - start);
    const uintptr_t end = start + wide;
    if (end > aligned + size) {
      ::munmap(reinterpret_cast<void*>(aligned + size), end - aligned - size);
    }
    // The system's own choice would not do: set to "always", the first byte would cost 2 MiB.
    ::madvise(reinterpret_cast<void*>(aligned), size, MADV_NOHUGEPAGE);
    *bytes = size;
    return aligned;
  }
  HOTBED_CHECK(false) << "reserving " << *bytes << " bytes of addresses: " << std::strerror(errno)
                      << "; is the address space limited (ulimit -v), or "
                      << "the number of mappings (vm.max_map_count)?";
  return 0;
}

// Calls visit(number, bytes) for each huge page that these bytes overlap.
template <typename Visit>
void ForEachHugePage(const uint8_t* from, uint64_t bytes, Visit visit) {
  constexpr uint64_t kHugeBytes = SlabAddresses::kHugeBytes;
  auto at = reinterpret_cast<uintptr_t>(from);
  for (const uintptr_t end = at + bytes; at < end;) {
    const uintptr_t next = std::min(end, (at / kHugeBytes + 1) * kHugeBytes);
    visit(at / kHugeBytes, next - at);
    at = next;
  }
}

}  // namespace

SlabAddresses& SlabAddresses::OfProcess() {
  static auto* const addresses = new SlabAddresses;
  return *addresses;
}

uint8_t* SlabAddresses::Take(uint64_t bytes) {
  HOTBED_DCHECK(bytes > 0 && bytes % (bytes < kHugeBytes ? kPageBytes : kHugeBytes) == 0);
  absl::MutexLock lock(&mu_);
  Ranges* const free = FreeOf(bytes);
  const auto fits = [bytes](const auto& range) { return range.second >= bytes; };
  auto found = std::find_if(free->begin(), free->end(), fits);
  if (found == free->end()) {
    uint64_t reserved = WholeHugePages(bytes);
    const uintptr_t from = Reserve(&reserved);
    Insert(from, reserved, free);
    found = std::find_if(free->begin(), free->end(), fits);
  }
  const auto [from, size] = *found;
  free->erase(found);
  if (size > bytes) free->emplace(from + bytes, size - bytes);
  return reinterpret_cast<uint8_t*>(from);
}

void SlabAddresses::Give(uint8_t* from, uint64_t bytes) {
  // A new mapping in the place of the old one frees the kernel's page tables, too.
  // Where that fails the range may be no mapping any more, and is not lent again.
  if (::mmap(from, bytes, PROT_READ | PROT_WRITE, kFlags | MAP_FIXED, -1, 0) == MAP_FAILED &&
      ::madvise(from, bytes, MADV_DONTNEED) != 0) {
    return;
  }
  ::madvise(from, bytes, MADV_NOHUGEPAGE);
  absl::MutexLock lock(&mu_);
  Insert(reinterpret_cast<uintptr_t>(from), bytes, FreeOf(bytes));
}

// Where memory is too scattered for huge pages, the kernel may find some later.
void SlabAddresses::MakeHuge(uintptr_t from, uint64_t bytes, bool touched) {
  void* const start = reinterpret_cast<void*>(from);
  if (::madvise(start, bytes, MADV_HUGEPAGE) == 0 && touched) ::madvise(start, bytes, kCollapse);
}

void SlabAddresses::AddPaid(const uint8_t* from, uint64_t bytes) {
  absl::MutexLock lock(&mu_);
  ForEachHugePage(from, bytes, [this](uintptr_t number, uint64_t part) {
    uint64_t& paid = paid_[number];
    paid += part;
    HOTBED_DCHECK(paid <= kHugeBytes);
    if (paid < kHugeBytes || shared_.size() >= kSharedPagesMax) return;
    // Under the lock, so that no page of it is given back meanwhile.
    MakeHuge(number * kHugeBytes, kHugeBytes, /*touched=*/true);
    shared_.insert(number);
  });
}

void SlabAddresses::RemovePaid(const uint8_t* from, uint64_t bytes) {
  absl::MutexLock lock(&mu_);
  ForEachHugePage(from, bytes, [this](uintptr_t number, uint64_t part) {
    const auto paid = paid_.find(number);
    HOTBED_DCHECK(paid != paid_.end() && paid->second >= part);
    if ((paid->second -= part) == 0) paid_.erase(paid);
    if (shared_.erase(number) == 0) return;
    ::madvise(reinterpret_cast<void*>(number * kHugeBytes), kHugeBytes, MADV_NOHUGEPAGE);
  });
}

void SlabAddresses::Insert(uintptr_t from, uint64_t bytes, Ranges* ranges) {
  auto next = ranges->lower_bound(from);
  if (next != ranges->end() && from + bytes == next->first) {
    bytes += next->second;
    next = ranges->erase(next);
  }
  if (next != ranges->begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == from) {
      before->second += bytes;
      return;
    }
  }
  ranges->emplace_hint(next, from, bytes);
}

}  // namespace hotbed
