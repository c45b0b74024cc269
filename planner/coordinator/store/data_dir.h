// The coordinator's data directory: a lock, a version, and the metadata store inside.
//
//   DIR/LOCK     held while a process uses the directory
//   DIR/VERSION  kDataDirVersion; a directory of any other version is refused
//   DIR/meta/    the metadata store
#ifndef HOTBED_PLANNER_COORDINATOR_STORE_DATA_DIR_H_
#define HOTBED_PLANNER_COORDINATOR_STORE_DATA_DIR_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/files/file_system.h"
#include "planner/coordinator/store/embedded_meta_store.h"

namespace hotbed {

inline constexpr char kDataDirVersion[] = "hotbed-coordinator 1";

struct DataDir {
  std::unique_ptr<WritableFile> lock;  // outlives the store
  std::unique_ptr<EmbeddedMetaStore> store;
};

// Opens or creates the directory. AlreadyExists names the process that uses it; FailedPrecondition
// names the version found, or says that the directory holds something else; other errors, such as
// PermissionDenied, name the path.
absl::StatusOr<DataDir> OpenDataDir(const std::string& path, FileSystem* files);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_STORE_DATA_DIR_H_
