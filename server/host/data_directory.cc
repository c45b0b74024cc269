#include "server/host/data_directory.h"

#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/own_directory.h"
#include "common/status_macros.h"

namespace hotbed {

absl::StatusOr<std::unique_ptr<DataDirectory>> DataDirectory::Open(const std::string& path,
                                                                   FileSystem* files) {
  auto directory = absl::WrapUnique(new DataDirectory(path, files));
  HOTBED_RETURN_IF_ERROR(directory->Load());
  return directory;
}

std::string DataDirectory::PathOf(const char* name) const { return absl::StrCat(path_, "/", name); }

absl::Status DataDirectory::Load() {
  HOTBED_RETURN_IF_ERROR(
      ClaimDirectory(path_, "IDENTITY", {"LOCK", "CATALOG", "PROMISES", "log", "spill"}, files_));
  HOTBED_ASSIGN_OR_RETURN(lock_, files_->Lock(PathOf("LOCK")));
  absl::StatusOr<IdentityFile> loaded = IdentityFile::Load(PathOf("IDENTITY"), files_);
  if (!loaded.ok() && !absl::IsNotFound(loaded.status())) return loaded.status();
  const bool is_new = !loaded.ok();
  IdentityFile identity = is_new ? IdentityFile() : *std::move(loaded);
  const std::string boot_id = BootId(files_);
  was_clean_ = is_new || identity.clean_shutdown;
  rebooted_ = !is_new && (boot_id.empty() || identity.boot_id != boot_id);
  identity.clean_shutdown = false;
  if (is_new) identity.boot_id = boot_id;
  {
    absl::MutexLock lock(&identity_mu_);
    HOTBED_RETURN_IF_ERROR(SaveIdentity(std::move(identity)));
  }
  HOTBED_ASSIGN_OR_RETURN(Catalog catalog, Catalog::Load(PathOf("CATALOG"), files_));
  absl::MutexLock lock(&catalog_mu_);
  catalog_ = std::make_shared<const Catalog>(std::move(catalog));
  return absl::OkStatus();
}

// --- identity

absl::Status DataDirectory::SaveIdentity(IdentityFile changed) {
  HOTBED_RETURN_IF_ERROR(changed.Save(PathOf("IDENTITY"), files_));
  identity_ = std::move(changed);
  return absl::OkStatus();
}

ShardHost::Identity DataDirectory::identity() const {
  absl::MutexLock lock(&identity_mu_);
  return {identity_.server, identity_.cluster_id};
}

Member DataDirectory::self() const {
  absl::MutexLock lock(&identity_mu_);
  return {identity_.server, incarnation_};
}

absl::Status DataDirectory::SetIdentity(const ShardHost::Identity& identity) {
  absl::MutexLock lock(&identity_mu_);
  if (identity_.server == identity.server && identity_.cluster_id == identity.cluster_id) {
    return absl::OkStatus();
  }
  if (identity_.server != 0 || !identity_.cluster_id.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(path_, " belongs to server ", identity_.server, " of cluster ",
                     identity_.cluster_id, ", not to server ", identity.server, " of cluster ",
                     identity.cluster_id, "; give this server another --data-dir"));
  }
  IdentityFile changed = identity_;
  changed.server = identity.server;
  changed.cluster_id = identity.cluster_id;
  return SaveIdentity(std::move(changed));
}

void DataDirectory::SetIncarnation(Incarnation incarnation) {
  absl::MutexLock lock(&identity_mu_);
  incarnation_ = incarnation;
}

absl::Status DataDirectory::SaveBootId() {
  absl::MutexLock lock(&identity_mu_);
  IdentityFile changed = identity_;
  changed.boot_id = BootId(files_);
  if (changed.boot_id == identity_.boot_id) return absl::OkStatus();
  return SaveIdentity(std::move(changed));
}

absl::Status DataDirectory::MarkClean() {
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
  absl::MutexLock lock(&catalog_mu_);
  auto changed = std::make_shared<Catalog>(*catalog_);
  edit(changed.get());
  HOTBED_RETURN_IF_ERROR(changed->Save(PathOf("CATALOG"), files_));
  catalog_ = std::move(changed);
  return absl::OkStatus();
}

void DataDirectory::ForgetInCatalog(absl::FunctionRef<void(Catalog*)> edit) {
  absl::MutexLock lock(&catalog_mu_);
  auto changed = std::make_shared<Catalog>(*catalog_);
  edit(changed.get());
  const absl::Status saved = changed->Save(PathOf("CATALOG"), files_);
  if (!saved.ok()) HOTBED_LOG(Warning) << "cannot write the catalog after a drop: " << saved;
  catalog_ = std::move(changed);
}

}  // namespace hotbed
