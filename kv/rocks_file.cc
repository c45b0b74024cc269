#include "kv/rocks_file.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

// Other threads may keep writing into the range; after these attempts RocksDB flushes itself.
constexpr int kFlushesMax = 3;

std::string IncomingDir(const std::string& dir) { return dir + "/incoming"; }

}  // namespace

absl::StatusOr<std::unique_ptr<KvFile>> RocksFile::Open(rocksdb::DB* db, const std::string& dir,
                                                        const rocksdb::Options& options,
                                                        uint64_t number, uint64_t bytes_left,
                                                        RocksErrors* errors,
                                                        std::function<absl::Status()> flush,
                                                        std::function<void()> taken_over) {
  rocksdb::Status status = options.env->CreateDirIfMissing(IncomingDir(dir));
  if (!status.ok()) return ToStatus(status, absl::StrCat("creating ", IncomingDir(dir)));
  const std::string path = absl::StrCat(IncomingDir(dir), "/", number, ".sst");
  auto file = std::unique_ptr<RocksFile>(new RocksFile(db, path, options, bytes_left, errors,
                                                       std::move(flush), std::move(taken_over)));
  status = file->writer_.Open(path);
  if (!status.ok()) return file->Told(status, "creating ");
  return file;
}

absl::Status RocksFile::DeleteLeftovers(const std::string& dir) {
  std::error_code error;
  std::filesystem::remove_all(IncomingDir(dir), error);
  if (!error) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("removing ", IncomingDir(dir), ": ", error.message()));
}

// Reads of its rows find the file in the page cache, and direct writes were no cheaper.
RocksFile::RocksFile(rocksdb::DB* db, std::string path, const rocksdb::Options& options,
                     uint64_t bytes_left, RocksErrors* errors, std::function<absl::Status()> flush,
                     std::function<void()> taken_over)
    : db_(db),
      path_(std::move(path)),
      bytes_left_(bytes_left),
      errors_(errors),
      flush_(std::move(flush)),
      taken_over_(std::move(taken_over)),
      writer_(rocksdb::EnvOptions(options), options, db->DefaultColumnFamily(),
              /*invalidate_page_cache=*/false) {}

RocksFile::~RocksFile() {
  std::error_code error;  // the file is gone if it was ingested
  std::filesystem::remove(path_, error);
  if (error) HOTBED_LOG(Warning) << "cannot remove " << path_ << ": " << error.message();
}

absl::Status RocksFile::Told(const rocksdb::Status& status, absl::string_view what) const {
  if (status.IsIOError()) errors_->Tell(status);
  return ToStatus(status, absl::StrCat(what, path_));
}

absl::Status RocksFile::Add(absl::string_view key, absl::string_view value) {
  const rocksdb::Status status = HasRoom(key.size() + value.size())
                                     ? writer_.Put(ToSlice(key), ToSlice(value))
                                     : rocksdb::Status::SpaceLimit();
  return status.ok() ? absl::OkStatus() : Told(status, "writing ");
}

absl::Status RocksFile::Delete(absl::string_view key) {
  const rocksdb::Status status =
      HasRoom(key.size()) ? writer_.Delete(ToSlice(key)) : rocksdb::Status::SpaceLimit();
  return status.ok() ? absl::OkStatus() : Told(status, "writing ");
}

// RocksDB's own flush blocks all writers, and would do so as long as the disk is full.
rocksdb::Status RocksFile::TakeOver(bool may_flush) {
  rocksdb::IngestExternalFileOptions how;
  how.move_files = true;
  how.write_global_seqno = false;  // for RocksDB before 5.16 only
  how.allow_blocking_flush = may_flush;
  return db_->IngestExternalFile({path_}, how);
}

absl::Status RocksFile::Ingest() {
  rocksdb::Status status = writer_.Finish();
  if (!status.ok()) return Told(status, "writing ");
  // A store that has stopped for an error gives no number to a file, and then RocksDB's assertions
  // end the process. RocksDB reports errors a moment before it acts on them.
  status = errors_->error();
  if (!status.ok()) return ToStatus(status, absl::StrCat("taking over ", path_));
  status = TakeOver(/*may_flush=*/false);
  for (int i = 0; i < kFlushesMax && status.IsInvalidArgument(); ++i) {
    HOTBED_RETURN_IF_ERROR(flush_());
    status = TakeOver(/*may_flush=*/i == kFlushesMax - 1);
  }
  if (!status.ok()) return Told(status, "taking over ");
  taken_over_();
  return absl::OkStatus();
}

}  // namespace hotbed
