#include "server/tiers/memory/hot_arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "server/tiers/memory/slab_addresses.h"

namespace hotbed {
namespace {

constexpr uint64_t kPageBytes = SlabAddresses::kPageBytes;
// A unit of which so small a part is unused may be filled for the sake of its huge pages.
constexpr uint64_t kLackingShare = 8;

uint64_t RoundUp(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

// --- HotArena

void HotArena::Reserve(int64_t bytes) {
  absl::MutexLock lock(&mu_);
  reserved_ += bytes;
  const uint64_t most = whole_ / 2;
  budget_.store(whole_ - std::min(static_cast<uint64_t>(reserved_), most),
                std::memory_order_relaxed);
}

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

void HotArena::Move(Account* from, Account* to, uint64_t bytes) {
  HOTBED_DCHECK(from->table == to->table);
  absl::MutexLock lock(&mu_);
  from->taken.fetch_sub(bytes, std::memory_order_relaxed);
  to->taken.fetch_add(bytes, std::memory_order_relaxed);
}

void HotArena::SetCredit(Account* account, uint64_t bytes) {
  absl::MutexLock lock(&mu_);
  credits_ = credits_ - account->credit + bytes;
  account->credit = bytes;
}

// --- HotSlab

HotSlab::HotSlab(uint64_t bytes_max, uint64_t block_bytes, uint64_t unit_bytes)
    : block_bytes_(block_bytes) {
  if (bytes_max == 0) return;
  // So few bytes can never fill a huge page.
  if (bytes_max < kHugeBytes - kHugeBytes / kLackingShare) {
    bytes_max_ = RoundUp(bytes_max, kPageBytes);
    shares_ = unit_bytes > 0 && block_bytes == kPageBytes;
  } else {
    bytes_max_ = RoundUp(bytes_max, std::max(unit_bytes, kHugeBytes));
    unit_bytes_ = unit_bytes;
  }
  data_ = SlabAddresses::OfProcess().Take(bytes_max_);
}

HotSlab::~HotSlab() {
  if (data_ == nullptr) return;
  for (size_t block = 0; shares_ && block < users_.size(); ++block) {
    if (users_[block] == 0) continue;
    SlabAddresses::OfProcess().RemovePaid(data_ + block * block_bytes_, block_bytes_);
  }
  SlabAddresses::OfProcess().Give(data_, bytes_max_);
}

void HotSlab::Swap(HotSlab& other) {
  std::swap(data_, other.data_);
  std::swap(bytes_max_, other.bytes_max_);
  std::swap(block_bytes_, other.block_bytes_);
  std::swap(unit_bytes_, other.unit_bytes_);
  std::swap(shares_, other.shares_);
  std::swap(users_, other.users_);
  std::swap(used_, other.used_);
  std::swap(filled_, other.filled_);
}

uint64_t HotSlab::BytesToUse(uint64_t first, uint64_t limit) const {
  if (first >= limit) return 0;
  uint64_t blocks = 0;
  for (uint64_t block = first / block_bytes_; block <= (limit - 1) / block_bytes_; ++block) {
    if (block >= users_.size() || users_[block] == 0) ++blocks;
  }
  return blocks * block_bytes_;
}

void HotSlab::Use(uint64_t first, uint64_t limit) {
  if (first >= limit) return;
  HOTBED_DCHECK(limit <= bytes_max_);
  const uint64_t first_block = first / block_bytes_, last = (limit - 1) / block_bytes_;
  if (last >= users_.size()) users_.resize(last + 1);
  if (shares_) return UseShared(first_block, last);
  if (unit_bytes_ == 0) {
    for (uint64_t block = first_block; block <= last; ++block) ++users_[block];
    return;
  }
  const uint64_t unit_blocks = unit_bytes_ / block_bytes_;
  if (last / unit_blocks >= used_.size()) used_.resize(last / unit_blocks + 1);
  for (uint64_t block = first_block; block <= last;) {
    const uint64_t unit = block / unit_blocks;
    const uint32_t before = used_[unit];
    for (const uint64_t next = (unit + 1) * unit_blocks; block < next && block <= last; ++block) {
      if (users_[block]++ == 0) ++used_[unit];
    }
    if (used_[unit] == unit_blocks && before < unit_blocks) {
      SlabAddresses::MakeHuge(reinterpret_cast<uintptr_t>(data_) + unit * unit_bytes_, unit_bytes_,
                              /*touched=*/before > 0);
    }
  }
}

void HotSlab::UseShared(uint64_t first_block, uint64_t last_block) {
  for (uint64_t block = first_block, from = block; block <= last_block; ++block) {
    const bool first_user = users_[block]++ == 0;
    if (!first_user) from = block + 1;
    if (first_user && (block == last_block || users_[block + 1] > 0)) {
      SlabAddresses::OfProcess().AddPaid(data_ + from * block_bytes_,
                                         (block + 1 - from) * block_bytes_);
    }
  }
}

uint64_t HotSlab::Release(uint64_t first, uint64_t limit) {
  if (first >= limit) return 0;
  uint64_t bytes = 0;
  uint64_t from = 0, to = 0;  // blocks to give back together
  const auto give = [&] {
    const uint64_t page = RoundUp(from, kPageBytes), end = to / kPageBytes * kPageBytes;
    if (shares_ && end > page) SlabAddresses::OfProcess().RemovePaid(data_ + page, end - page);
    if (end > page) ::madvise(data_ + page, end - page, MADV_DONTNEED);
    bytes += to - from;
  };
  const uint64_t unit_blocks = unit_bytes_ / block_bytes_;
  for (uint64_t block = first / block_bytes_; block <= (limit - 1) / block_bytes_; ++block) {
    HOTBED_DCHECK(users_[block] > 0);
    if (--users_[block] > 0) continue;
    if (unit_blocks > 0 && used_[block / unit_blocks]-- == unit_blocks) {
      ::madvise(data_ + block / unit_blocks * unit_bytes_, unit_bytes_, MADV_NOHUGEPAGE);
    }
    if (block * block_bytes_ != to) {
      give();
      from = block * block_bytes_;
    }
    to = (block + 1) * block_bytes_;
  }
  give();
  return bytes;
}

uint64_t HotSlab::BytesToFill(uint64_t byte) const {
  const uint64_t unit = unit_bytes_ == 0 ? 0 : byte / unit_bytes_;
  if (unit_bytes_ == 0 || unit >= used_.size()) return 0;
  const uint64_t lacking = unit_bytes_ - used_[unit] * block_bytes_;
  return lacking <= unit_bytes_ / kLackingShare ? lacking : 0;
}

uint64_t HotSlab::BytesToBegin(uint64_t byte) const {
  if (unit_bytes_ == 0) return 0;
  const uint64_t unit = byte / unit_bytes_;
  return unit >= used_.size() || used_[unit] == 0 ? unit_bytes_ : 0;
}

void HotSlab::Fill(uint64_t byte) {
  filled_.push_back(byte / unit_bytes_);
  Use(filled_.back() * unit_bytes_, (filled_.back() + 1) * unit_bytes_);
}

uint64_t HotSlab::EmptyFilled() {
  uint64_t bytes = 0;
  for (const uint64_t unit : filled_) {
    bytes += Release(unit * unit_bytes_, (unit + 1) * unit_bytes_);
  }
  filled_.clear();
  return bytes;
}

}  // namespace hotbed
