// Which serving servers are to have which tables (docs/serving.md), and what they and readers are
// told of it.
//
// Which server is to have which table is in the metadata store (v1::ServedTable). A server that is
// silent for long, or stops, gives its tables to another one, if one has room; else they wait for
// it. Nothing here touches shards: a wrong verdict costs a copy of rows.
//
// Pure; thread-compatible.
#ifndef HOTBED_PLANNER_COORDINATOR_SERVING_SERVING_SERVERS_H_
#define HOTBED_PLANNER_COORDINATOR_SERVING_SERVING_SERVERS_H_

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "common/ids.h"
#include "planner/coordinator/serving/copy_demand.h"
#include "planner/coordinator/serving/copy_placement.h"
#include "planner/coordinator/serving/served_cuts.h"
#include "planner/coordinator/serving/serving_fleet.h"
#include "proto/served_part.h"
#include "proto/serving.pb.h"

namespace hotbed {

class ServingServers {
 public:
  struct Options {
    int64_t alive_ns = 3'000'000'000;  // since its last report
    int64_t away_ns = 10'000'000'000;  // after so long another server takes its tables
    uint32_t report_interval_ms = 500;
    size_t servers_max = 1024;
    CopyDemand::Options demand;
    int64_t leave_ns = 5'000'000'000;         // as in ServedCuts
    int64_t join_after_ns = 600'000'000'000;  // likewise
    int64_t give_up_after_ns = 20'000'000'000;
    int64_t give_version_up_after_ns = 300'000'000'000;
  };
  explicit ServingServers(const Options& options);
  ServingServers(const ServingServers&) = delete;  // its parts know each other
  ServingServers& operator=(const ServingServers&) = delete;

  // This coordinator begins to lead, or was held up: nobody is away yet.
  void Begin(int64_t now_ns);
  // As ServingFleet has it.
  absl::Status OnReport(int64_t now_ns, const v1::ServingReport& report) {
    return fleet_.OnReport(now_ns, report);
  }
  // As ServedCuts has it.
  void SetCurrent(std::set<uint64_t> versions) { cuts_.SetCurrent(std::move(versions)); }
  v1::ServingOrders OrdersFor(int64_t now_ns, const std::string& name, const ServedTables& tables,
                              const TableSpecs& specs) const;
  v1::ServingMap Map(int64_t now_ns, const ServedTables& tables, const TableSpecs& specs) const;

  // Sets the servers of `table`: those that it has, without those that are away for good where
  // another one can take their place, and as many more of each part as it wants and there are
  // (CopyPlacement). Where a part fits no server, the table is cut into more parts, as few as there
  // are servers with room for (ServedCuts); without such servers, those with a disk take it. False:
  // nothing has changed.
  bool Place(int64_t now_ns, const ServedTables& tables, const v1::TableSpec& spec,
             v1::ServedTable* table) const;
  // The tables of which Place changes something, or which are to have another number of copies, as
  // they should be, and those that do not exist any more, without servers and replicas.
  std::vector<v1::ServedTable> Changes(int64_t now_ns, const ServedTables& tables,
                                       const TableSpecs& specs) const;
  // Whether Changes has any. `revision` is that of the tables, and of which are served. Where there
  // was nothing to change, it is looked at again once something else has changed than the bytes of
  // rows, or after some seconds: a table that finds no server costs little. It also decides how
  // many copies hot tables are to have, and is called twice a second for that.
  bool NeedsPlacing(int64_t now_ns, const std::string& revision, const ServedTables& tables,
                    const TableSpecs& specs);
  // As ServingFleet has it.
  double LookupRowsPerS(int64_t now_ns, const v1::ServedTable& table) const {
    return fleet_.LookupRowsPerS(now_ns, table);
  }
  bool AllHold(int64_t now_ns, const v1::ServedVersion& version, const ServedTables& tables) const {
    return fleet_.AllHold(now_ns, version, tables);
  }
  // As ServedCuts has it.
  std::vector<LackedVersion> Lacked(int64_t now_ns, const v1::ServedTable& table) const {
    return cuts_.Lacked(now_ns, table);
  }

 private:
  // The server whose copy the others of the part follow, as it follows the primaries: of those
  // that are ready one in the failure domain with the most copies, or else the first one that may
  // become ready. Empty: none.
  std::string FeederOf(int64_t now_ns, const v1::ServedTable& table, const ServedPart& part) const;
  // Whether no other copy of the part follows.
  bool IsAlone(int64_t now_ns, const v1::ServedTable& table, const std::string& name) const;
  CopyDemand::Load LoadOf(int64_t now_ns, const ServedTables& tables, const v1::TableSpec& spec,
                          const v1::ServedTable& table) const;

  const Options options_;
  ServingFleet fleet_;
  const CopyPlacement placement_;
  ServedCuts cuts_;
  std::string placed_for_;  // what placement depended on when there was nothing to change
  int64_t place_again_ns_ = 0;
  CopyDemand demand_;
  // The numbers of copies that hot tables have, and are to have.
  absl::btree_map<TableId, std::pair<uint32_t, uint32_t>> wanted_;
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_SERVING_SERVING_SERVERS_H_
