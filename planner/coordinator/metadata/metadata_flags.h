// Where the metadata are: in a folder of the coordinator's own, or in etcd.
#ifndef HOTBED_PLANNER_COORDINATOR_METADATA_METADATA_FLAGS_H_
#define HOTBED_PLANNER_COORDINATOR_METADATA_METADATA_FLAGS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "config/config.h"
#include "planner/coordinator/etcd/etcd_client.h"
#include "planner/coordinator/etcd/etcd_meta_store.h"
#include "planner/coordinator/store/data_dir.h"
#include "security/certificate.h"

namespace hotbed {

struct MetadataFlags {
  std::string metadata = "embedded";  // or etcd://...
  std::string data_dir = "hotbed-coordinator-data";
  std::string etcd_user;
  std::string etcd_password_file;
  TlsFiles etcd_files;
};
void AddMetadataFlags(ConfigSchema* schema, MetadataFlags* flags);

struct Metadata {
  DataDir dir;  // embedded
  std::unique_ptr<EtcdClient> etcd;
  std::unique_ptr<EtcdClient> for_election;  // passes over a member that hangs within a lease
  std::unique_ptr<EtcdMetaStore> in_etcd;
  std::string place;  // for people

  MetaStore* store() const {
    return etcd == nullptr ? static_cast<MetaStore*>(dir.store.get()) : in_etcd.get();
  }
};

// Opens the folder, or checks what the flags say of etcd without calling it. An error names the
// flag. Plaintext to etcd beyond loopback needs `plain_allowed`.
absl::StatusOr<Metadata> OpenMetadata(const MetadataFlags& flags, bool plain_allowed,
                                      FileSystem* files);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_METADATA_METADATA_FLAGS_H_
