// ExportTable: servers write the rows of a bounded table straight into the arrays. Those of a
// hashed table, whose number is not known before, go into files of rows, which are joined. All of
// it happens in the folder `weights`.export, whose files get their names at the end.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/manifest.h"
#include "checkpoint/table_arrays.h"
#include "checkpoint/write_fence.h"
#include "client/checkpoint/whole_table.h"
#include "client/client_impl.h"
#include "client/map/checkpoint_cluster.h"
#include "client/net/grpc_checkpoint_cluster.h"
#include "common/files/file_system.h"
#include "common/status_macros.h"
#include "hotbed/arrays.h"
#include "places/directory_place.h"
#include "proto/convert.h"

namespace hotbed {
namespace {

// Only renames are left to do.
constexpr char kCompleteFile[] = "complete";

absl::Status Renamed(const std::string& from, const std::string& to) {
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) {
    return absl::OkStatus();
  }
  int error = errno;
  if (error == EINVAL ||
      error == ENOSYS) {  // as on NFS: a second name, which also replaces nothing
    if (link(from.c_str(), to.c_str()) == 0 && unlink(from.c_str()) == 0) return absl::OkStatus();
    error = errno;
  }
  const std::string message = absl::StrCat(from, " cannot become ", to, ": ", strerror(error));
  return error == EEXIST ? absl::AlreadyExistsError(message) : absl::UnavailableError(message);
}

class TableExport {
 public:
  TableExport(const ExportOptions& options, CheckpointCluster* cluster, FileSystem* files)
      : options_(options), cluster_(*cluster), files_(*files), place_(files) {}

  absl::StatusOr<TableArraysDone> Export(const std::string& table) {
    HOTBED_ASSIGN_OR_RETURN(const v1::ClusterMap map, cluster_.GetMap());
    HOTBED_RETURN_IF_ERROR(ReadSpec(map, table));
    HOTBED_RETURN_IF_ERROR(ChooseNames());
    const std::filesystem::path weights(options_.weights);
    folder_ = options_.weights + ".export";
    HOTBED_RETURN_IF_ERROR(EnterFolder(weights.parent_path(), weights.filename().string()));
    HOTBED_RETURN_IF_ERROR(FillFolder());
    HOTBED_RETURN_IF_ERROR(Publish());
    const uint64_t row_bytes =
        uint64_t{spec_.dim} *
            BytesPerWeight(static_cast<WeightType>(table_().arrays().weights().type())) +
        (options_.state.empty() ? 0 : spec_.state_bytes_per_row()) +
        (spec_.hashed ? sizeof(uint64_t) : 0);
    const uint64_t rows = table_().arrays().rows();
    return TableArraysDone{rows, spec_.dim, rows * row_bytes, resumed_};
  }

 private:
  v1::CheckpointTable& table_() { return *manifest_.mutable_tables(0); }
  std::string InFolder(const std::string& name) const { return absl::StrCat(folder_, "/", name); }

  absl::Status ReadSpec(const v1::ClusterMap& map, const std::string& name) {
    for (const v1::TableSpec& spec : map.tables()) {
      if (spec.name() != name) continue;
      HOTBED_ASSIGN_OR_RETURN(spec_, FromProto(spec));
      manifest_.set_format(kCheckpointFormat);
      manifest_.set_cluster_id(map.cluster_id());
      *manifest_.add_tables()->mutable_spec() = spec;
      table_().mutable_spec()->clear_restored_from();
      return absl::OkStatus();
    }
    return absl::NotFoundError(absl::StrCat("there is no table '", name, "'"));
  }

  // The names of the files, outside and in the folder.
  absl::Status ChooseNames() {
    ArrayNames to = {options_.weights, "", options_.ids, options_.state};
    HOTBED_RETURN_IF_ERROR(CheckNames(spec_, &to));
    const std::filesystem::path directory = std::filesystem::path(to.weights).parent_path();
    const auto name_of = [&](const std::string& path, const char* usual) -> std::string {
      if (path.empty()) return "";
      const auto known = targets_.find(path);
      if (known != targets_.end()) return known->second;
      return targets_[path] = absl::StrCat(usual, IsSafetensors(path) ? ".safetensors" : ".npy");
    };
    names_ = {name_of(to.weights, "weights"), "", name_of(to.ids, "ids"),
              name_of(to.state, "state")};
    for (const auto& [path, name] : targets_) {
      if (path[0] == '/' && std::filesystem::path(path).parent_path() == directory) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(path, " does not lie in ", directory.string(),
                       ", an absolute path; the arrays of an "
                       "export lie in one directory, which every server reaches"));
    }
    return absl::OkStatus();
  }

  absl::Status CheckNoneExists() const {
    for (const auto& [path, name] : targets_) {
      if (!files_.Exists(path)) continue;
      return absl::AlreadyExistsError(absl::StrCat(path, " exists already; name another file"));
    }
    return absl::OkStatus();
  }

  // Makes the folder, or takes that of an earlier call, if it is of the same export.
  absl::Status EnterFolder(const std::string& directory, const std::string& name) {
    if (files_.Exists(folder_)) {
      HOTBED_ASSIGN_OR_RETURN(const std::vector<std::string> there, files_.List(folder_));
      // A call that was killed at its begin may have come no further than to a part of kSavingFile.
      const bool ours = std::all_of(there.begin(), there.end(), [](const std::string& name) {
        return absl::StartsWith(name, kSavingFile);
      });
      if (!ours && !files_.Exists(InFolder(kSavingFile))) {
        return absl::AlreadyExistsError(
            absl::StrCat(folder_, " exists, and is not the folder of an export; delete it"));
      }
      HOTBED_ASSIGN_OR_RETURN(lock_, files_.Lock(InFolder(kTransferLockFile)));
      HOTBED_RETURN_IF_ERROR(CloseFences());
      resumed_ = TakeProgress();
      if (resumed_ && files_.Exists(InFolder(kCompleteFile))) {
        resumed_ = files_.Exists(InFolder(names_.weights)) || files_.Exists(options_.weights);
        if (resumed_) return absl::OkStatus();
      }
      HOTBED_RETURN_IF_ERROR(CheckNoneExists());
      if (resumed_) return absl::OkStatus();
      HOTBED_RETURN_IF_ERROR(DeleteFolder());
    }
    HOTBED_RETURN_IF_ERROR(CheckNoneExists());
    HOTBED_RETURN_IF_ERROR(MakeCheckpointFolder(directory, name + ".export",
                                                absl::StrCat(absl::ToUnixMillis(absl::Now())),
                                                &place_)
                               .status());
    HOTBED_ASSIGN_OR_RETURN(lock_, files_.Lock(InFolder(kTransferLockFile)));
    v1::TableArrays& arrays = *table_().mutable_arrays();
    if (spec_.hashed) {  // the places are known when the rows are
      arrays.mutable_weights()->set_path(names_.weights);
      if (!names_.state.empty()) arrays.mutable_state()->set_path(names_.state);
    } else {
      ArrayInfo no_ids;
      const absl::Status made =
          MakeExportFiles(spec_, folder_, names_, spec_.rows, &arrays, &no_ids);
      if (!made.ok()) {
        (void)DeleteFolder();
        return made;
      }
    }
    HOTBED_RETURN_IF_ERROR(files_.SyncDir(folder_));
    return KeepProgress();
  }

  absl::Status KeepProgress() {
    return files_.WriteAtomically(InFolder(kProgressFile), ManifestText(manifest_));
  }

  // Servers to which an earlier call gave shards may still be at it.
  absl::Status CloseFences() {
    HOTBED_ASSIGN_OR_RETURN(const std::vector<std::string> names, files_.List(folder_));
    for (const std::string& name : names) {
      if (!absl::StartsWith(name, kFencePrefix)) continue;
      HOTBED_RETURN_IF_ERROR(WriteFence::Close(InFolder(name), kFencePatience));
    }
    return absl::OkStatus();
  }

  // Whether the folder has a part of this export.
  bool TakeProgress() {
    const auto text = files_.ReadAll(InFolder(kProgressFile));
    if (!text.ok()) return false;
    const auto kept = ParseManifestPart(*text);
    if (!kept.ok() || kept->tables_size() != 1) return false;
    const v1::CheckpointTable& table = kept->tables(0);
    const bool same = kept->cluster_id() == manifest_.cluster_id() &&
                      table.spec().id() == spec_.id && table.spec().name() == spec_.name &&
                      table.arrays().weights().path() == names_.weights &&
                      table.arrays().state().path() == names_.state;
    if (same) manifest_ = *kept;
    return same;
  }

  absl::Status FillFolder() {
    if (files_.Exists(InFolder(kCompleteFile))) return absl::OkStatus();
    SaveOptions save;
    save.bytes_per_s = options_.bytes_per_s;
    save.patience = options_.patience;
    save.stop = options_.stop;
    save.progress = [this](const CheckpointProgress& now) {
      if (options_.progress) options_.progress("exporting", now.bytes_done, now.bytes);
    };
    HOTBED_RETURN_IF_ERROR(SaveMissingShards(save, /*weights_only=*/names_.state.empty(), folder_,
                                             &cluster_, &manifest_));
    if (spec_.hashed) HOTBED_RETURN_IF_ERROR(Join());
    HOTBED_RETURN_IF_ERROR(KeepProgress());
    HOTBED_RETURN_IF_ERROR(files_.SyncDir(folder_));
    return files_.WriteAtomically(InFolder(kCompleteFile), "");
  }

  absl::Status Join() {
    for (const auto& [path, name] : targets_) {  // of a join that was broken off
      if (files_.Exists(InFolder(name))) HOTBED_RETURN_IF_ERROR(files_.Delete(InFolder(name)));
    }
    const auto told = [this](uint64_t done, uint64_t rows) {
      const uint64_t bytes = spec_.weight_bytes_per_row();
      if (options_.progress) options_.progress("joining", done * bytes, rows * bytes);
      return !options_.stop || !options_.stop();
    };
    HOTBED_ASSIGN_OR_RETURN(const uint64_t rows,
                            JoinRows(folder_, table_(), names_, &place_, told));
    table_().mutable_arrays()->set_rows(rows);
    return absl::OkStatus();
  }

  // The weights come last. A call that was broken off here goes on with the files that are left.
  absl::Status Publish() {
    std::vector<std::pair<std::string, std::string>> moves;  // name, path
    for (const auto& [path, name] : targets_) {
      if (files_.Exists(InFolder(name))) {
        moves.emplace_back(name, path);
      } else if (!files_.Exists(path)) {
        return absl::DataLossError(absl::StrCat(path, " and ", InFolder(name), " are gone; delete ",
                                                folder_, " and export again"));
      }
    }
    std::stable_partition(moves.begin(), moves.end(),
                          [this](const auto& move) { return move.second != options_.weights; });
    for (const auto& [name, path] : moves) HOTBED_RETURN_IF_ERROR(Renamed(InFolder(name), path));
    HOTBED_RETURN_IF_ERROR(files_.SyncDir(ParentOf(options_.weights)));
    return DeleteFolder();
  }

  // The file that marks it as ours comes last, and the progress first: without it a later call
  // begins again.
  absl::Status DeleteFolder() {
    lock_ = nullptr;
    if (files_.Exists(InFolder(kProgressFile))) {
      HOTBED_RETURN_IF_ERROR(files_.Delete(InFolder(kProgressFile)));
    }
    HOTBED_ASSIGN_OR_RETURN(const std::vector<std::string> names, files_.List(folder_));
    for (const std::string& name : names) {
      if (name != kSavingFile) HOTBED_RETURN_IF_ERROR(files_.Delete(InFolder(name)));
    }
    return DeleteCheckpoint(folder_, &place_);
  }

  const ExportOptions& options_;
  CheckpointCluster& cluster_;
  FileSystem& files_;
  DirectoryPlace place_;
  TableSpec spec_;
  v1::CheckpointManifest manifest_;             // of the one table
  std::map<std::string, std::string> targets_;  // path -> name in the folder
  ArrayNames names_;                            // in the folder
  std::string folder_;
  std::unique_ptr<WritableFile> lock_;
  bool resumed_ = false;
};

}  // namespace

absl::StatusOr<TableArraysDone> ExportTable(const std::string& target, const std::string& table,
                                            const ExportOptions& options) {
  HOTBED_ASSIGN_OR_RETURN(const auto cluster, GrpcCheckpointCluster::Connect(target));
  return TableExport(options, cluster.get(), FileSystem::Real()).Export(table);
}

absl::StatusOr<TableArraysDone> ExportTable(Client* client, const std::string& table,
                                            const ExportOptions& options) {
  const auto cluster = static_cast<ClientImpl*>(client)->WholeTables();
  return TableExport(options, cluster.get(), FileSystem::Real()).Export(table);
}

}  // namespace hotbed
