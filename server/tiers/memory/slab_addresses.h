// The addresses of all slabs of this process. The kernel allows a process some 65,000 mappings
// (vm.max_map_count), and a shard has several slabs: ranges that lie side by side in a few large
// reservations are one mapping together. Addresses cost no memory.
//
// Small slabs share huge pages: the rows of a thousand small shards on pages of 4 KiB would cost a
// walk through the page tables for almost every row. Thread-safe.
#ifndef HOTBED_SERVER_TIERS_MEMORY_SLAB_ADDRESSES_H_
#define HOTBED_SERVER_TIERS_MEMORY_SLAB_ADDRESSES_H_

#include <cstdint>
#include <map>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/synchronization/mutex.h"

namespace hotbed {

class SlabAddresses {
 public:
  static constexpr uint64_t kPageBytes = 4ull << 10;
  static constexpr uint64_t kHugeBytes = 2ull << 20;  // of a huge page

  static SlabAddresses& OfProcess();

  // Zeroed bytes, without huge pages (MADV_NOHUGEPAGE). `bytes` is a multiple of a huge page, and
  // the range begins at one; or it is less than that, and a multiple of a page.
  uint8_t* Take(uint64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  // What Take returned. The memory goes back to the system.
  void Give(uint8_t* from, uint64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);

  // Makes whole huge pages of a range that was lent. `touched`: some of its bytes have been used.
  static void MakeHuge(uintptr_t from, uint64_t bytes, bool touched);

  // These pages of a range of less than a huge page are paid for, or are not any more. 2 MiB of
  // which all pages are paid for become a huge page, whoever has them.
  void AddPaid(const uint8_t* from, uint64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  void RemovePaid(const uint8_t* from, uint64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  using Ranges = std::map<uintptr_t, uint64_t>;  // first address -> bytes; no two touch

  Ranges* FreeOf(uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return bytes < kHugeBytes ? &pages_ : &huge_;
  }
  static void Insert(uintptr_t from, uint64_t bytes, Ranges* ranges);

  absl::Mutex mu_;
  Ranges pages_ ABSL_GUARDED_BY(mu_);  // for ranges below a huge page
  Ranges huge_ ABSL_GUARDED_BY(mu_);
  // Bytes that are paid for of each 2 MiB of pages_, by number of huge page.
  absl::flat_hash_map<uintptr_t, uint64_t> paid_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_set<uintptr_t> shared_ ABSL_GUARDED_BY(mu_);  // those that are huge pages
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_TIERS_MEMORY_SLAB_ADDRESSES_H_
