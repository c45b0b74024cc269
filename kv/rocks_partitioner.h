// Where compactions end files: where the first bytes of the keys change, so that a file of one
// group of keys does not reach over another one's. A file that the store ingests then finds its
// range free below, and is never compacted.
#ifndef HOTBED_KV_ROCKS_PARTITIONER_H_
#define HOTBED_KV_ROCKS_PARTITIONER_H_

#include <cstddef>
#include <memory>

#include "rocksdb/sst_partitioner.h"

namespace hotbed {

// Small groups share files.
std::shared_ptr<rocksdb::SstPartitionerFactory> NewRocksPartitioner(size_t prefix_bytes);

}  // namespace hotbed

#endif  // HOTBED_KV_ROCKS_PARTITIONER_H_
