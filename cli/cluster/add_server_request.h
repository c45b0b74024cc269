// The request of `hotbed up --add-server` to the `hotbed up` that runs the cluster of a directory:
// a file in that directory, answered by another file. One request at a time.
//
//   D/add-server.request   written by the asking process; removed with the answer
//   D/add-server.reply     {"name", "address", "admin_address", "log"} or {"error"};
//                          removed by the asking process
#ifndef HOTBED_CLI_CLUSTER_ADD_SERVER_REQUEST_H_
#define HOTBED_CLI_CLUSTER_ADD_SERVER_REQUEST_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/cluster/local_cluster.h"
#include "common/clock.h"
#include "nlohmann/json_fwd.hpp"

namespace hotbed {

struct AddedServer {
  std::string name;
  std::string coordinator;  // its address
  std::string address;
  std::string admin_address;
  std::string log_path;
};
nlohmann::ordered_json ToJson(const AddedServer& server);

// FailedPrecondition: no cluster runs in the directory. AlreadyExists: another request waits.
// DeadlineExceeded: no answer within `timeout`. Cancelled: `cancelled` (may be empty) returned
// true.
absl::StatusOr<AddedServer> AskForServer(const std::string& data_dir, absl::Duration timeout,
                                         const std::function<bool()>& cancelled,
                                         const Clock* clock);

// For the process that runs the cluster: removes a request that nobody waits for any more.
void ForgetServerRequests(const std::string& data_dir);
// Answers a request if there is one. Errors go to the asking process; only an error in writing the
// answer is returned.
absl::Status AnswerServerRequest(const std::string& data_dir, LocalCluster* cluster);

}  // namespace hotbed

#endif  // HOTBED_CLI_CLUSTER_ADD_SERVER_REQUEST_H_
