#include "server/host/data_directory.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/files/own_directory.h"
#include "common/log.h"
#include "common/random.h"
#include "common/status_macros.h"
#include "server/shard_log/planted_bugs.h"

namespace hotbed {
namespace {

// A file that must be there is not.
absl::Status IsMissing(const absl::Status& status) {
  if (!absl::IsNotFound(status)) return status;
  return absl::DataLossError(
      absl::StrCat(status.message(), ", and this directory has been a server's: it is missing"));
}

// The id of a start. Two copies of a directory must not draw the same one.
uint64_t NewRun(uint64_t start) {
  const uint64_t now = static_cast<uint64_t>(absl::ToUnixNanos(absl::Now()));
  return Random(now ^ (static_cast<uint64_t>(getpid()) << 44) ^ Random(start).Next()).Next() | 1;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DataDirectory>> DataDirectory::Open(const std::string& path,
                                                                   FileSystem* files) {
  auto directory = absl::WrapUnique(new DataDirectory(path, files));
  HOTBED_RETURN_IF_ERROR(directory->Load());
  return directory;
}

std::string DataDirectory::PathOf(const char* name) const { return absl::StrCat(path_, "/", name); }

KeptFile::Proof DataDirectory::ProofOf(Marks::Field field) const {
  return {.marks = marks_.get(), .field = field, .run = run_, .run_before = run_before_};
}

// Everything is looked at before anything is written: a start that is refused leaves no trace but
// its lock.
absl::Status DataDirectory::Load() {
  HOTBED_RETURN_IF_ERROR(ClaimDirectory(
      path_, "IDENTITY", {"LOCK", "MARKS", "CATALOG", "PROMISES", "log", "spill"}, files_));
  HOTBED_ASSIGN_OR_RETURN(lock_, files_->Lock(PathOf("LOCK")));
  HOTBED_ASSIGN_OR_RETURN(IdentityFile identity, LoadIdentity());
  if (PlantedBug("missing_passes_for_new")) {
    identity.made = false;
    (void)files_->Delete(PathOf("MARKS"));
  }
  was_made_ = identity.made;
  run_before_ = identity.run;
  run_ = NewRun(identity.start);
  if (!files_->Exists(PathOf("IDENTITY"))) {  // before any other file: it says that they are ours
    IdentityFile first;
    first.run = run_;
    HOTBED_RETURN_IF_ERROR(first.Save(PathOf("IDENTITY"), files_));
  }
  absl::StatusOr<std::unique_ptr<Marks>> marks =
      Marks::Open(PathOf("MARKS"), files_, /*make=*/!was_made_);
  if (!marks.ok()) return IsMissing(marks.status());
  marks_ = *std::move(marks);
  HOTBED_RETURN_IF_ERROR(CheckStart(identity));
  HOTBED_RETURN_IF_ERROR(LoadCatalog());
  // While the start that may have written it is still known; its mark is synced below.
  const absl::Status promises =
      KeptFile(PathOf("PROMISES"), files_, ProofOf(Marks::kPromises)).Read().status();
  if (!promises.ok() && !absl::IsNotFound(promises)) return promises;

  const std::string boot_id = BootId(files_);
  was_clean_ = !was_made_ || identity.clean_shutdown;
  rebooted_ = was_made_ && (boot_id.empty() || identity.boot_id != boot_id);
  identity.clean_shutdown = false;
  if (!was_made_) identity.boot_id = boot_id;
  identity.NextRun(run_);
  marks_->Set(Marks::kStart, {identity.start, run_, 0});
  HOTBED_RETURN_IF_ERROR(marks_->Sync());
  absl::MutexLock lock(&identity_mu_);
  const uint64_t start = identity.start;
  HOTBED_RETURN_IF_ERROR(SaveIdentity(std::move(identity)));
  marks_->Set(Marks::kStart, {start, run_, 1});
  return absl::OkStatus();
}

absl::StatusOr<IdentityFile> DataDirectory::LoadIdentity() const {
  absl::StatusOr<IdentityFile> loaded = IdentityFile::Load(PathOf("IDENTITY"), files_);
  if (!absl::IsNotFound(loaded.status())) return loaded;
  for (const char* name : {"MARKS", "CATALOG", "PROMISES", "log", "spill"}) {
    if (!files_->Exists(PathOf(name))) continue;
    return absl::DataLossError(absl::StrCat(PathOf("IDENTITY"), " is missing, and ", PathOf(name),
                                            " is there: this directory belongs to a server"));
  }
  return IdentityFile();
}

// MARKS is written first, IDENTITY second; a kill may come in between.
absl::Status DataDirectory::CheckStart(const IdentityFile& identity) const {
  const Mark mark = marks_->Get(Marks::kStart);
  const bool unsaved = mark.a == identity.start + 1 && mark.c == 0;
  if (!was_made_ || unsaved) return absl::OkStatus();
  if (mark.a == identity.start && mark.b == identity.run) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      PathOf("IDENTITY"), " is of start ", identity.start, " (", absl::Hex(identity.run), "), ",
      PathOf("MARKS"), " of start ", mark.a, " (", absl::Hex(mark.b),
      "): one of them is an older one, or from a copy of the directory"));
}

absl::Status DataDirectory::LoadCatalog() {
  absl::MutexLock editing(&catalog_edit_mu_);
  catalog_file_.emplace(PathOf("CATALOG"), files_, ProofOf(Marks::kCatalog));
  absl::StatusOr<Catalog> catalog = Catalog::Load(&*catalog_file_);
  if (absl::IsNotFound(catalog.status()) && !was_made_) {
    catalog = Catalog();
    HOTBED_RETURN_IF_ERROR(catalog->Save(&*catalog_file_));
  }
  if (!catalog.ok()) return IsMissing(catalog.status());
  absl::MutexLock lock(&catalog_mu_);
  catalog_ = std::make_shared<const Catalog>(*std::move(catalog));
  return absl::OkStatus();
}

absl::StatusOr<std::string> DataDirectory::GiveUp(const std::string& path, FileSystem* files) {
  DataDirectory data(path, files);
  HOTBED_ASSIGN_OR_RETURN(data.lock_, files->Lock(data.PathOf("LOCK")));
  absl::StatusOr<IdentityFile> identity = IdentityFile::Load(data.PathOf("IDENTITY"), files);
  if (!identity.ok()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "--adopt-incomplete needs the identity of the server: ", identity.status().message(),
        "; start a new server with another --name and an empty --data-dir"));
  }
  const std::string aside = data.PathOf(absl::StrCat("given-up-", identity->start).c_str());
  HOTBED_RETURN_IF_ERROR(files->MakeDir(aside));
  for (const char* name : {"MARKS", "CATALOG", "PROMISES", "log", "spill"}) {
    if (!files->Exists(data.PathOf(name))) continue;
    std::error_code error;
    std::filesystem::rename(data.PathOf(name), absl::StrCat(aside, "/", name), error);
    if (error) {
      return absl::UnavailableError(
          absl::StrCat("moving ", data.PathOf(name), " to ", aside, ": ", error.message()));
    }
  }
  HOTBED_RETURN_IF_ERROR(files->SyncDir(path));
  // Last: from now on nothing has to be there. What ended before is refused again, and goes on with
  // the flag.
  identity->made = false;
  HOTBED_RETURN_IF_ERROR(identity->Save(data.PathOf("IDENTITY"), files));
  return aside;
}

// --- identity

absl::Status DataDirectory::SaveIdentity(IdentityFile changed) {
  HOTBED_RETURN_IF_ERROR(changed.Save(PathOf("IDENTITY"), files_));
  identity_ = std::move(changed);
  return absl::OkStatus();
}

ShardHost::Identity DataDirectory::identity() const {
  absl::MutexLock lock(&identity_mu_);
  return {.server = identity_.server,
          .cluster_id = identity_.cluster_id,
          .start = identity_.start,
          .run = identity_.run,
          .runs_before = identity_.runs_before,
          .generation = identity_.generation};
}

Member DataDirectory::self() const {
  absl::MutexLock lock(&identity_mu_);
  return {identity_.server, incarnation_};
}

absl::Status DataDirectory::SetIdentity(const ShardHost::Identity& identity) {
  absl::MutexLock lock(&identity_mu_);
  const bool known =
      identity_.server == identity.server && identity_.cluster_id == identity.cluster_id;
  const uint64_t generation = std::max(identity_.generation, identity.generation);
  if (known && identity_.runs_before.empty() && generation == identity_.generation) {
    return absl::OkStatus();
  }
  if (!known && (identity_.server != 0 || !identity_.cluster_id.empty())) {
    return absl::FailedPreconditionError(
        absl::StrCat(path_, " belongs to server ", identity_.server, " of cluster ",
                     identity_.cluster_id, ", not to server ", identity.server, " of cluster ",
                     identity.cluster_id, "; give this server another --data-dir"));
  }
  IdentityFile changed = identity_;
  changed.server = identity.server;
  changed.cluster_id = identity.cluster_id;
  changed.generation = generation;
  changed.runs_before.clear();
  return SaveIdentity(std::move(changed));
}

void DataDirectory::LearnServers(const std::map<ServerId, std::string>& servers) {
  absl::MutexLock lock(&identity_mu_);
  if (identity_.servers == servers) return;
  IdentityFile changed = identity_;
  changed.servers = servers;
  const absl::Status saved = SaveIdentity(std::move(changed));
  if (!saved.ok()) HOTBED_LOG_EVERY_S(Warning, 10) << "cannot keep the list of servers: " << saved;
}

std::map<ServerId, std::string> DataDirectory::servers() const {
  absl::MutexLock lock(&identity_mu_);
  return identity_.servers;
}

void DataDirectory::SetIncarnation(Incarnation incarnation) {
  absl::MutexLock lock(&identity_mu_);
  incarnation_ = incarnation;
}

absl::Status DataDirectory::MarkRecovered() {
  HOTBED_RETURN_IF_ERROR(marks_->Sync());
  absl::MutexLock lock(&identity_mu_);
  IdentityFile changed = identity_;
  changed.boot_id = BootId(files_);
  changed.made = true;
  if (changed.boot_id == identity_.boot_id && identity_.made) return absl::OkStatus();
  return SaveIdentity(std::move(changed));
}

absl::Status DataDirectory::MarkClean() {
  HOTBED_RETURN_IF_ERROR(marks_->Sync());
  absl::MutexLock lock(&identity_mu_);
  IdentityFile changed = identity_;
  changed.clean_shutdown = true;
  return SaveIdentity(std::move(changed));
}

// --- catalog

std::shared_ptr<const Catalog> DataDirectory::catalog() const {
  absl::MutexLock lock(&catalog_mu_);
  return catalog_;
}

absl::Status DataDirectory::ChangeCatalog(absl::FunctionRef<void(Catalog*)> edit) {
  absl::MutexLock editing(&catalog_edit_mu_);
  auto changed = std::make_shared<Catalog>(*catalog());
  edit(changed.get());
  HOTBED_RETURN_IF_ERROR(changed->Save(&*catalog_file_));
  absl::MutexLock lock(&catalog_mu_);
  catalog_ = std::move(changed);
  return absl::OkStatus();
}

void DataDirectory::ForgetInCatalog(absl::FunctionRef<void(Catalog*)> edit) {
  absl::MutexLock editing(&catalog_edit_mu_);
  auto changed = std::make_shared<Catalog>(*catalog());
  edit(changed.get());
  const absl::Status saved = changed->Save(&*catalog_file_);
  if (!saved.ok()) HOTBED_LOG(Warning) << "cannot write the catalog after a drop: " << saved;
  absl::MutexLock lock(&catalog_mu_);
  catalog_ = std::move(changed);
}

}  // namespace hotbed
