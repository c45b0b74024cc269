// How `hotbed up --add-server` asks the `hotbed up` that runs a directory's cluster for one more
// server: a file in that directory, answered by another one. One request at a time.
//
//   D/add-server.request   made by who asks, removed when it is answered
//   D/add-server.reply     {"name", "address", "admin_address", "log"} or {"error"}; removed by who
//                          asked
#ifndef HOTBED_CLI_CLUSTER_ADD_SERVER_REQUEST_H_
#define HOTBED_CLI_CLUSTER_ADD_SERVER_REQUEST_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/cluster/local_cluster.h"
#include "common/clock.h"

namespace hotbed {

struct AddedServer {
  std::string name;
  std::string coordinator;  // its address
  std::string address;
  std::string admin_address;
  std::string log_path;
};

// FailedPrecondition: no cluster runs in the directory. AlreadyExists: another request waits.
// DeadlineExceeded: no answer within `timeout`. Cancelled: `cancelled` (may be empty) said so.
absl::StatusOr<AddedServer> AskForServer(const std::string& data_dir, absl::Duration timeout,
                                         const std::function<bool()>& cancelled,
                                         const Clock* clock);

// For who runs the cluster: a request that nobody waits for any more.
void ForgetServerRequests(const std::string& data_dir);
// Answers a request, if there is one. Errors are the asker's to hear; only of the answer's own
// writing are they returned.
absl::Status AnswerServerRequest(const std::string& data_dir, LocalCluster* cluster);

}  // namespace hotbed

#endif  // HOTBED_CLI_CLUSTER_ADD_SERVER_REQUEST_H_
