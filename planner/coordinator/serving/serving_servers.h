// Serving servers (docs/serving.md) and which of them have which tables.
//
// The servers are known by their reports alone, and live in memory: a coordinator that begins to
// lead knows none, and hears from each within a second. Which server is to have which table is in
// the metadata store (v1::ServedTable). A server that is silent for long, or stops, gives its
// tables to another one, if one has room; else they wait for it. Nothing here touches shards: a
// wrong verdict costs a copy of rows.
//
// Pure; thread-compatible.
#ifndef HOTBED_PLANNER_COORDINATOR_SERVING_SERVING_SERVERS_H_
#define HOTBED_PLANNER_COORDINATOR_SERVING_SERVING_SERVERS_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "common/ids.h"
#include "planner/coordinator/serving/copy_demand.h"
#include "proto/served_part.h"
#include "proto/serving.pb.h"

namespace hotbed {

using ServedTables = absl::btree_map<TableId, v1::ServedTable>;
using TableSpecs = absl::btree_map<TableId, v1::TableSpec>;

class ServingServers {
 public:
  struct Options {
    int64_t alive_ns = 3'000'000'000;  // since its last report
    int64_t away_ns = 10'000'000'000;  // after so long another server takes its tables
    uint32_t report_interval_ms = 500;
    size_t servers_max = 1024;
    CopyDemand::Options demand;
    int64_t leave_ns = 5'000'000'000;         // a cut stays so long for readers with an old map
    int64_t join_after_ns = 600'000'000'000;  // that a table would have fitted fewer parts
    // A table that grows old for want of room is cut without its parts after so long.
    int64_t give_up_after_ns = 20'000'000'000;
  };
  explicit ServingServers(const Options& options) : options_(options), demand_(options.demand) {}

  // This coordinator begins to lead, or was held up: nobody is away yet.
  void Begin(int64_t now_ns);
  // InvalidArgument: name or address missing or malformed, or replicas of other kinds.
  // AlreadyExists: another process reports under that name. ResourceExhausted: too many servers.
  absl::Status OnReport(int64_t now_ns, const v1::ServingReport& report);
  v1::ServingOrders OrdersFor(int64_t now_ns, const std::string& name, const ServedTables& tables,
                              const TableSpecs& specs) const;
  v1::ServingMap Map(int64_t now_ns, const ServedTables& tables, const TableSpecs& specs) const;

  // Sets the servers of `table`: those that it has, without those that are away for good where
  // another one can take their place, and as many more of each part as it wants and there are. A
  // server takes one part of it, if it is alive and its memory suffices as far as is known. One in
  // a failure domain with few of the part's servers goes first, and among these the one whose
  // memory is filled least. Where a part fits no server, the table is cut into more parts, as few
  // as there are servers with room for (Recut); without such servers, those with a disk take it.
  // Where a domain has two copies of a part more than another one with room, that one gets a
  // further copy; the crowded domain gives one up when the others that are ready suffice. False:
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
  // Rows per second that lookups ask of all copies together, of the part of which they ask most.
  double LookupRowsPerS(int64_t now_ns, const v1::ServedTable& table) const;
  // Whether each server that is alive and has a table of the version holds it whole, and each of
  // its served tables has such a server.
  bool AllHold(int64_t now_ns, const v1::ServedVersion& version, const ServedTables& tables) const;

 private:
  struct Server {
    v1::ServingReport report;
    CopyRates rates;
    int64_t heard_ns = 0;
  };
  bool Alive(int64_t now_ns, const std::string& name) const;
  // The server whose copy the others of the part follow, as it follows the primaries: of those
  // that are ready one in the failure domain with the most copies, or else the first one that may
  // become ready. Empty: none.
  std::string FeederOf(int64_t now_ns, const v1::ServedTable& table, const ServedPart& part) const;
  const v1::ReplicaReport* FindReplica(const std::string& name, TableId table,
                                       const ServedPart& part) const;
  bool Holds(const std::string& name, TableId table, const ServedPart& part,
             uint64_t version) const;
  bool Away(int64_t now_ns, const std::string& name) const;
  std::string DomainOf(const std::string& name) const;  // empty: unknown
  // The copies of `part` per failure domain that is known, without those that are away.
  // Parts of a table, or of another cut of it.
  struct PartStates {
    std::set<uint32_t> placed;    // a server has it
    std::set<uint32_t> hopeful;   // on a server that is not too small for it, as far as is known
    std::set<uint32_t> answered;  // a copy is ready, if it follows or not
  };
  // Which servers may take a copy: those whose memory suffices, or would suffice if it grew by a
  // quarter, or those with a disk, whether or not it does.
  enum class Room { kEnough, kAmple, kDisk };
  using Crowds = absl::btree_map<std::string, int>;
  Crowds CrowdsOf(int64_t now_ns, const v1::ServedTable& table, uint32_t part) const;
  // Whether the server answers for all that `leaving` does.
  bool CanStandIn(int64_t now_ns, const std::string& name, const v1::ReplicaReport& leaving) const;
  // The copy of `part`, of which there are too many, that goes next: an absent one, one that its
  // server is too small for, or one of the domain with the most. None: a server was not heard yet,
  // or fewer copies would be ready than are wanted.
  std::optional<int> Surplus(int64_t now_ns, const v1::ServedTable& table, uint32_t part) const;
  // Adds copies in domains that have too few; Surplus takes those that they replace.
  void Spread(int64_t now_ns, const ServedTables& tables, const v1::TableSpec& spec,
              v1::ServedTable* table) const;
  uint64_t BytesOf(const v1::TableSpec& spec, const v1::ServedTable& table) const;
  uint64_t FilledBytes(const std::string& name, const ServedTables& tables) const;
  std::string LeastFilled(int64_t now_ns, const ServedTables& tables, const v1::TableSpec& spec,
                          const v1::ServedTable& table, uint32_t part, Room room) const;
  void Fill(int64_t now_ns, const ServedTables& tables, const v1::TableSpec& spec,
            v1::ServedTable* table, Room room) const;
  CopyDemand::Load LoadOf(int64_t now_ns, const ServedTables& tables, const v1::TableSpec& spec,
                          const v1::ServedTable& table) const;
  // Whether the copy of `name` is ready, and has room for what it follows.
  bool Follows(int64_t now_ns, const std::string& name, const v1::ReplicaReport& replica) const;
  bool IsAlone(int64_t now_ns, const v1::ServedTable& table, const std::string& name) const;
  PartStates StatesOf(int64_t now_ns, const v1::ServedTable& table) const;
  // Whether no server will ever follow some part, as things are.
  bool IsStuck(int64_t now_ns, const v1::ServedTable& table) const;
  // Whether the server restarts, or is silent for a moment: it may have room soon.
  bool IsQuiet(int64_t now_ns, const std::string& name) const;
  // Whether the parts of a table that is stuck may go before others are loaded: not on the view of
  // a moment, if they still answer.
  bool MayGiveUp(int64_t now_ns, const v1::ServedTable& table) const;
  // Cuts a table that is stuck into more parts, if there are servers for all of them: besides the
  // parts that it has, or instead of them where nobody can look them up or there is no room.
  void CutFurther(int64_t now_ns, const ServedTables& tables, const v1::TableSpec& spec,
                  v1::ServedTable* table) const;
  // Whether readers may be told of `cut`, which the table has besides.
  bool MayFollow(int64_t now_ns, const v1::ServedTable& table, const v1::ServedTable& cut) const;
  // Begins another cut of the table where it is due, finds servers for it, lets it follow when it
  // is ready, and ends the one before.
  void Recut(int64_t now_ns, const ServedTables& tables, const v1::TableSpec& spec,
             v1::ServedTable* table) const;
  // The table in fewer parts, if servers have ample room for that beside those that it has.
  std::optional<v1::ServedTable> Joined(int64_t now_ns, const ServedTables& tables,
                                        const v1::TableSpec& spec,
                                        const v1::ServedTable& table) const;
  // Notes since when cuts leave, tables may be joined, and tables are stuck.
  void NoteCuts(int64_t now_ns, const ServedTables& tables, const TableSpecs& specs);
  bool JoinIsDue(int64_t now_ns, TableId table) const;
  std::string CutStates(int64_t now_ns, const ServedTables& tables) const;  // changes with them

  const Options options_;
  int64_t began_ns_ = 0;
  absl::btree_map<std::string, Server> servers_;
  std::string placed_for_;  // what placement depended on when there was nothing to change
  int64_t place_again_ns_ = 0;
  CopyDemand demand_;
  absl::btree_map<TableId, int64_t> left_since_ns_;
  absl::btree_map<TableId, int64_t> may_join_since_ns_;
  absl::btree_map<TableId, int64_t> stuck_since_ns_;  // also while other parts are loaded
  int64_t look_for_joins_ns_ = 0;
  // The numbers of copies that hot tables have, and are to have.
  absl::btree_map<TableId, std::pair<uint32_t, uint32_t>> wanted_;
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_SERVING_SERVING_SERVERS_H_
