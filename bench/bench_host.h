// A shard host without a network, whose process is the only server of its tables. For benchmarks:
// a failure ends the process.
#ifndef HOTBED_BENCH_BENCH_HOST_H_
#define HOTBED_BENCH_BENCH_HOST_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "server/host/shard_host.h"

namespace hotbed::bench {

// A push that its thread waits for.
struct BenchPush final : PushWork {
  BenchPush() {
    session = 1;
    incarnation = 1;
  }
  void Done() override { done.Notify(); }
  // Ends the process unless every segment was applied.
  void Wait();
  absl::Notification done;
};

class BenchHost {
 public:
  // In `dir`, which must be empty or new; it is deleted at the end. Empty: a new temporary one.
  explicit BenchHost(std::string dir = "", uint64_t host_bytes = 1ull << 30);
  ~BenchHost();

  ShardHost* get() const { return host_.get(); }
  // Serves all tables, each cut evenly into `shards`: shard i has the rows from i * rows / shards.
  // `shards` divides the rows. Every shard is active in epoch 1.
  void Serve(const std::vector<TableSpec>& tables, uint32_t shards);
  // Pushes every row of a table once, so that all are resident; each gradient is `value`
  // throughout.
  void Fill(const TableSpec& table, uint32_t shards, float value);

 private:
  std::string dir_;
  std::unique_ptr<ShardHost> host_;
};

}  // namespace hotbed::bench

#endif  // HOTBED_BENCH_BENCH_HOST_H_
