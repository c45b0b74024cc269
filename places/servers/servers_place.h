// The own disks of a cluster's servers as one place, server:NAME (docs/checkpoints.md). A folder is
// there if a server has it, and shows the files of all servers; only servers create files of rows,
// and small files that are put are copied to each server that has the folder.
//
// Servers that the coordinator counts as lost are not asked. One that does not answer is passed
// over by reads, MakeFolder and Put, as long as another answers, and is an error of Delete and
// DeleteFolder, which names it: its files stay. Thread-safe; calls block.
#ifndef HOTBED_PLACES_SERVERS_SERVERS_PLACE_H_
#define HOTBED_PLACES_SERVERS_SERVERS_PLACE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"
#include "places/place.h"
#include "proto/checkpoint.grpc.pb.h"
#include "proto/control.pb.h"
#include "security/identity.h"

namespace hotbed {

class ServersPlace : public Place {
 public:
  using GetMap = std::function<absl::StatusOr<v1::ClusterMap>()>;
  ServersPlace(GetMap map, const ClientIdentity& identity)
      : map_(std::move(map)), identity_(identity) {}
  // `coordinators` is HOST:PORT,...
  static std::unique_ptr<ServersPlace> Of(const std::string& coordinators,
                                          const ClientIdentity& identity);

  absl::StatusOr<std::vector<Entry>> List(const std::string& folder) override;
  absl::StatusOr<std::string> ReadAll(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<PlaceReader>> Open(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<PlaceWriter>> Create(const std::string& path) override;
  absl::Status Put(const std::string& path, absl::string_view content) override;
  absl::Status Delete(const std::string& folder, const std::vector<std::string>& files) override;
  absl::Status MakeFolder(const std::string& folder) override;
  absl::Status DeleteFolder(const std::string& folder) override;
  absl::StatusOr<uint64_t> EndUnfinished(const std::string& /*folder*/,
                                         int64_t /*before_unix_ms*/) override {
    return 0;  // List shows them
  }
  absl::StatusOr<bool> Has(const std::string& path) override;
  uint64_t reader_bytes() const override;

 private:
  struct Server {
    std::string name;
    std::shared_ptr<v1::Checkpoints::Stub> stub;
    std::string who;  // for errors
  };
  class Reader;
  // The servers of whom each was asked.
  struct Answers {
    uint64_t found = 0;
    absl::Status away;   // the first that did not answer
    absl::Status wrong;  // the first other error, but for NotFound
    // OK: one has it. Else, of `path`: why not.
    absl::Status Found(const std::string& path) const;
  };
  using Ask = absl::FunctionRef<absl::Status(const Server& server)>;

  absl::StatusOr<std::vector<Server>> Servers() ABSL_LOCKS_EXCLUDED(mu_);
  // `first`: until one has it.
  absl::StatusOr<Answers> AskServers(bool first, Ask ask);
  static absl::Status Change(const Server& server, const v1::ChangeFilesRequest& request);
  static absl::StatusOr<v1::ReadFilesReply> Read(const Server& server,
                                                 const v1::ReadFilesRequest& request);

  const GetMap map_;
  const ClientIdentity identity_;
  absl::Mutex mu_;
  std::vector<Server> servers_ ABSL_GUARDED_BY(mu_);  // as of servers_ns_
  int64_t servers_ns_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<std::string, std::shared_ptr<v1::Checkpoints::Stub>> stubs_
      ABSL_GUARDED_BY(mu_);  // by address
};

}  // namespace hotbed

#endif  // HOTBED_PLACES_SERVERS_SERVERS_PLACE_H_
