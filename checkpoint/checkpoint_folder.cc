#include "checkpoint/checkpoint_folder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/manifest.h"
#include "checkpoint/rows_file.h"
#include "common/status_macros.h"
#include "common/tables/table_spec.h"
#include "proto/convert.h"
#include "row_math/position.h"
#include "row_math/types.h"

namespace hotbed {
namespace {

std::string Under(const std::string& folder, const std::string& name) {
  return absl::StrCat(folder, "/", name);
}

uint64_t FileBytes(const std::string& folder, FileSystem* files) {
  uint64_t bytes = 0;
  const auto names = files->List(folder);
  if (!names.ok()) return 0;
  for (const std::string& name : *names) bytes += files->FileSize(Under(folder, name)).value_or(0);
  return bytes;
}

class TableVerifier {
 public:
  TableVerifier(const std::string& folder, FileSystem* files, std::function<void(uint64_t)> read)
      : folder_(folder), files_(files), read_(std::move(read)) {}

  absl::Status Verify(const v1::CheckpointTable& table, Verified* verified) {
    HOTBED_ASSIGN_OR_RETURN(spec_, FromProto(table.spec()));
    for (const v1::CheckpointShard& shard : table.shards()) {
      HOTBED_RETURN_IF_ERROR(VerifyShard(shard));
      ++verified->shards;
      verified->rows += shard.rows();
      verified->bytes += shard.bytes();
    }
    ++verified->tables;
    return absl::OkStatus();
  }

 private:
  absl::Status VerifyShard(const v1::CheckpointShard& shard) {
    path_ = Under(folder_, shard.file());
    HOTBED_ASSIGN_OR_RETURN(const auto reader,
                            RowsFileReader::Open(path_, shard.bytes(), shard.index_crc(), files_));
    const uint32_t columns = shard.column_limit() - shard.column_first();
    const uint32_t weights = BytesPerWeight(spec_.weight_type) * columns;
    const RowsFileHeader expected = {spec_.hashed, weights,
                                     weights + StateBytes(spec_.optimizer, columns)};
    if (!(reader->header() == expected)) return Wrong("its rows are not those of the table");
    const ShardRange range = {shard.range_first(), shard.range_limit(), shard.column_first(),
                              shard.column_limit()};
    uint64_t rows = 0;
    uint32_t pass = 0;
    for (const RowsFileEntry& entry : reader->index()) {
      read_(entry.bytes);
      if (entry.kind != RowsFileBlock::kRows) continue;
      HOTBED_RETURN_IF_ERROR(reader->ReadRows(entry, &ids_, &payloads_));
      if (entry.pass != pass) any_ = false;
      pass = entry.pass;
      HOTBED_RETURN_IF_ERROR(VerifyOrder(entry, range));
      rows += entry.count;
    }
    any_ = false;
    HOTBED_RETURN_IF_ERROR(reader->ReadSessions().status());
    if (rows == shard.rows()) return absl::OkStatus();
    return Wrong(absl::StrCat("it has ", rows, " rows, the manifest says ", shard.rows()));
  }

  absl::Status VerifyOrder(const RowsFileEntry& entry, const ShardRange& range) {
    for (const uint64_t id : ids_) {
      const uint64_t position = spec_.hashed ? Mix64(id) : id;
      if (any_ && position <= last_) return Wrong(absl::StrCat("id ", id, " is out of order"));
      if (position < range.first_position(spec_.hashed) ||
          position > range.last_position(spec_.hashed) || position < entry.first_position ||
          position > entry.last_position) {
        return Wrong(absl::StrCat("id ", id, " is outside of its shard or block"));
      }
      last_ = position;
      any_ = true;
    }
    return absl::OkStatus();
  }

  absl::Status Wrong(absl::string_view what) const {
    return absl::DataLossError(absl::StrCat(path_, ": ", what));
  }

  const std::string folder_;
  FileSystem* const files_;
  const std::function<void(uint64_t)> read_;
  TableSpec spec_;
  std::string path_;
  std::vector<uint64_t> ids_;
  std::vector<uint8_t> payloads_;
  bool any_ = false;  // a row of this pass was seen
  uint64_t last_ = 0;
};

}  // namespace

absl::StatusOr<std::vector<CheckpointFolder>> ListCheckpoints(const std::string& directory,
                                                              FileSystem* files) {
  if (!files->Exists(directory)) {
    return absl::NotFoundError(absl::StrCat("there is no directory ", directory));
  }
  HOTBED_ASSIGN_OR_RETURN(const std::vector<std::string> names, files->List(directory));
  std::vector<CheckpointFolder> found;
  for (const std::string& name : names) {
    CheckpointFolder folder;
    folder.name = name;
    folder.path = Under(directory, name);
    const bool marked = files->Exists(Under(folder.path, kSavingFile));
    if (!marked && !files->Exists(Under(folder.path, kManifestFile))) continue;
    if (files->Exists(Under(folder.path, kTransferLockFile))) continue;
    folder.bytes = FileBytes(folder.path, files);
    absl::StatusOr<v1::CheckpointManifest> manifest = ReadManifest(folder.path, files);
    if (manifest.ok()) {
      folder.whole = true;
      folder.begun_unix_ms = manifest->begun_unix_ms();
      folder.manifest = *std::move(manifest);
    } else {
      folder.trouble = absl::IsNotFound(manifest.status())
                           ? "its save has not ended"
                           : std::string(manifest.status().message());
      const auto begun = files->ReadAll(Under(folder.path, kSavingFile));
      if (begun.ok()) (void)absl::SimpleAtoi(*begun, &folder.begun_unix_ms);
    }
    found.push_back(std::move(folder));
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const CheckpointFolder& a, const CheckpointFolder& b) {
                     return a.begun_unix_ms < b.begun_unix_ms;
                   });
  return found;
}

absl::StatusOr<std::string> FindCheckpoint(const std::string& path, FileSystem* files) {
  if (files->Exists(Under(path, kManifestFile)) || files->Exists(Under(path, kSavingFile))) {
    return path;
  }
  HOTBED_ASSIGN_OR_RETURN(const std::vector<CheckpointFolder> found, ListCheckpoints(path, files));
  for (auto folder = found.rbegin(); folder != found.rend(); ++folder) {
    if (folder->whole) return folder->path;
  }
  return absl::NotFoundError(absl::StrCat(path, " holds no whole checkpoint"));
}

absl::StatusOr<std::string> MakeCheckpointFolder(const std::string& directory,
                                                 const std::string& name, int64_t now_unix_ms,
                                                 FileSystem* files) {
  const std::string folder = Under(directory, name);
  if (files->Exists(folder)) {
    return absl::AlreadyExistsError(
        absl::StrCat(folder, " exists already; choose another name for the checkpoint"));
  }
  HOTBED_RETURN_IF_ERROR(files->MakeDir(folder));
  HOTBED_RETURN_IF_ERROR(
      files->WriteAtomically(Under(folder, kSavingFile), absl::StrCat(now_unix_ms)));
  HOTBED_RETURN_IF_ERROR(files->SyncDir(directory));
  return folder;
}

absl::Status DeleteCheckpoint(const std::string& folder, FileSystem* files) {
  HOTBED_ASSIGN_OR_RETURN(std::vector<std::string> names, files->List(folder));
  const auto rank = [](const std::string& name) {
    return name == kManifestFile ? 0 : name == kSavingFile ? 2 : 1;
  };
  if (files->Exists(Under(folder, kManifestFile)) && !files->Exists(Under(folder, kSavingFile))) {
    HOTBED_RETURN_IF_ERROR(files->WriteAtomically(Under(folder, kSavingFile), "1"));
    names.push_back(kSavingFile);
  }
  std::stable_sort(names.begin(), names.end(),
                   [&](const std::string& a, const std::string& b) { return rank(a) < rank(b); });
  for (const std::string& name : names) {
    if (name == kSavingFile) continue;
    HOTBED_RETURN_IF_ERROR(files->Delete(Under(folder, name)));
    if (name == kManifestFile) HOTBED_RETURN_IF_ERROR(files->SyncDir(folder));
  }
  HOTBED_ASSIGN_OR_RETURN(names, files->List(folder));
  if (names.size() > 1) {
    return absl::AbortedError(absl::StrCat(folder, ": a server still writes ", names[0]));
  }
  for (const std::string& name : names) HOTBED_RETURN_IF_ERROR(files->Delete(Under(folder, name)));
  return files->Delete(folder);
}

absl::StatusOr<std::vector<std::string>> FoldersNeeded(const std::string& folder,
                                                       FileSystem* files) {
  std::vector<std::string> folders = {folder};
  HOTBED_ASSIGN_OR_RETURN(v1::CheckpointManifest manifest, ReadManifest(folder, files));
  while (!manifest.parent().empty()) {
    folders.push_back(ParentOf(folders.back(), manifest));
    HOTBED_ASSIGN_OR_RETURN(v1::CheckpointManifest parent, ReadManifest(folders.back(), files));
    if (parent.generation() + 1 != manifest.generation() ||
        parent.cluster_id() != manifest.cluster_id()) {
      return absl::DataLossError(
          absl::StrCat(folders.back(), " is not the checkpoint that ", manifest.name(), " needs"));
    }
    manifest = std::move(parent);
  }
  return folders;
}

absl::StatusOr<Verified> VerifyCheckpoint(const std::string& folder, FileSystem* files,
                                          const std::function<void(uint64_t, uint64_t)>& progress) {
  HOTBED_ASSIGN_OR_RETURN(const std::vector<std::string> folders, FoldersNeeded(folder, files));
  std::vector<v1::CheckpointManifest> manifests;
  uint64_t total = 0;
  for (const std::string& one : folders) {
    HOTBED_ASSIGN_OR_RETURN(manifests.emplace_back(), ReadManifest(one, files));
    for (const v1::CheckpointTable& table : manifests.back().tables()) total += BytesOf(table);
  }
  uint64_t done = 0;
  Verified verified;
  for (size_t i = 0; i < folders.size(); ++i) {
    TableVerifier verifier(folders[i], files, [&](uint64_t bytes) {
      done += bytes;
      progress(done, total);
    });
    for (const v1::CheckpointTable& table : manifests[i].tables()) {
      HOTBED_RETURN_IF_ERROR(verifier.Verify(table, &verified));
    }
  }
  verified.checkpoints = folders.size();
  verified.tables = manifests.front().tables_size();
  return verified;
}

}  // namespace hotbed
