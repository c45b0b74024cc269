// Servers that ask to register with data of a cluster of which these metadata know nothing: they
// were lost, or rebuilt while the server was away. What such servers say is kept here until a
// person has them adopted (MakeOperation of RebuildMetadataRequest).
//
// Pure; thread-compatible.
#ifndef HOTBED_PLANNER_COORDINATOR_STATE_STRANGERS_H_
#define HOTBED_PLANNER_COORDINATOR_STATE_STRANGERS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "common/ids.h"
#include "planner/coordinator/state/cluster_state.h"
#include "proto/control.pb.h"

namespace hotbed {

class Strangers {
 public:
  struct Stranger {
    v1::RegisterServerRequest said;
    int64_t heard_ns = 0;
    std::string rival;     // the address of another process that asks for the same server, or empty
    int64_t rival_ns = 0;  // when it asked last
  };
  static constexpr int64_t kHeardNs = 10'000'000'000;  // they ask again every two seconds
  static constexpr size_t kStrangersMax = 4096;

  // Whether a server of `cluster` may be adopted: the metadata are empty, or were rebuilt before.
  static bool MayAdopt(const ClusterState& state, const std::string& cluster);
  // No server and no table is known.
  static bool IsEmpty(const ClusterState& state);

  // They were restored from a backup, or a rebuild is not done or was cut short: nothing may begin
  // before the servers were adopted. A rebuild writes all tables before the first server.
  static bool AwaitsRebuild(const ClusterState& state);

  void Note(int64_t now_ns, const v1::RegisterServerRequest& request);
  // Those heard of within kHeardNs and not registered by now.
  std::vector<const Stranger*> Waiting(int64_t now_ns, const ClusterState& state) const;
  // Those, and servers that were adopted since: tables of theirs may have been left out.
  std::vector<const Stranger*> Known(int64_t now_ns, const ClusterState& state) const;

 private:
  absl::btree_map<std::pair<std::string, ServerId>, Stranger> strangers_;  // by cluster and server
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_STATE_STRANGERS_H_
