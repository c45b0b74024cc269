// How --host-bytes is divided among the parts of a server, so that its resident memory stays within
// 1.15 times of it.
#ifndef HOTBED_SERVER_HOST_HOST_BUDGET_H_
#define HOTBED_SERVER_HOST_HOST_BUDGET_H_

#include <algorithm>
#include <cstdint>

namespace hotbed {

// Bytes. The parts add up to host_bytes; the hot tier gets what the others leave.
//
//   memtables      1/16, 4 to 128 MiB    rows on their way to the spill tier
//   block cache    1/16, 4 MiB or more   the spill tier's index and filter blocks
//   messages       1/8, 8 to 512 MiB     requests and answers; the log writes out of the requests
//   staged         1/32, 2 to 256 MiB    pushes to synchronous tables until their step's commit
//   replica tail   1/32, 2 to 256 MiB    log records that other replicas may still need
//   transfers      1/32, 4 to 256 MiB    messages of other servers, until applied or written
//   exports        3/64, 6 to 192 MiB    a third: lists of rows, and changes that are read by
//                                        followers; the rest: saves, restores, exports and imports
//   sessions       1/64, 1 to 128 MiB    the last push of each session to each shard
//   process        1/6, up to 48 MiB     code, threads, gRPC
//   hot tier       the rest: 35/64 of 1 GiB; of it, each shard takes kShardBytes besides its rows
struct HostBudget {
  uint64_t hot_bytes = 0;
  uint64_t block_cache_bytes = 0;
  uint64_t memtable_bytes = 0;
  uint64_t message_bytes = 0;
  uint64_t staged_bytes = 0;
  uint64_t replica_tail_bytes = 0;
  uint64_t transfer_bytes = 0;
  uint64_t session_bytes = 0;
  uint64_t export_bytes = 0;
  uint64_t process_bytes = 0;
};

inline HostBudget CarveHostBytes(uint64_t host_bytes) {
  constexpr uint64_t kMiB = 1ull << 20;
  HostBudget budget;
  budget.memtable_bytes = std::clamp(host_bytes / 16, 4 * kMiB, 128 * kMiB);
  budget.block_cache_bytes = std::max(host_bytes / 16, 4 * kMiB);
  budget.message_bytes = std::clamp(host_bytes / 8, 8 * kMiB, 512 * kMiB);
  budget.staged_bytes = std::clamp(host_bytes / 32, 2 * kMiB, 256 * kMiB);
  budget.replica_tail_bytes = budget.staged_bytes;
  budget.transfer_bytes = std::clamp(host_bytes / 32, 4 * kMiB, 256 * kMiB);
  budget.session_bytes = std::clamp(host_bytes / 64, kMiB, 128 * kMiB);
  budget.export_bytes = std::clamp(host_bytes / 64 * 3, 6 * kMiB, 192 * kMiB);
  budget.process_bytes = std::min(host_bytes / 6, 48 * kMiB);
  const uint64_t others = budget.memtable_bytes + budget.block_cache_bytes + budget.message_bytes +
                          budget.staged_bytes + budget.replica_tail_bytes + budget.transfer_bytes +
                          budget.session_bytes + budget.export_bytes + budget.process_bytes;
  // A budget too small for the fixed minimums still gets a hot tier to work with.
  budget.hot_bytes = host_bytes > others + kMiB ? host_bytes - others : kMiB;
  return budget;
}

}  // namespace hotbed

#endif  // HOTBED_SERVER_HOST_HOST_BUDGET_H_
