// The memory of all hot tiers of a server: one budget for all tables, and slabs of addresses whose
// pages are paid for when they are first used.
#ifndef HOTBED_SERVER_TIERS_MEMORY_HOT_ARENA_H_
#define HOTBED_SERVER_TIERS_MEMORY_HOT_ARENA_H_

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/tiers/memory/slab_addresses.h"

namespace hotbed {

// Counts the bytes lent to hot tiers. Thread-safe.
//
// Memory that nobody has taken goes to whoever asks first, up to the most that the asker's table
// may have. When all is taken, TierHostImpl decides which tier gives some back and which tier may
// take it: a credit keeps others from taking it first.
class HotArena {
 public:
  // The tiers of one table on this server together. Outlives its accounts.
  struct Table {
    std::atomic<uint64_t> taken{0};
    std::atomic<uint64_t> least{0};  // bytes that no other table may claim
    std::atomic<uint64_t> most{~uint64_t{0}};
  };
  // One hot tier.
  struct Account {
    Table* table = nullptr;
    std::atomic<uint64_t> taken{0};
    uint64_t credit = 0;  // guarded by the arena
  };

  explicit HotArena(uint64_t budget) : whole_(budget), budget_(budget) {}

  // Takes `bytes` out of the budget for something other than rows, or gives them back (negative).
  // Rows keep half of the budget in any case.
  void Reserve(int64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);

  // False, with nothing taken, if the budget, the credits of others or the table's most forbid it.
  bool Take(Account* account, uint64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  // For what a tier must have to make progress: its first rows, the index of its rows.
  void TakeAnyway(Account* account, uint64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  void Give(Account* account, uint64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  // Another tier of the same table has the bytes from now on.
  void Move(Account* from, Account* to, uint64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  // Replaces the account's credit.
  void SetCredit(Account* account, uint64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);

  uint64_t budget() const { return budget_.load(std::memory_order_relaxed); }
  // The smallest payment: a page, or less where the budget has few pages.
  uint64_t small_block_bytes() const {
    return std::clamp<uint64_t>(std::bit_floor(whole_ >> 12), 8, 4096);
  }
  // May exceed the budget by what was taken anyway, or before something was reserved.
  uint64_t taken() const { return taken_.load(std::memory_order_relaxed); }
  uint64_t unused() const {
    const uint64_t taken = this->taken(), budget = this->budget();
    return taken < budget ? budget - taken : 0;
  }

 private:
  void Add(Account* account, uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const uint64_t whole_;
  absl::Mutex mu_;
  int64_t reserved_ ABSL_GUARDED_BY(mu_) = 0;
  std::atomic<uint64_t> budget_;    // written under mu_
  std::atomic<uint64_t> taken_{0};  // written under mu_
  uint64_t credits_ ABSL_GUARDED_BY(mu_) = 0;
};

// A range of addresses, zeroed, whose blocks take memory once they are used. A block is in use
// while any of its users is. A unit of huge pages gets them once all of its blocks are in use, so
// that they cost nothing that has not been paid for. Slabs that are smaller than a huge page share
// them with others (SlabAddresses::AddPaid). Move-only.
class HotSlab {
 public:
  static constexpr uint64_t kHugeBytes = SlabAddresses::kHugeBytes;

  HotSlab() = default;
  // `block_bytes`: a power of two, at most a page. Less than a page makes sense where a few pages
  // do not matter and the count of rows does. `unit_bytes`: a multiple of 2 MiB; 0: no huge pages.
  // Each unit on its own may be a mapping of the kernel, of which a process has few.
  HotSlab(uint64_t bytes_max, uint64_t block_bytes, uint64_t unit_bytes);
  HotSlab(HotSlab&& other) noexcept { Swap(other); }
  HotSlab& operator=(HotSlab&& other) noexcept {
    Swap(other);
    return *this;
  }
  ~HotSlab();

  uint8_t* data() const { return data_; }
  // Bytes of the blocks that overlap [first, limit) and have no user.
  uint64_t BytesToUse(uint64_t first, uint64_t limit) const;
  // One user more for each of these blocks.
  void Use(uint64_t first, uint64_t limit);
  // One user less. Returns the bytes of blocks without a user; their pages go back to the system.
  uint64_t Release(uint64_t first, uint64_t limit);

  // Bytes that the unit around `byte` lacks to get huge pages, if that is an eighth of it at most;
  // else 0.
  uint64_t BytesToFill(uint64_t byte) const;
  // Bytes of the unit around `byte` if none of them is in use; else 0.
  uint64_t BytesToBegin(uint64_t byte) const;
  // Uses the rest of that unit until EmptyFilled.
  void Fill(uint64_t byte);
  uint64_t unit_bytes() const { return unit_bytes_; }  // 0: no huge pages
  // Returns the bytes of blocks that nobody else uses.
  uint64_t EmptyFilled();

 private:
  void Swap(HotSlab& other);
  void UseShared(uint64_t first_block, uint64_t last_block);

  uint8_t* data_ = nullptr;
  uint64_t bytes_max_ = 0;
  uint64_t block_bytes_ = 1;
  uint64_t unit_bytes_ = 0;
  bool shares_ = false;           // huge pages with other slabs
  std::vector<uint16_t> users_;   // of each block so far
  std::vector<uint32_t> used_;    // of each unit so far: blocks in use
  std::vector<uint64_t> filled_;  // units
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_TIERS_MEMORY_HOT_ARENA_H_
