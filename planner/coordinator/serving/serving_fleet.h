// The serving servers (docs/serving.md), as they report: which are there, and which rows and
// versions they have.
//
// They live in memory alone: a coordinator that begins to lead knows none, and hears from each
// within a second. Pure; thread-compatible.
#ifndef HOTBED_PLANNER_COORDINATOR_SERVING_SERVING_FLEET_H_
#define HOTBED_PLANNER_COORDINATOR_SERVING_SERVING_FLEET_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "common/ids.h"
#include "planner/coordinator/serving/copy_demand.h"
#include "proto/served_part.h"
#include "proto/serving.pb.h"

namespace hotbed {

using ServedTables = absl::btree_map<TableId, v1::ServedTable>;
using TableSpecs = absl::btree_map<TableId, v1::TableSpec>;

class ServingFleet {
 public:
  struct Options {
    int64_t alive_ns = 0;  // since its last report
    int64_t away_ns = 0;   // after so long another server takes its tables
    int64_t rate_ns = 0;   // over which rates of lookups are averaged
    size_t servers_max = 0;
  };
  struct Server {
    v1::ServingReport report;
    CopyRates rates;
    int64_t heard_ns = 0;
  };
  using Servers = absl::btree_map<std::string, Server>;  // by name

  explicit ServingFleet(const Options& options) : options_(options) {}

  // This coordinator begins to lead, or was held up: nobody is away yet.
  void Begin(int64_t now_ns);
  // InvalidArgument: name or address missing or malformed, or replicas of other kinds.
  // AlreadyExists: another process reports under that name. ResourceExhausted: too many servers.
  absl::Status OnReport(int64_t now_ns, const v1::ServingReport& report);

  const Servers& servers() const { return servers_; }
  // Whether all servers that are alive have reported since this coordinator leads.
  bool AllHeard(int64_t now_ns) const { return now_ns - began_ns_ >= options_.alive_ns; }
  // Whether all servers that are not away have.
  bool AllAwayKnown(int64_t now_ns) const { return now_ns - began_ns_ >= options_.away_ns; }
  bool Alive(int64_t now_ns, const std::string& name) const;
  // Whether it is alive and does not stop.
  bool Works(int64_t now_ns, const std::string& name) const;
  bool Away(int64_t now_ns, const std::string& name) const;
  // Whether it restarts, or is silent for a moment: it may have room soon.
  bool IsQuiet(int64_t now_ns, const std::string& name) const;
  std::string DomainOf(const std::string& name) const;  // empty: unknown
  // The copies of `part` per failure domain that is known, without those that are away.
  using Crowds = absl::btree_map<std::string, int>;
  Crowds CrowdsOf(int64_t now_ns, const v1::ServedTable& table, uint32_t part) const;

  // Null: the server has said nothing of it.
  const v1::ReplicaReport* FindReplica(const std::string& name, TableId table,
                                       const ServedPart& part) const;
  bool Holds(const std::string& name, TableId table, const ServedPart& part,
             uint64_t version) const;
  // Whether the copy of `name` is ready, and has room for what it follows.
  bool Follows(int64_t now_ns, const std::string& name, const v1::ReplicaReport& replica) const;
  // Whether the server answers for all that `leaving` does.
  bool CanStandIn(int64_t now_ns, const std::string& name, const v1::ReplicaReport& leaving) const;
  // Whether each server that is alive and has a table of the version holds it whole, and each of
  // its served tables has such a server.
  bool AllHold(int64_t now_ns, const v1::ServedVersion& version, const ServedTables& tables) const;
  // Rows per second that lookups ask of all copies together, of the part of which they ask most.
  double LookupRowsPerS(int64_t now_ns, const v1::ServedTable& table) const;

  // The bytes of all parts with their versions: as a replica reports its own, or by the declared
  // rows; 0: unknown.
  uint64_t BytesOf(const v1::TableSpec& spec, const v1::ServedTable& table) const;
  // The bytes that a server has, and is still to get.
  uint64_t FilledBytes(const std::string& name, const ServedTables& tables) const;

  void AddTo(int64_t now_ns, v1::ServingMap* map) const;

 private:
  const Options options_;
  int64_t began_ns_ = 0;
  Servers servers_;
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_SERVING_SERVING_FLEET_H_
