// The memory of all hot tiers of a server: one budget, and slabs that become resident as they are
// used.
#ifndef HOTBED_SERVER_TIERS_MEMORY_HOT_ARENA_H_
#define HOTBED_SERVER_TIERS_MEMORY_HOT_ARENA_H_

#include <atomic>
#include <cstdint>

namespace hotbed {

// Counts the bytes lent to hot tiers; never more than the budget. Thread-safe.
class HotArena {
 public:
  explicit HotArena(uint64_t budget) : budget_(budget) {}

  // False, with nothing taken, if the budget would be exceeded. `borrows`: the caller is beyond its
  // quota and gets nothing while a caller within its own quota has been refused.
  bool Take(uint64_t bytes, bool borrows) {
    if (borrows && contended_.load(std::memory_order_relaxed)) return false;
    uint64_t taken = taken_.load(std::memory_order_relaxed);
    do {
      if (bytes > budget_ || taken > budget_ - bytes) {
        if (!borrows) contended_.store(true, std::memory_order_relaxed);
        return false;
      }
    } while (!taken_.compare_exchange_weak(taken, taken + bytes, std::memory_order_relaxed));
    if (!borrows) contended_.store(false, std::memory_order_relaxed);
    return true;
  }
  // For the one row that every tier must hold to make progress.
  void TakeAnyway(uint64_t bytes) { taken_.fetch_add(bytes, std::memory_order_relaxed); }
  void Give(uint64_t bytes) { taken_.fetch_sub(bytes, std::memory_order_relaxed); }

  // A caller within its quota was refused, and no such caller has been served since.
  bool contended() const { return contended_.load(std::memory_order_relaxed); }
  uint64_t budget() const { return budget_; }
  uint64_t taken() const { return taken_.load(std::memory_order_relaxed); }

 private:
  const uint64_t budget_;
  std::atomic<uint64_t> taken_{0};
  std::atomic<bool> contended_{false};
};

// A range of addresses aligned to 2 MiB, zeroed, whose pages become resident when they are first
// written. Whole 2 MiB blocks of the part in use are asked to be huge pages. Move-only.
class HotSlab {
 public:
  HotSlab() = default;
  HotSlab(uint64_t bytes_max, bool huge_pages);
  HotSlab(HotSlab&& other) noexcept { Swap(other); }
  HotSlab& operator=(HotSlab&& other) noexcept {
    Swap(other);
    return *this;
  }
  ~HotSlab();

  uint8_t* data() const { return data_; }
  uint64_t bytes_max() const { return bytes_max_; }
  // Bytes [0, bytes) are about to be used. Never shrinks.
  void Extend(uint64_t bytes);
  // Bytes from `bytes` on are no longer used: whole pages go back to the system, and read as zeros.
  void Truncate(uint64_t bytes);

 private:
  void Swap(HotSlab& other);

  uint8_t* data_ = nullptr;
  uint64_t bytes_max_ = 0;
  uint64_t advised_ = 0;  // blocks below are huge pages
  bool huge_pages_ = false;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_TIERS_MEMORY_HOT_ARENA_H_
