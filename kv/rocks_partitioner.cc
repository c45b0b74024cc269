#include "kv/rocks_partitioner.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace hotbed {
namespace {

constexpr uint64_t kFileBytesMin = 1ull << 20;

class RocksPartitioner : public rocksdb::SstPartitioner {
 public:
  explicit RocksPartitioner(size_t prefix_bytes) : prefix_bytes_(prefix_bytes) {}
  const char* Name() const override { return "HotbedPartitioner"; }
  rocksdb::PartitionerResult ShouldPartition(const rocksdb::PartitionerRequest& request) override {
    if (request.current_output_file_size < kFileBytesMin) return rocksdb::kNotRequired;
    const rocksdb::Slice& before = *request.prev_user_key;
    const rocksdb::Slice& next = *request.current_user_key;
    const size_t bytes = std::min({prefix_bytes_, before.size(), next.size()});
    return std::memcmp(before.data(), next.data(), bytes) == 0 ? rocksdb::kNotRequired
                                                               : rocksdb::kRequired;
  }
  bool CanDoTrivialMove(const rocksdb::Slice&, const rocksdb::Slice&) override { return true; }

 private:
  const size_t prefix_bytes_;
};

class RocksPartitionerFactory : public rocksdb::SstPartitionerFactory {
 public:
  explicit RocksPartitionerFactory(size_t prefix_bytes) : prefix_bytes_(prefix_bytes) {}
  const char* Name() const override { return "HotbedPartitionerFactory"; }
  std::unique_ptr<rocksdb::SstPartitioner> CreatePartitioner(
      const rocksdb::SstPartitioner::Context&) const override {
    return std::make_unique<RocksPartitioner>(prefix_bytes_);
  }

 private:
  const size_t prefix_bytes_;
};

}  // namespace

std::shared_ptr<rocksdb::SstPartitionerFactory> NewRocksPartitioner(size_t prefix_bytes) {
  return std::make_shared<RocksPartitionerFactory>(prefix_bytes);
}

}  // namespace hotbed
