// One shard's part of the bytes that all shards of a server hold of one kind, for the limit of that
// kind (ShardOptions). Confined to the shard's strand; only the sum is shared.
#ifndef HOTBED_SERVER_SHARD_COUNTED_BYTES_H_
#define HOTBED_SERVER_SHARD_COUNTED_BYTES_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace hotbed {

class CountedBytes {
 public:
  // Null: the bytes count nowhere else.
  explicit CountedBytes(std::shared_ptr<std::atomic<int64_t>> sum) : sum_(std::move(sum)) {}
  ~CountedBytes() { Set(0); }
  CountedBytes(const CountedBytes&) = delete;
  CountedBytes& operator=(const CountedBytes&) = delete;

  void Set(uint64_t bytes) {
    if (bytes == bytes_) return;
    const auto more = static_cast<int64_t>(bytes) - static_cast<int64_t>(bytes_);
    if (sum_ != nullptr) sum_->fetch_add(more, std::memory_order_relaxed);
    bytes_ = bytes;
  }
  uint64_t bytes() const { return bytes_; }

 private:
  const std::shared_ptr<std::atomic<int64_t>> sum_;
  uint64_t bytes_ = 0;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_COUNTED_BYTES_H_
