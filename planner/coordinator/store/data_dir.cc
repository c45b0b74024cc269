#include "planner/coordinator/store/data_dir.h"

#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/files/own_directory.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

constexpr char kLockName[] = "LOCK";
constexpr char kVersionName[] = "VERSION";

// Writes the version into a new directory, or compares the version found there.
absl::Status CheckVersion(const std::string& path, FileSystem* files) {
  const std::string version_path = absl::StrCat(path, "/", kVersionName);
  if (files->Exists(version_path)) {
    HOTBED_ASSIGN_OR_RETURN(const std::string found, files->ReadAll(version_path));
    if (absl::StripAsciiWhitespace(found) == kDataDirVersion) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(
        "data directory ", path, " has version \"",
        absl::CEscape(absl::StripAsciiWhitespace(found).substr(0, 80)), "\", this program reads \"",
        kDataDirVersion, "\"; use the program that wrote it"));
  }
  return files->WriteAtomically(version_path, absl::StrCat(kDataDirVersion, "\n"));
}

}  // namespace

absl::StatusOr<DataDir> OpenDataDir(const std::string& path, FileSystem* files) {
  DataDir dir;
  HOTBED_RETURN_IF_ERROR(ClaimDirectory(path, kVersionName, {kLockName}, files));
  HOTBED_ASSIGN_OR_RETURN(dir.lock, files->Lock(absl::StrCat(path, "/", kLockName)));
  HOTBED_RETURN_IF_ERROR(CheckVersion(path, files));
  KvOptions options;
  options.dir = absl::StrCat(path, "/meta");
  options.wal = true;
  options.block_cache_bytes = 8 << 20;
  options.memtable_bytes = 16 << 20;
  HOTBED_ASSIGN_OR_RETURN(std::unique_ptr<KvStore> kv, KvStore::Open(options));
  HOTBED_ASSIGN_OR_RETURN(dir.store, EmbeddedMetaStore::Open(std::move(kv)));
  return dir;
}

}  // namespace hotbed
