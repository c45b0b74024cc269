// ImportTable: checks the arrays, describes them in a folder beside them as a checkpoint whose rows
// lie there, and restores that. So servers read the arrays themselves.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/table_arrays.h"
#include "client/checkpoint/whole_table.h"
#include "client/client_impl.h"
#include "client/map/checkpoint_cluster.h"
#include "client/net/grpc_checkpoint_cluster.h"
#include "common/files/file_system.h"
#include "common/status_macros.h"
#include "hotbed/arrays.h"
#include "hotbed/checkpoint.h"
#include "places/directory_place.h"

namespace hotbed {
namespace {

class TableImport {
 public:
  TableImport(const TableOptions& table, const ImportOptions& options, CheckpointCluster* cluster,
              FileSystem* files)
      : spec_(table), options_(options), cluster_(*cluster), files_(*files), place_(files) {}

  absl::StatusOr<TableArraysDone> Import() {
    HOTBED_RETURN_IF_ERROR(CheckPaths());
    HOTBED_ASSIGN_OR_RETURN(const v1::ClusterMap map, cluster_.GetMap());
    folder_ = absl::StrCat(options_.weights, ".import-", map.cluster_id(), "-",
                           absl::StrReplaceAll(spec_.name, {{"%", "%25"}, {"/", "%2F"}}));
    const v1::TableSpec* existing = nullptr;
    for (const v1::TableSpec& table : map.tables()) {
      if (table.name() == spec_.name) existing = &table;
    }
    // An import that has ended has deleted its folder.
    const bool begun = existing != nullptr && existing->restored_from().checkpoint() == folder_ &&
                       files_.Exists(folder_);
    if (existing != nullptr && !begun) {
      return absl::AlreadyExistsError(
          absl::StrCat("table \"", spec_.name, "\" exists already; drop it, or name another"));
    }
    RestoreOptions restore;
    restore.checkpoint = folder_;
    restore.sessions = RestoredSessions::kAnew;
    restore.patience = options_.patience;
    restore.stop = options_.stop;
    restore.progress = [this](const CheckpointProgress& now) {
      if (options_.progress) options_.progress("importing", now.bytes_done, now.bytes);
    };
    if (existing != nullptr) return GoOn(*existing, restore);
    HOTBED_ASSIGN_OR_RETURN(const FoundArrays arrays, Check());
    HOTBED_RETURN_IF_ERROR(Describe(arrays));
    const auto restored = Restore(restore, &cluster_);
    if (restored.ok() || NobodyReads()) DeleteFolder();
    HOTBED_RETURN_IF_ERROR(restored.status());
    return Done(arrays.weights.rows, arrays.weights.row_bytes(), /*resumed=*/false);
  }

 private:
  absl::Status CheckPaths() const {
    for (const std::string& path : {options_.weights, options_.ids, options_.state}) {
      const bool absolute = path.empty() ? path != options_.weights : path[0] == '/';
      if (absolute) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "\"", path, "\" is not an absolute path; every server must reach it under this path"));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<FoundArrays> Check() {
    const ArrayNames names = {options_.weights, options_.tensor, options_.ids, options_.state};
    HOTBED_ASSIGN_OR_RETURN(FoundArrays arrays,
                            CheckArrays(names, &spec_, [this](uint64_t done, uint64_t rows) {
                              const uint64_t bytes = spec_.weight_bytes_per_row();
                              if (options_.progress)
                                options_.progress("checking", done * bytes, rows * bytes);
                              return !options_.stop || !options_.stop();
                            }));
    HOTBED_RETURN_IF_ERROR(ValidateTableSpec(spec_));
    if (spec_.seed == 0) spec_.seed = DefaultTableSeed(spec_.name);
    spec_.initializer = FirstValuesOf(spec_);
    MakeCanonical(&spec_);
    return arrays;
  }

  absl::Status Describe(const FoundArrays& arrays) {
    if (files_.Exists(folder_)) {  // of a call that did not come as far as to make the table
      HOTBED_RETURN_IF_ERROR(files_.Lock(LockFile()).status());
      HOTBED_RETURN_IF_ERROR(DeleteCheckpoint(folder_, &place_));
    }
    const size_t slash = folder_.rfind('/');
    HOTBED_RETURN_IF_ERROR(MakeCheckpointFolder(folder_.substr(0, slash), folder_.substr(slash + 1),
                                                absl::StrCat(absl::ToUnixMillis(absl::Now())),
                                                &place_)
                               .status());
    HOTBED_ASSIGN_OR_RETURN(lock_, files_.Lock(LockFile()));
    const absl::Status described = DescribeArrays(arrays, spec_, folder_, &files_, &place_);
    if (!described.ok()) DeleteFolder();
    return described;
  }

  // Certain: no table is filled from the folder.
  bool NobodyReads() {
    const auto map = cluster_.GetMap();
    return map.ok() && std::none_of(map->tables().begin(), map->tables().end(),
                                    [this](const v1::TableSpec& table) {
                                      return table.restored_from().checkpoint() == folder_;
                                    });
  }

  // The table was made by an earlier call, and servers have been filling it since.
  absl::StatusOr<TableArraysDone> GoOn(const v1::TableSpec& table, const RestoreOptions& restore) {
    HOTBED_RETURN_IF_ERROR(AwaitRestored(restore, table, &cluster_));
    DeleteFolder();
    ArrayNames names = {options_.weights, options_.tensor, options_.ids, options_.state};
    HOTBED_ASSIGN_OR_RETURN(const ArrayInfo weights, FindWeights(names));
    spec_.dim = table.dim();
    return Done(weights.rows, weights.row_bytes(), /*resumed=*/true);
  }

  TableArraysDone Done(uint64_t rows, uint64_t row_bytes, bool resumed) const {
    return {rows, spec_.dim, rows * row_bytes, resumed};
  }

  std::string LockFile() const { return absl::StrCat(folder_, "/", kTransferLockFile); }
  void DeleteFolder() {
    if (files_.Exists(folder_)) (void)DeleteCheckpoint(folder_, &place_);
  }

  TableSpec spec_;
  const ImportOptions& options_;
  CheckpointCluster& cluster_;
  FileSystem& files_;
  DirectoryPlace place_;
  std::string folder_;
  std::unique_ptr<WritableFile> lock_;  // of the folder
};

}  // namespace

absl::StatusOr<TableArraysDone> ImportTable(const std::string& target, const TableOptions& table,
                                            const ImportOptions& options) {
  HOTBED_ASSIGN_OR_RETURN(const auto cluster, GrpcCheckpointCluster::Connect(target));
  return TableImport(table, options, cluster.get(), FileSystem::Real()).Import();
}

absl::StatusOr<TableArraysDone> ImportTable(Client* client, const TableOptions& table,
                                            const ImportOptions& options) {
  const auto cluster = static_cast<ClientImpl*>(client)->WholeTables();
  return TableImport(table, options, cluster.get(), FileSystem::Real()).Import();
}

}  // namespace hotbed
