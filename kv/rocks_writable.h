// A file system under RocksDB's for the files that a store writes: if the disk has no room for one,
// its writer waits (rocks_room.h). A part of kv_store.cc. Thread-safe.
//
// Only files in the store's own folder wait. Files in folders below it or elsewhere return the
// error, since the caller of an ingest or a freeze wants it; files to be ingested report a quota as
// a full disk. A WAL does not wait either: its writers wait for the sync themselves. A failed fsync
// is never retried: the kernel may have dropped the data, and the next fsync would succeed. The
// stores of a process share RocksDB's threads: a waiting flush delays those of other stores.
#ifndef HOTBED_KV_ROCKS_WRITABLE_H_
#define HOTBED_KV_ROCKS_WRITABLE_H_

#include <memory>
#include <string>

#include "kv/rocks_room.h"
#include "rocksdb/file_system.h"

namespace hotbed {

// Below the store's folder: files that are to be ingested (rocks_file.h).
inline constexpr char kIncomingFolder[] = "incoming/";

// `dir` as it is given to DB::Open; `room` outlives the file system and its files.
std::shared_ptr<rocksdb::FileSystem> NewWaitingFileSystem(const std::string& dir, RocksRoom* room);

}  // namespace hotbed

#endif  // HOTBED_KV_ROCKS_WRITABLE_H_
