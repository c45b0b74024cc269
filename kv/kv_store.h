// The one includer of RocksDB: an ordered key-value store on disk for the spill tier (own WAL off)
// and the coordinator's metadata (WAL on, synced). Thread-safe.
#ifndef HOTBED_KV_KV_STORE_H_
#define HOTBED_KV_KV_STORE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace hotbed {

struct KvOptions {
  std::string dir;
  // With a WAL, Write is durable (synced) when it returns; without one, only Flush makes durable.
  bool wal = true;
  uint64_t block_cache_bytes = 64ull << 20;
  uint64_t memtable_bytes = 64ull << 20;  // all memtables together
  uint64_t bytes_max = 0;                 // of files on disk; 0: no limit
  int background_threads = 1;
  int bloom_bits_per_key = 10;
  // Compactions end files where so many first bytes of the keys change (rocks_partitioner.h); 0:
  // anywhere.
  int group_prefix_bytes = 0;
  // Whether reads put blocks of values into the block cache. False for a caller that caches values
  // itself: the cache then serves indexes and filters alone.
  bool cache_values = true;
  bool read_only = false;   // for frozen stores: every write fails, no file changes
  bool must_exist = false;  // else an empty store is made where there is none
};

// How far a store on disk has got: the number of its manifest, the file that lists all others and
// only grows, its bytes, and a checksum of the last of these bytes. Each Open begins a new manifest
// with a higher number, and so may TryResume.
struct KvState {
  uint64_t file = 0;
  uint64_t bytes = 0;
  uint32_t crc = 0;
  friend bool operator==(const KvState& a, const KvState& b) = default;
};
// The state of the store in `dir`, which may be open; of its manifest's first `bytes_max` bytes.
// DataLoss: the files that say so are missing or damaged.
absl::StatusOr<KvState> KvStateOf(const std::string& dir, uint64_t bytes_max = UINT64_MAX);

class KvBatch {
 public:
  virtual ~KvBatch() = default;
  virtual void Put(absl::string_view key, absl::string_view value) = 0;
  virtual void Delete(absl::string_view key) = 0;
  virtual void DeleteRange(absl::string_view first, absl::string_view limit) = 0;
  virtual void Clear() = 0;
  virtual uint64_t bytes() const = 0;
};

// A file of entries that the store ingests whole: no entry passes through a memtable, and none is
// compacted if the range holds no other entries. A file that was not ingested is deleted with this
// object, or by the next Open after a kill. Keeps about a sixtieth of its bytes in memory.
// Thread-compatible; does not outlive the store.
class KvFile {
 public:
  virtual ~KvFile() = default;
  // Keys must ascend (else InvalidArgument). An error is final. The store reports an error of the
  // disk as one of its own files: Usage::background_error, until TryResume.
  virtual absl::Status Add(absl::string_view key, absl::string_view value) = 0;
  // An entry that deletes the key from the store.
  virtual absl::Status Delete(absl::string_view key) = 0;
  virtual uint64_t bytes() const = 0;
  // Called once, with at least one entry. The entries are durable on return, and newer than
  // anything written to the store before.
  virtual absl::Status Ingest() = 0;
};

// Reads of many entries: of the store as it is, or as it was at one moment.
class KvReads {
 public:
  virtual ~KvReads() = default;
  // Keys in [first, limit) in order until `visit` returns false.
  virtual absl::Status Scan(
      absl::string_view first, absl::string_view limit,
      const std::function<bool(absl::string_view key, absl::string_view value)>& visit) = 0;
  // Batched lookup of keys, fastest when they are sorted. Calls `visit(i, value)` for each key that
  // exists, in any order, on this thread; the view is valid during the call. DataLoss when RocksDB
  // reports corruption.
  virtual absl::Status MultiGet(
      absl::Span<const absl::string_view> keys,
      const std::function<void(size_t i, absl::string_view value)>& visit) = 0;
};

// The store as it was at one moment, while this object lives. It holds no memory of the store, only
// files that compaction could otherwise delete. Thread-compatible; does not outlive the store.
class KvSnapshot : public KvReads {};

class KvStore : public KvReads {
 public:
  static absl::StatusOr<std::unique_ptr<KvStore>> Open(const KvOptions& options);
  static absl::Status Destroy(const std::string& dir);

  virtual std::unique_ptr<KvBatch> NewBatch() = 0;
  virtual absl::Status Write(KvBatch* batch) = 0;

  virtual absl::StatusOr<std::string> Get(absl::string_view key) = 0;  // NotFound

  // Fails as Write does while the store has a background error or is full.
  virtual absl::StatusOr<std::unique_ptr<KvFile>> NewFile() = 0;
  // Deletes, at once and durably, files that hold only keys of [first, limit). Some entries of the
  // range may stay, and older versions that they had replaced may come back. Snapshots lose the
  // files too.
  virtual absl::Status DeleteFiles(absl::string_view first, absl::string_view limit) = 0;

  // Drops, from the disk too, what later entries of [first, limit) have replaced. Blocks while it
  // reads and writes all of the range that needs it.
  virtual absl::Status Compact(absl::string_view first, absl::string_view limit) = 0;

  virtual std::unique_ptr<KvSnapshot> TakeSnapshot() = 0;
  // Roughly how many bytes the entries in [first, limit) take.
  virtual uint64_t EstimateBytes(absl::string_view first, absl::string_view limit) = 0;

  virtual absl::Status Flush() = 0;  // memtables to SSTs; blocks
  // Makes a hard-linked snapshot in `dir`, which KvStore::Open can open.
  virtual absl::Status Freeze(const std::string& dir) = 0;

  struct Usage {
    uint64_t disk_bytes = 0;
    uint64_t memtable_bytes = 0;
    uint64_t block_cache_bytes = 0;
    std::string background_error;
    bool damaged = false;  // background_error is of data on disk, and no TryResume clears it
  };
  virtual Usage GetUsage() const = 0;
  virtual absl::Status TryResume() = 0;
};

}  // namespace hotbed

#endif  // HOTBED_KV_KV_STORE_H_
