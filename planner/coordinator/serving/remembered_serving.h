// Serving servers whose cluster is not the one of these metadata: those were lost, and may be
// rebuilt (operations/rebuild_operations.cc). Such servers keep their copies and say which tables
// and versions were served, as the metadata had it.
//
// Pure; thread-compatible.
#ifndef HOTBED_PLANNER_COORDINATOR_SERVING_REMEMBERED_SERVING_H_
#define HOTBED_PLANNER_COORDINATOR_SERVING_REMEMBERED_SERVING_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "planner/coordinator/state/cluster_state.h"
#include "planner/coordinator/store/meta_store.h"
#include "proto/serving.pb.h"

namespace hotbed {

// As serving servers keep them.
v1::ServingRecords RecordsOf(const ClusterState& state);

class RememberedServing {
 public:
  static constexpr int64_t kLatelyNs = 3'000'000'000;  // servers report twice a second
  static constexpr size_t kServersMax = 1024;

  // This coordinator begins to lead: servers may ask that have not done so yet.
  void Begin(int64_t now_ns) { began_ns_ = now_ns; }
  void Note(int64_t now_ns, const v1::ServingReport& report);
  // Whether servers ask, or may begin to.
  bool Awaited(int64_t now_ns) const;
  // Servers of `cluster` that ask and have not said their records yet.
  std::vector<std::string> Unheard(int64_t now_ns, const std::string& cluster) const;
  // For people: which servers of `cluster` have not reported, whose records may be newer than those
  // that are known. Empty: none, as far as is known.
  std::vector<std::string> Missing(int64_t now_ns, const std::string& cluster) const;
  // The newest records of `cluster`. Null: no server has said any.
  const v1::ServingRecords* Newest(const std::string& cluster) const;

 private:
  struct Server {
    v1::ServingReport report;  // without replicas
    int64_t heard_ns = 0;
  };
  int64_t began_ns_ = 0;
  absl::btree_map<std::string, Server> servers_;  // by name
};

// The operations that write `records` into metadata without any, but for served tables that are not
// of `tables`, and records that no coordinator would have written.
std::vector<Op> OpsToAdopt(const v1::ServingRecords& records,
                           const absl::btree_map<TableId, v1::TableSpec>& tables);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_SERVING_REMEMBERED_SERVING_H_
