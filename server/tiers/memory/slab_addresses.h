// The addresses of all slabs of this process. The kernel allows a process some 65,000 mappings
// (vm.max_map_count), and a shard has several slabs: ranges that lie side by side in a few large
// reservations are one mapping together. Addresses cost no memory. Thread-safe.
#ifndef HOTBED_SERVER_TIERS_MEMORY_SLAB_ADDRESSES_H_
#define HOTBED_SERVER_TIERS_MEMORY_SLAB_ADDRESSES_H_

#include <cstdint>
#include <map>

#include "absl/base/thread_annotations.h"
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

 private:
  using Ranges = std::map<uintptr_t, uint64_t>;  // first address -> bytes; no two touch

  Ranges* FreeOf(uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return bytes < kHugeBytes ? &pages_ : &huge_;
  }
  static void Insert(uintptr_t from, uint64_t bytes, Ranges* ranges);

  absl::Mutex mu_;
  Ranges pages_ ABSL_GUARDED_BY(mu_);  // for ranges below a huge page
  Ranges huge_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_TIERS_MEMORY_SLAB_ADDRESSES_H_
