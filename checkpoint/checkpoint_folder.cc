#include "checkpoint/checkpoint_folder.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "checkpoint/manifest.h"
#include "checkpoint/rows_file.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "common/tables/table_spec.h"
#include "proto/convert.h"
#include "row_math/position.h"
#include "row_math/types.h"

namespace hotbed {
namespace {

constexpr int kDeleteTries = 50;
constexpr int64_t kDeleteRetryNs = kSecondNs / 10;

std::string Under(const std::string& folder, const std::string& name) {
  return absl::StrCat(folder, "/", name);
}

bool Has(const std::vector<Place::Entry>& entries, absl::string_view name) {
  return std::any_of(entries.begin(), entries.end(),
                     [name](const Place::Entry& entry) { return entry.name == name; });
}

// The place could not be asked, or refused to tell: an older checkpoint must not be taken instead.
bool SaysNothing(const absl::Status& status) {
  return !status.ok() && !absl::IsNotFound(status) && !absl::IsDataLoss(status) &&
         !absl::IsFailedPrecondition(status);
}

// The checkpoint of that folder, whose files are `entries`.
absl::StatusOr<CheckpointFolder> Described(const std::string& path,
                                           const std::vector<Place::Entry>& entries, Place* place) {
  CheckpointFolder folder;
  folder.path = path;
  folder.name = path.substr(path.rfind('/') + 1);
  for (const Place::Entry& entry : entries) folder.bytes += entry.bytes;
  absl::StatusOr<v1::CheckpointManifest> manifest = ReadManifest(path, place);
  if (manifest.ok()) {
    folder.whole = true;
    folder.begun_unix_ms = manifest->begun_unix_ms();
    folder.cluster_id = manifest->cluster_id();
    folder.parent = manifest->parent();
    folder.generation = manifest->generation();
    folder.folded_from = manifest->folded_from();
    for (const v1::CheckpointTable& table : manifest->tables()) {
      folder.tables.push_back(table.spec().name());
    }
    return folder;
  }
  if (SaysNothing(manifest.status())) return manifest.status();
  folder.trouble = absl::IsNotFound(manifest.status()) ? "its save has not ended"
                                                       : std::string(manifest.status().message());
  const auto begun = place->ReadAll(Under(path, kSavingFile));
  if (begun.ok()) {
    const std::vector<std::string> mark = absl::StrSplit(*begun, absl::MaxSplits(' ', 2));
    (void)absl::SimpleAtoi(mark[0], &folder.begun_unix_ms);
    if (mark.size() == 3) folder.parent = mark[2];
  }
  return folder;
}

class TableVerifier {
 public:
  TableVerifier(const std::string& folder, Place* place, std::function<void(uint64_t)> read)
      : folder_(folder), place_(place), read_(std::move(read)) {}

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
                            RowsFileReader::Open(path_, shard.bytes(), shard.index_crc(), place_));
    const uint32_t columns = shard.column_limit() - shard.column_first();
    const uint32_t weights = BytesPerWeight(spec_.weight_type) * columns;
    const RowsFileHeader expected = {spec_.hashed, weights,
                                     weights + StateBytes(spec_.optimizer, columns),
                                     reader->header().compressed};
    if (!(reader->header() == expected)) return Wrong("its rows are not those of the table");
    const ShardRange range = {shard.range_first(), shard.range_limit(), shard.column_first(),
                              shard.column_limit()};
    uint64_t rows = 0;
    uint64_t deleted = 0;
    uint32_t pass = 0;
    for (const RowsFileEntry& entry : reader->index()) {
      read_(entry.bytes);
      if (!HoldsRows(entry.kind)) continue;
      HOTBED_RETURN_IF_ERROR(reader->ReadRows(entry, &ids_, &payloads_));
      if (entry.kind == RowsFileBlock::kDeleted) {
        deleted += entry.count;
        continue;
      }
      if (entry.pass != pass) any_ = false;
      pass = entry.pass;
      HOTBED_RETURN_IF_ERROR(VerifyOrder(entry, range));
      rows += entry.count;
    }
    any_ = false;
    HOTBED_RETURN_IF_ERROR(reader->ReadSessions().status());
    HOTBED_RETURN_IF_ERROR(reader->ReadTouchFilter().status());
    if (rows != shard.rows()) {
      return Wrong(absl::StrCat("it has ", rows, " rows, the manifest says ", shard.rows()));
    }
    if (deleted == shard.deleted()) return absl::OkStatus();
    return Wrong(
        absl::StrCat("it has ", deleted, " deleted rows, the manifest says ", shard.deleted()));
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
  Place* const place_;
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
                                                              Place* place) {
  const absl::StatusOr<std::vector<Place::Entry>> listed = place->List(directory);
  if (absl::IsNotFound(listed.status())) {
    return absl::NotFoundError(
        absl::StrCat("there is no directory ", directory, ": ", listed.status().message()));
  }
  HOTBED_RETURN_IF_ERROR(listed.status());
  std::vector<CheckpointFolder> found;
  for (const Place::Entry& entry : *listed) {
    const std::string path = Under(directory, entry.name);
    const absl::StatusOr<std::vector<Place::Entry>> files = place->List(path);
    if (SaysNothing(files.status())) return files.status();
    if (!files.ok()) continue;  // no folder
    if (!Has(*files, kSavingFile) && !Has(*files, kManifestFile)) continue;
    if (Has(*files, kTransferLockFile)) continue;
    HOTBED_ASSIGN_OR_RETURN(found.emplace_back(), Described(path, *files, place));
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const CheckpointFolder& a, const CheckpointFolder& b) {
                     return a.begun_unix_ms < b.begun_unix_ms;
                   });
  return found;
}

absl::StatusOr<std::string> FindCheckpoint(const std::string& path, Place* place) {
  const absl::StatusOr<std::vector<Place::Entry>> files = place->List(path);
  if (SaysNothing(files.status())) return files.status();
  if (files.ok() && (Has(*files, kManifestFile) || Has(*files, kSavingFile))) return path;
  HOTBED_ASSIGN_OR_RETURN(const std::vector<CheckpointFolder> found, ListCheckpoints(path, place));
  for (auto folder = found.rbegin(); folder != found.rend(); ++folder) {
    if (folder->whole) return folder->path;
  }
  return absl::NotFoundError(absl::StrCat(path, " holds no whole checkpoint"));
}

std::string SavingMark(int64_t unix_ms, uint64_t random, absl::string_view needed) {
  return absl::StrCat(unix_ms, " ", random, needed.empty() ? "" : " ", needed);
}

absl::StatusOr<std::string> MakeCheckpointFolder(const std::string& directory,
                                                 const std::string& name, const std::string& mark,
                                                 Place* place) {
  const std::string folder = Under(directory, name);
  const absl::Status made = place->MakeFolder(folder);
  if (absl::IsAlreadyExists(made)) {
    return absl::AlreadyExistsError(
        absl::StrCat(made.message(), "; choose another name for the checkpoint"));
  }
  HOTBED_RETURN_IF_ERROR(made);
  HOTBED_RETURN_IF_ERROR(place->Put(Under(folder, kSavingFile), mark));
  return folder;
}

absl::Status DeleteCheckpoint(const std::string& folder, Place* place) {
  HOTBED_ASSIGN_OR_RETURN(std::vector<Place::Entry> files, place->List(folder));
  const absl::Status marked = place->Put(Under(folder, kSavingFile), kDeletingMark);
  // A full disk takes no new mark; the one that is there does.
  if (!Has(files, kSavingFile)) HOTBED_RETURN_IF_ERROR(marked);
  if (Has(files, kManifestFile)) HOTBED_RETURN_IF_ERROR(place->Delete(folder, {kManifestFile}));
  for (int tries = 0;; ++tries) {
    std::vector<std::string> names;
    for (const Place::Entry& file : files) {
      if (file.name != kSavingFile && file.name != kManifestFile) names.push_back(file.name);
    }
    if (tries > 0 && names.empty()) break;
    if (tries == kDeleteTries) {
      return absl::AbortedError(absl::StrCat(folder, ": a server still writes ", names[0],
                                             "; delete it again in a minute"));
    }
    if (tries > 0) Clock::Real()->SleepNs(kDeleteRetryNs);
    // A server deletes a file that it cannot complete.
    const absl::Status deleted = place->Delete(folder, names);
    if (!deleted.ok() && !absl::IsNotFound(deleted)) return deleted;
    // Not every store lists what is not whole; 'prune' tells of that.
    (void)place->EndUnfinished(folder, std::numeric_limits<int64_t>::max());
    HOTBED_ASSIGN_OR_RETURN(files, place->List(folder));
  }
  HOTBED_RETURN_IF_ERROR(place->Delete(folder, {kSavingFile}));
  const absl::Status gone = place->DeleteFolder(folder);
  // A file that came in the last moment: it is still an orphan.
  if (!gone.ok()) (void)place->Put(Under(folder, kSavingFile), kDeletingMark);
  return gone;
}

absl::StatusOr<std::vector<std::string>> FoldersNeeded(const std::string& folder, Place* place) {
  std::vector<std::string> folders = {folder};
  HOTBED_ASSIGN_OR_RETURN(v1::CheckpointManifest manifest, ReadManifest(folder, place));
  while (!manifest.parent().empty()) {
    folders.push_back(ParentOf(folders.back(), manifest));
    HOTBED_ASSIGN_OR_RETURN(v1::CheckpointManifest parent, ReadManifest(folders.back(), place));
    if (parent.generation() + 1 != manifest.generation() ||
        parent.cluster_id() != manifest.cluster_id()) {
      return absl::DataLossError(
          absl::StrCat(folders.back(), " is not the checkpoint that ", manifest.name(), " needs"));
    }
    manifest = std::move(parent);
  }
  return folders;
}

absl::StatusOr<Verified> VerifyCheckpoint(const std::string& folder, Place* place,
                                          const std::function<void(uint64_t, uint64_t)>& progress) {
  HOTBED_ASSIGN_OR_RETURN(const std::vector<std::string> folders, FoldersNeeded(folder, place));
  std::vector<v1::CheckpointManifest> manifests;
  uint64_t total = 0;
  for (const std::string& one : folders) {
    HOTBED_ASSIGN_OR_RETURN(manifests.emplace_back(), ReadManifest(one, place));
    for (const v1::CheckpointTable& table : manifests.back().tables()) total += BytesOf(table);
  }
  uint64_t done = 0;
  Verified verified;
  for (size_t i = 0; i < folders.size(); ++i) {
    TableVerifier verifier(folders[i], place, [&](uint64_t bytes) {
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
