// KvFile over RocksDB's SstFileWriter and IngestExternalFile: a part of kv_store.cc.
//
// A file is written in a folder of its own inside the store's, and linked into the store when it is
// complete. RocksDB puts it on the lowest level whose range has no other entries, and first flushes
// a memtable that has some. Thread-compatible.
#ifndef HOTBED_KV_ROCKS_FILE_H_
#define HOTBED_KV_ROCKS_FILE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kv/kv_store.h"
#include "kv/rocks_errors.h"
#include "rocksdb/db.h"
#include "rocksdb/options.h"
#include "rocksdb/sst_file_writer.h"

namespace hotbed {

// The bytes of its disk that files of a store may take, with those that are there. Thread-safe.
struct FileRoom {
  uint64_t bytes_max = 0;                // of the store; 0: no limit
  std::function<uint64_t()> disk_bytes;  // of the store now, without files that are being written
  std::atomic<uint64_t> written{0};      // to files, less those that were deleted
  std::atomic<uint64_t> ingested{0};     // of these
  // A file that begins now ends where `written` exceeds this.
  uint64_t WrittenMax() const;
};

class RocksFile : public KvFile {
 public:
  // `number` is unique since DeleteLeftovers. Everything pointed to outlives the file. `flush` is
  // KvStore::Flush; `taken_over` is called once the file has been ingested.
  static absl::StatusOr<std::unique_ptr<KvFile>> Open(rocksdb::DB* db, const std::string& dir,
                                                      const rocksdb::Options& options,
                                                      uint64_t number, FileRoom* room,
                                                      RocksErrors* errors,
                                                      std::function<absl::Status()> flush,
                                                      std::function<void()> taken_over);
  // Deletes files that a kill has left. The store in `dir` is open and writes none now.
  static absl::Status DeleteLeftovers(const std::string& dir);

  ~RocksFile() override;
  absl::Status Add(absl::string_view key, absl::string_view value) override;
  absl::Status Delete(absl::string_view key) override;
  uint64_t bytes() const override { return bytes_; }
  void LeaveCache() override { leaves_cache_ = true; }
  absl::Status Ingest() override;

 private:
  RocksFile(rocksdb::DB* db, std::string path, const rocksdb::Options& options, FileRoom* room,
            RocksErrors* errors, std::function<absl::Status()> flush,
            std::function<void()> taken_over);
  static void DropPages(const std::string& path);
  // Counts an entry; false: the files would be too large.
  bool HasRoom(uint64_t bytes);
  rocksdb::Status TakeOver(bool may_flush);
  absl::Status Told(const rocksdb::Status& status, absl::string_view what) const;

  rocksdb::DB* const db_;
  const std::string path_;
  FileRoom* const room_;
  const uint64_t written_max_;  // FileRoom::WrittenMax
  RocksErrors* const errors_;
  const std::function<absl::Status()> flush_;
  const std::function<void()> taken_over_;
  rocksdb::SstFileWriter writer_;
  uint64_t bytes_ = 0;
  bool ingested_ = false;
  bool leaves_cache_ = false;
};

}  // namespace hotbed

#endif  // HOTBED_KV_ROCKS_FILE_H_
