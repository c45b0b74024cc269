// The files that a store writes, in a file system under RocksDB's: where the disk has no room for
// one of them, its writer waits (rocks_room.h). A part of kv_store.cc. Thread-safe.
//
// Only the files of the store's own folder wait, not those of folders in it or elsewhere: of a file
// that is to be taken over, or of a frozen copy, the error is wanted. Nor does a log of writes: who
// writes with one waits for its sync himself. An fsync that fails is not tried again, whatever the
// reason: the kernel may have dropped what it could not write, and the next one would succeed.
// The stores of a process share RocksDB's threads: a flush that waits keeps those of others
// waiting.
#ifndef HOTBED_KV_ROCKS_WRITABLE_H_
#define HOTBED_KV_ROCKS_WRITABLE_H_

#include <memory>
#include <string>

#include "kv/rocks_room.h"
#include "rocksdb/file_system.h"

namespace hotbed {

// `dir` as it is given to DB::Open; `room` outlives the file system and its files.
std::shared_ptr<rocksdb::FileSystem> NewWaitingFileSystem(const std::string& dir, RocksRoom* room);

}  // namespace hotbed

#endif  // HOTBED_KV_ROCKS_WRITABLE_H_
