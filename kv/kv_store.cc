#include "kv/kv_store.h"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "kv/rocks_errors.h"
#include "kv/rocks_file.h"
#include "kv/rocks_flusher.h"
#include "kv/rocks_logger.h"
#include "kv/rocks_partitioner.h"
#include "kv/rocks_writable.h"
#include "rocksdb/cache.h"
#include "rocksdb/convenience.h"
#include "rocksdb/db.h"
#include "rocksdb/env.h"
#include "rocksdb/filter_policy.h"
#include "rocksdb/options.h"
#include "rocksdb/sst_file_manager.h"
#include "rocksdb/table.h"
#include "rocksdb/utilities/checkpoint.h"
#include "rocksdb/write_batch.h"
#include "rocksdb/write_buffer_manager.h"

namespace hotbed {
namespace {

constexpr uint64_t kReadaheadBytes = 2ull << 20;
// Keys per MultiGet; bounds the pinned blocks. RocksDB itself works in groups of 32.
constexpr size_t kMultiGetKeys = 128;
constexpr int64_t kStoppedPauseNs = 1'000'000;

// log2 of the number of the cache's shards. A shard must have room for the index and the filter of
// several files, some 0.7 MiB each; otherwise they evict each other at every read.
constexpr uint64_t kCacheShardBytesMin = 8ull << 20;

int CacheShardBits(uint64_t cache_bytes) {
  int bits = 0;
  while (bits < 6 && (cache_bytes >> (bits + 1)) >= kCacheShardBytesMin) ++bits;
  return bits;
}

// Files that RocksDB keeps open: 512, or a quarter of what the process may have.
int OpenFilesMax() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 128;
  return static_cast<int>(std::clamp<rlim_t>(limit.rlim_cur / 4, 32, 512));
}

// Bytes that RocksDB read, for the caller. ThreadSanitizer does not see how RocksDB orders the
// accesses to its memory, so its builds give callers a copy, which they read under its eyes.
class Seen {
 public:
#if defined(__SANITIZE_THREAD__)
  explicit Seen(const rocksdb::Slice& read) : bytes_(read.size(), '\0') {
    CopyUnseen(read.data(), read.size(), bytes_.data());
  }
  absl::string_view view() const { return bytes_; }

 private:
  // Byte by byte, because memcpy is seen.
  __attribute__((no_sanitize("thread"), noinline)) static void CopyUnseen(const volatile char* from,
                                                                          size_t bytes, char* to) {
    for (size_t i = 0; i < bytes; ++i) to[i] = from[i];
  }
  std::string bytes_;
#else
  explicit Seen(const rocksdb::Slice& read) : view_(ToView(read)) {}
  absl::string_view view() const { return view_; }

 private:
  absl::string_view view_;
#endif
};

// The part of the cache for indexes and filters.
double HighPriorityRatio(const KvOptions& options) { return options.cache_values ? 0.3 : 0.9; }

class RocksBatch : public KvBatch {
 public:
  void Put(absl::string_view key, absl::string_view value) override {
    Keep(batch_.Put(ToSlice(key), ToSlice(value)));
  }
  void Delete(absl::string_view key) override { Keep(batch_.Delete(ToSlice(key))); }
  void DeleteRange(absl::string_view first, absl::string_view limit) override {
    Keep(batch_.DeleteRange(ToSlice(first), ToSlice(limit)));
  }
  void Clear() override {
    batch_.Clear();
    status_ = rocksdb::Status::OK();
  }
  uint64_t bytes() const override { return batch_.GetDataSize(); }

  rocksdb::WriteBatch& batch() { return batch_; }
  const rocksdb::Status& status() const { return status_; }

 private:
  // Put can only fail for keys beyond RocksDB's sizes; the batch then fails as a whole.
  void Keep(rocksdb::Status status) {
    if (!status.ok()) status_ = std::move(status);
  }

  rocksdb::WriteBatch batch_;
  rocksdb::Status status_;
};

rocksdb::BlockBasedTableOptions TableOptions(const KvOptions& options,
                                             std::shared_ptr<rocksdb::Cache> cache) {
  rocksdb::BlockBasedTableOptions table;
  table.block_cache = std::move(cache);
  table.block_size = 4096;
  table.format_version = 5;
  table.checksum = rocksdb::kXXH3;
  // Indexes and filters live in the cache, so that the cache's size bounds them too.
  table.cache_index_and_filter_blocks = true;
  table.cache_index_and_filter_blocks_with_high_priority = true;
  table.pin_l0_filter_and_index_blocks_in_cache = true;
  // A block holds few rows: binary search to four of them beats a hash index over sixteen.
  table.block_restart_interval = 4;
  if (options.bloom_bits_per_key > 0) {
    table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(options.bloom_bits_per_key));
  }
  return table;
}

// The tables in `dir` whose size is not the one that the manifest has. RocksDB may lay a file that
// took the place of a table to the manifest's charge.
std::string TablesOfOtherSize(const std::string& dir) {
  rocksdb::Options options;
  options.paranoid_checks = false;  // opens in spite of them
  rocksdb::DB* opened = nullptr;
  if (!rocksdb::DB::OpenForReadOnly(options, dir, &opened).ok()) return "";
  const std::unique_ptr<rocksdb::DB> db(opened);
  std::vector<rocksdb::LiveFileMetaData> tables;
  db->GetLiveFilesMetaData(&tables);
  std::string text;
  for (const rocksdb::LiveFileMetaData& table : tables) {
    const std::string path = absl::StrCat(table.db_path, table.name);
    uint64_t bytes = 0;
    if (!options.env->GetFileSize(path, &bytes).ok() || bytes == table.size) continue;
    absl::StrAppend(&text, "; ", path, " has ", bytes, " bytes and must have ", table.size);
  }
  return text;
}

class RocksKvStore : public KvStore {
 public:
  static absl::StatusOr<std::unique_ptr<KvStore>> Open(const KvOptions& options) {
    auto store = std::unique_ptr<RocksKvStore>(new RocksKvStore(options));
    store->rocks_ = store->MakeOptions();
    const rocksdb::Options& rocks = store->rocks_;
    rocksdb::DB* db = nullptr;
    const rocksdb::Status status = options.read_only
                                       ? rocksdb::DB::OpenForReadOnly(rocks, options.dir, &db)
                                       : rocksdb::DB::Open(rocks, options.dir, &db);
    if (status.IsCorruption()) {
      return absl::DataLossError(
          absl::StrCat(ToStatus(status, absl::StrCat("opening ", options.dir)).message(),
                       TablesOfOtherSize(options.dir)));
    }
    if (!status.ok()) return ToStatus(status, absl::StrCat("opening ", options.dir));
    store->db_.reset(db);
    if (!options.read_only) HOTBED_RETURN_IF_ERROR(RocksFile::DeleteLeftovers(options.dir));
    if (store->waits_) store->StartWaiting();
    return store;
  }

  ~RocksKvStore() override {
    if (db_ == nullptr) return;
    errors_->room()->StopWaiting();  // otherwise a write that waits for room would block this
    rocksdb::CancelAllBackgroundWork(db_.get(), /*wait=*/true);
    flusher_ = nullptr;
    const rocksdb::Status status = db_->Close();
    if (!status.ok()) {
      HOTBED_LOG(Error) << "key-value store: closing " << options_.dir << ": " << status.ToString();
    }
  }

  std::unique_ptr<KvBatch> NewBatch() override { return std::make_unique<RocksBatch>(); }

  absl::Status Write(KvBatch* batch) override {
    auto* rocks = static_cast<RocksBatch*>(batch);
    if (!rocks->status().ok()) return ToStatus(rocks->status(), "building a batch");
    rocksdb::WriteOptions write;
    write.disableWAL = !options_.wal;
    write.sync = options_.wal;
    return ToStatus(
        waits_ ? WriteUnlessFull(write, &rocks->batch()) : db_->Write(write, &rocks->batch()),
        absl::StrCat("writing to ", options_.dir));
  }

  absl::StatusOr<std::unique_ptr<KvFile>> NewFile() override {
    const std::string what = absl::StrCat("a file for ", options_.dir);
    if (const rocksdb::Status error = errors_->error(); !error.ok()) return ToStatus(error, what);
    uint64_t left = std::numeric_limits<uint64_t>::max();
    if (options_.bytes_max > 0) {
      const uint64_t used = GetUsage().disk_bytes;
      left = options_.bytes_max - std::min(used, options_.bytes_max);
    }
    return RocksFile::Open(
        db_.get(), options_.dir, rocks_, ++files_made_, left, errors_.get(),
        [this] { return Flush(); }, [this] { CountAll(); });
  }

  absl::Status DeleteFiles(absl::string_view first, absl::string_view limit) override {
    const rocksdb::Slice begin = ToSlice(first);
    const rocksdb::Slice end = ToSlice(limit);
    return ToStatus(rocksdb::DeleteFilesInRange(db_.get(), db_->DefaultColumnFamily(), &begin, &end,
                                                /*include_end=*/false),
                    absl::StrCat("deleting files of ", options_.dir));
  }

  absl::Status Compact(absl::string_view first, absl::string_view limit) override {
    rocksdb::CompactRangeOptions options;
    options.exclusive_manual_compaction = false;  // others go on
    const rocksdb::Slice begin = ToSlice(first);
    const rocksdb::Slice end = ToSlice(limit);
    return ToStatus(db_->CompactRange(options, &begin, &end),
                    absl::StrCat("compacting ", options_.dir));
  }

  absl::StatusOr<std::string> Get(absl::string_view key) override {
    std::string value;
    const rocksdb::Status status = db_->Get(rocksdb::ReadOptions(), ToSlice(key), &value);
    if (!status.ok()) return ToStatus(status, absl::StrCat("reading from ", options_.dir));
    return value;
  }

  absl::Status MultiGet(absl::Span<const absl::string_view> keys,
                        const std::function<void(size_t, absl::string_view)>& visit) override {
    return MultiGetAt(nullptr, keys, visit);
  }

  absl::Status Scan(
      absl::string_view first, absl::string_view limit,
      const std::function<bool(absl::string_view, absl::string_view)>& visit) override {
    return ScanAt(nullptr, kReadaheadBytes, first, limit, visit);
  }

  std::unique_ptr<KvSnapshot> TakeSnapshot() override { return std::make_unique<Snapshot>(this); }

  uint64_t EstimateBytes(absl::string_view first, absl::string_view limit) override {
    rocksdb::SizeApproximationOptions what;
    what.include_memtables = true;
    what.include_files = true;
    const rocksdb::Range range(ToSlice(first), ToSlice(limit));
    uint64_t bytes = 0;
    const rocksdb::Status status =
        db_->GetApproximateSizes(what, db_->DefaultColumnFamily(), &range, 1, &bytes);
    return status.ok() ? bytes : 0;
  }

  absl::Status Flush() override {
    return ToStatus(flusher_ == nullptr ? db_->Flush(rocksdb::FlushOptions()) : flusher_->Flush(),
                    absl::StrCat("flushing ", options_.dir));
  }

  absl::Status Freeze(const std::string& dir) override {
    // Without a WAL, everything that matters is on disk now; RocksDB's own flush would wait for
    // room.
    if (waits_) HOTBED_RETURN_IF_ERROR(Flush());
    const uint64_t log_bytes = waits_ ? std::numeric_limits<uint64_t>::max() : 0;
    rocksdb::Checkpoint* raw = nullptr;
    rocksdb::Status status = rocksdb::Checkpoint::Create(db_.get(), &raw);
    std::unique_ptr<rocksdb::Checkpoint> checkpoint(raw);
    if (status.ok()) status = checkpoint->CreateCheckpoint(dir, log_bytes);
    return ToStatus(status, absl::StrCat("freezing ", options_.dir, " to ", dir));
  }

  Usage GetUsage() const override {
    CountAll();
    Usage usage;
    db_->GetIntProperty(rocksdb::DB::Properties::kTotalSstFilesSize, &usage.disk_bytes);
    usage.memtable_bytes = write_buffers_->memory_usage();
    usage.block_cache_bytes = cache_->GetUsage();
    const rocksdb::Status error = errors_->error();
    if (!error.ok()) usage.background_error = error.ToString();
    usage.damaged = error.IsCorruption();
    return usage;
  }

  absl::Status TryResume() override {
    HOTBED_RETURN_IF_ERROR(errors_->MayResume());
    const rocksdb::Status status = db_->Resume();
    if (!status.ok()) return ToStatus(status, absl::StrCat("resuming ", options_.dir));
    errors_->Clear();
    return absl::OkStatus();
  }

 private:
  void StartWaiting() {
    flusher_ = std::make_unique<RocksFlusher>(
        [this] { return db_->Flush(rocksdb::FlushOptions()); }, errors_->room());
    errors_->room()->StartWaiting();
  }

  // Waits for memtables as RocksDB does, but not for a full disk: a writer that fills a memtable
  // while a flush waits for room would wait as long.
  rocksdb::Status WriteUnlessFull(rocksdb::WriteOptions write, rocksdb::WriteBatch* batch) {
    write.no_slowdown = true;
    for (;;) {
      if (rocksdb::Status full = errors_->room()->error(); !full.ok()) return full;
      const rocksdb::Status status = db_->Write(write, batch);
      if (!status.IsIncomplete()) return status;
      uint64_t stopped = 0;
      db_->GetIntProperty(rocksdb::DB::Properties::kIsWriteStopped, &stopped);
      // If writes are only slowed down, each refusal delays the next chance, so RocksDB has to do
      // the waiting.
      write.no_slowdown = stopped != 0;
      if (stopped != 0) Clock::Real()->SleepNs(kStoppedPauseNs);
    }
  }

  // RocksDB counts only files that it has written against bytes_max, so ingested files lower the
  // limit. A file that was compacted since is counted twice until the next call.
  void CountAll() const {
    if (files_ == nullptr) return;
    uint64_t all = 0;
    db_->GetIntProperty(rocksdb::DB::Properties::kTotalSstFilesSize, &all);
    const uint64_t counted = files_->GetTotalSize();
    const uint64_t taken_over = all - std::min(all, counted);
    files_->SetMaxAllowedSpaceUsage(
        std::max<uint64_t>(1, options_.bytes_max - std::min(taken_over, options_.bytes_max)));
  }

  // One iterator per scan, not one for the snapshot's life: iterators keep memtables alive.
  class Snapshot : public KvSnapshot {
   public:
    explicit Snapshot(RocksKvStore* store) : store_(store), at_(store->db_->GetSnapshot()) {}
    ~Snapshot() override { store_->db_->ReleaseSnapshot(at_); }
    absl::Status Scan(
        absl::string_view first, absl::string_view limit,
        const std::function<bool(absl::string_view, absl::string_view)>& visit) override {
      // Scans are short, so read-ahead ends at their limit.
      return store_->ScanAt(at_, 0, first, limit, visit);
    }
    absl::Status MultiGet(absl::Span<const absl::string_view> keys,
                          const std::function<void(size_t, absl::string_view)>& visit) override {
      return store_->MultiGetAt(at_, keys, visit);
    }

   private:
    RocksKvStore* const store_;
    const rocksdb::Snapshot* const at_;
  };

  absl::Status MultiGetAt(const rocksdb::Snapshot* at, absl::Span<const absl::string_view> keys,
                          const std::function<void(size_t, absl::string_view)>& visit) {
    rocksdb::ReadOptions read;
    read.snapshot = at;
    read.fill_cache = options_.cache_values;  // indexes and filters are cached anyway
    const bool sorted = std::is_sorted(keys.begin(), keys.end());
    std::array<rocksdb::Slice, kMultiGetKeys> slices;
    std::array<rocksdb::PinnableSlice, kMultiGetKeys> values;
    std::array<rocksdb::Status, kMultiGetKeys> statuses;
    for (size_t first = 0; first < keys.size(); first += kMultiGetKeys) {
      const size_t count = std::min(kMultiGetKeys, keys.size() - first);
      for (size_t i = 0; i < count; ++i) slices[i] = ToSlice(keys[first + i]);
      db_->MultiGet(read, db_->DefaultColumnFamily(), count, slices.data(), values.data(),
                    statuses.data(), sorted);
      for (size_t i = 0; i < count; ++i) {
        if (statuses[i].ok()) {
          visit(first + i, Seen(values[i]).view());
        } else if (!statuses[i].IsNotFound()) {
          return ToStatus(statuses[i], absl::StrCat("reading from ", options_.dir));
        }
        values[i].Reset();
      }
    }
    return absl::OkStatus();
  }

  absl::Status ScanAt(const rocksdb::Snapshot* at, uint64_t readahead_bytes,
                      absl::string_view first, absl::string_view limit,
                      const std::function<bool(absl::string_view, absl::string_view)>& visit) {
    rocksdb::ReadOptions read;
    const rocksdb::Slice upper = ToSlice(limit);
    read.snapshot = at;
    read.iterate_upper_bound = &upper;
    read.readahead_size = readahead_bytes;
    read.fill_cache = false;
    std::unique_ptr<rocksdb::Iterator> it(db_->NewIterator(read));
    for (it->Seek(ToSlice(first)); it->Valid(); it->Next()) {
      if (!visit(Seen(it->key()).view(), Seen(it->value()).view())) break;
    }
    return ToStatus(it->status(), absl::StrCat("scanning ", options_.dir));
  }

  explicit RocksKvStore(const KvOptions& options)
      : options_(options),
        cache_(rocksdb::NewLRUCache(options.block_cache_bytes,
                                    CacheShardBits(options.block_cache_bytes),
                                    /*strict_capacity_limit=*/false, HighPriorityRatio(options))),
        write_buffers_(std::make_shared<rocksdb::WriteBufferManager>(options.memtable_bytes)),
        errors_(std::make_shared<RocksErrors>()),
        waits_(!options.read_only && !options.wal),
        env_(rocksdb::NewCompositeEnv(NewWaitingFileSystem(options.dir, errors_->room()))) {}

  rocksdb::Options MakeOptions() {
    rocksdb::Options rocks;
    if (waits_) rocks.env = env_.get();
    rocks.create_if_missing = !options_.read_only && !options_.must_exist;
    rocks.compression = rocksdb::kNoCompression;  // rows are close to random bits
    rocks.write_buffer_manager = write_buffers_;
    // Half of the budget per memtable: one fills while the other is flushed.
    rocks.write_buffer_size = std::max<uint64_t>(options_.memtable_bytes / 2, 64ull << 10);
    rocks.max_write_buffer_number = 3;
    rocks.max_background_jobs = std::max(2, options_.background_threads + 1);
    rocks.level_compaction_dynamic_level_bytes = true;
    // Data in the disk's queue delays every other sync of the machine, such as that of a promise.
    rocks.bytes_per_sync = 1ull << 20;
    rocks.strict_bytes_per_sync = true;
    rocks.max_open_files = OpenFilesMax();
    rocks.info_log = NewRocksLogger();
    rocks.info_log_level = rocksdb::InfoLogLevel::WARN_LEVEL;
    rocks.stats_dump_period_sec = 0;
    rocks.stats_persist_period_sec = 0;
    // Readers never wait for compaction reads to leave the page cache in pieces.
    rocks.compaction_readahead_size = kReadaheadBytes;
    rocks.max_bgerror_resume_count = 0;  // TryResume resumes, when the caller knows of space
    rocks.listeners.push_back(errors_);
    rocks.table_factory.reset(rocksdb::NewBlockBasedTableFactory(TableOptions(options_, cache_)));
    if (options_.group_prefix_bytes > 0) {
      rocks.sst_partitioner_factory =
          NewRocksPartitioner(static_cast<size_t>(options_.group_prefix_bytes));
    }
    if (options_.bytes_max > 0) {
      files_.reset(rocksdb::NewSstFileManager(rocksdb::Env::Default()));
      files_->SetMaxAllowedSpaceUsage(options_.bytes_max);
      rocks.sst_file_manager = files_;
    }
    return rocks;
  }

  const KvOptions options_;
  std::shared_ptr<rocksdb::Cache> cache_;
  std::shared_ptr<rocksdb::WriteBufferManager> write_buffers_;
  std::shared_ptr<RocksErrors> errors_;
  // Whether to wait for a full disk. Not if writes are synced: their callers would wait.
  const bool waits_;
  std::unique_ptr<rocksdb::Env> env_;
  std::shared_ptr<rocksdb::SstFileManager> files_;
  rocksdb::Options rocks_;
  std::atomic<uint64_t> files_made_{0};
  std::unique_ptr<rocksdb::DB> db_;
  std::unique_ptr<RocksFlusher> flusher_;  // if waits_
};

}  // namespace

absl::StatusOr<std::unique_ptr<KvStore>> KvStore::Open(const KvOptions& options) {
  if (options.dir.empty()) return absl::InvalidArgumentError("KvOptions.dir is empty: name one");
  if (!options.read_only) {
    const rocksdb::Status made = rocksdb::Env::Default()->CreateDirIfMissing(options.dir);
    if (!made.ok()) return ToStatus(made, absl::StrCat("creating ", options.dir));
  }
  return RocksKvStore::Open(options);
}

absl::Status KvStore::Destroy(const std::string& dir) {
  return ToStatus(rocksdb::DestroyDB(dir, rocksdb::Options()), absl::StrCat("destroying ", dir));
}

}  // namespace hotbed
