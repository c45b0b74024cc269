// The store of the spill tier: opening it, using it, and starting over when a file is damaged.
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/file_system.h"
#include "common/status_macros.h"
#include "server/tiers/spill/spill_tier.h"

namespace hotbed {
namespace {

std::string RenewingMark(const std::string& dir) { return dir + "/RENEWING"; }

}  // namespace

absl::StatusOr<std::unique_ptr<SpillTier>> SpillTier::Open(const std::string& dir,
                                                           const KvOptions& options) {
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  if (error) return absl::UnavailableError(absl::StrCat("creating ", dir, ": ", error.message()));
  auto tier = std::unique_ptr<SpillTier>(new SpillTier(dir, options));
  absl::MutexLock lock(&tier->mu_);
  if (FileSystem::Real()->Exists(RenewingMark(dir))) {  // a kill interrupted Renew
    HOTBED_RETURN_IF_ERROR(tier->OpenEmpty());
  } else {
    HOTBED_ASSIGN_OR_RETURN(tier->store_, KvStore::Open(tier->RowsOptions()));
  }
  return tier;
}

KvOptions SpillTier::RowsOptions() const {
  KvOptions rows = options_;
  rows.dir = dir_ + "/rows";
  return rows;
}

absl::StatusOr<std::shared_ptr<KvStore>> SpillTier::Use() const {
  absl::MutexLock lock(&mu_);
  if (store_ != nullptr) return store_;
  return absl::UnavailableError(absl::StrCat(
      "the spill tier in ", dir_, " is being emptied, which its disk has refused so far"));
}

absl::Status SpillTier::Flush() {
  HOTBED_ASSIGN_OR_RETURN(const std::shared_ptr<KvStore> store, Use());
  return store->Flush();
}

absl::Status SpillTier::TryResume() {
  HOTBED_ASSIGN_OR_RETURN(const std::shared_ptr<KvStore> store, Use());
  return store->TryResume();
}

KvStore::Usage SpillTier::GetUsage() const {
  const absl::StatusOr<std::shared_ptr<KvStore>> store = Use();
  if (store.ok()) return (*store)->GetUsage();
  KvStore::Usage usage;
  usage.background_error = std::string(store.status().message());
  usage.damaged = true;
  return usage;
}

absl::Status SpillTier::Renew() {
  absl::MutexLock lock(&mu_);
  if (store_.use_count() > 1) {
    return absl::UnavailableError(absl::StrCat("the spill tier in ", dir_,
                                               " cannot be emptied yet: its rows are being read"));
  }
  store_ = nullptr;
  return OpenEmpty();
}

// A kill during the deletion leaves a store that cannot be opened; the mark file tells the next
// Open.
absl::Status SpillTier::OpenEmpty() {
  FileSystem* const files = FileSystem::Real();
  HOTBED_RETURN_IF_ERROR(files->WriteAtomically(RenewingMark(dir_), ""));
  std::error_code error;
  std::filesystem::remove_all(RowsOptions().dir, error);
  if (error) {
    return absl::UnavailableError(
        absl::StrCat("removing ", RowsOptions().dir, ": ", error.message()));
  }
  HOTBED_ASSIGN_OR_RETURN(store_, KvStore::Open(RowsOptions()));
  // If the mark stayed, the next start would delete everything written from now on.
  absl::Status unmarked = files->Delete(RenewingMark(dir_));
  if (unmarked.ok()) unmarked = files->SyncDir(dir_);
  if (!unmarked.ok()) store_ = nullptr;
  return unmarked;
}

}  // namespace hotbed
