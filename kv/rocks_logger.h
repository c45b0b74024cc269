// RocksDB's messages, in this process's log. RocksDB's own log is a file on the store's disk, and
// RocksDB (7.8.3) ends the process when it writes to that file again after the disk was full.
// A part of kv_store.cc. Thread-safe.
#ifndef HOTBED_KV_ROCKS_LOGGER_H_
#define HOTBED_KV_ROCKS_LOGGER_H_

#include <memory>

#include "rocksdb/env.h"

namespace hotbed {

// Passes every error on, and one warning per 10 s: a busy store warns of each memtable that waits.
// Leaves out the list of options, which RocksDB repeats in its file OPTIONS-*.
std::shared_ptr<rocksdb::Logger> NewRocksLogger();

}  // namespace hotbed

#endif  // HOTBED_KV_ROCKS_LOGGER_H_
