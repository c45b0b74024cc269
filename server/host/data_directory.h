// The files that describe a data directory's owner and contents: LOCK, IDENTITY, MARKS, CATALOG.
//
// A directory whose IDENTITY says that it was made must have all of them, each as it was written
// last; MARKS tells. What is missing, older or from a copy of the directory is refused, by an error
// that names the file (DataLoss).
//
// Thread-safe. A change is durable when the call returns OK; on an error nothing has changed, in
// memory or on disk (but see ForgetInCatalog).
#ifndef HOTBED_SERVER_HOST_DATA_DIRECTORY_H_
#define HOTBED_SERVER_HOST_DATA_DIRECTORY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/files/file_system.h"
#include "common/files/kept_file.h"
#include "common/files/marks.h"
#include "common/ids.h"
#include "common/tables/shard_record.h"
#include "server/host/catalog_file.h"
#include "server/host/shard_host.h"
#include "server/shard_log/identity_file.h"

namespace hotbed {

class DataDirectory {
 public:
  // Makes the directory if need be, locks it, begins the next start, and marks it unclean until
  // MarkClean. An error has changed nothing.
  static absl::StatusOr<std::unique_ptr<DataDirectory>> Open(const std::string& path,
                                                             FileSystem* files);
  // The directory belongs to no process: moves everything but its identity into a folder inside,
  // whose path it returns. The next Open finds a server without data. FailedPrecondition: there is
  // no identity to go on with.
  static absl::StatusOr<std::string> GiveUp(const std::string& path, FileSystem* files);

  // How the last run ended: by MarkClean (a new directory counts as clean), and whether the machine
  // has been booted since, so that bytes that were not synced may be lost.
  bool was_clean() const { return was_clean_; }
  bool rebooted() const { return rebooted_; }
  // An earlier start got as far as recovery: its files must be there.
  bool was_made() const { return was_made_; }
  Marks* marks() const { return marks_.get(); }
  KeptFile::Proof ProofOf(Marks::Field field) const;
  std::string PathOf(const char* name) const;
  absl::StatusOr<uint64_t> FreeBytes() const { return files_->FreeBytes(path_); }

  // --- identity
  ShardHost::Identity identity() const ABSL_LOCKS_EXCLUDED(identity_mu_);
  Member self() const ABSL_LOCKS_EXCLUDED(identity_mu_);
  // The server has registered. FailedPrecondition: the directory belongs to another server or
  // cluster, both named.
  absl::Status SetIdentity(const ShardHost::Identity& identity) ABSL_LOCKS_EXCLUDED(identity_mu_);
  // The servers of the cluster, by name. Kept for a coordinator that has lost its metadata.
  void LearnServers(const std::map<ServerId, std::string>& servers)
      ABSL_LOCKS_EXCLUDED(identity_mu_);
  std::map<ServerId, std::string> servers() const ABSL_LOCKS_EXCLUDED(identity_mu_);
  void SetIncarnation(Incarnation incarnation) ABSL_LOCKS_EXCLUDED(identity_mu_);
  // Call it only once the log is recovered: after a kill before that, the next start must still
  // know that the machine was booted, or it would report what a power loss tore off as damage. From
  // now on every file must be there.
  absl::Status MarkRecovered() ABSL_LOCKS_EXCLUDED(identity_mu_);
  absl::Status MarkClean() ABSL_LOCKS_EXCLUDED(identity_mu_);

  // --- catalog
  std::shared_ptr<const Catalog> catalog() const ABSL_LOCKS_EXCLUDED(catalog_mu_);
  absl::Status ChangeCatalog(absl::FunctionRef<void(Catalog*)> edit)
      ABSL_LOCKS_EXCLUDED(catalog_edit_mu_, catalog_mu_);
  // For shards whose rows are already deleted: the change holds in memory even when the write
  // fails. The file then still marks them as incomplete, so the next start deletes them again.
  void ForgetInCatalog(absl::FunctionRef<void(Catalog*)> edit)
      ABSL_LOCKS_EXCLUDED(catalog_edit_mu_, catalog_mu_);

 private:
  DataDirectory(const std::string& path, FileSystem* files) : path_(path), files_(files) {}
  absl::Status Load();
  absl::StatusOr<IdentityFile> LoadIdentity() const;
  absl::Status CheckStart(const IdentityFile& identity) const;
  absl::Status LoadCatalog() ABSL_LOCKS_EXCLUDED(catalog_edit_mu_, catalog_mu_);
  absl::Status SaveIdentity(IdentityFile changed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(identity_mu_);

  const std::string path_;
  FileSystem* const files_;
  std::unique_ptr<WritableFile> lock_;
  bool was_clean_ = false;
  bool rebooted_ = false;
  bool was_made_ = false;
  std::unique_ptr<Marks> marks_;
  uint64_t run_ = 0;
  uint64_t run_before_ = 0;

  mutable absl::Mutex identity_mu_;
  IdentityFile identity_ ABSL_GUARDED_BY(identity_mu_);
  Incarnation incarnation_ ABSL_GUARDED_BY(identity_mu_) = 0;

  // One change of the catalog at a time, held while its file is written. Readers do not wait for
  // that: heartbeats are among them.
  absl::Mutex catalog_edit_mu_ ABSL_ACQUIRED_BEFORE(catalog_mu_);
  std::optional<KeptFile> catalog_file_ ABSL_GUARDED_BY(catalog_edit_mu_);
  mutable absl::Mutex catalog_mu_;
  std::shared_ptr<const Catalog> catalog_ ABSL_GUARDED_BY(catalog_mu_);
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_HOST_DATA_DIRECTORY_H_
