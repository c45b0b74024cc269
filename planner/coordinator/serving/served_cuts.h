// Into how many parts served tables are cut (docs/serving.md, "Parts"): cuts them into more parts
// where a part fits no server, and joins parts again, while the parts that there are go on
// answering.
//
// Pure; thread-compatible.
#ifndef HOTBED_PLANNER_COORDINATOR_SERVING_SERVED_CUTS_H_
#define HOTBED_PLANNER_COORDINATOR_SERVING_SERVED_CUTS_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "planner/coordinator/serving/copy_placement.h"
#include "planner/coordinator/serving/serving_fleet.h"

namespace hotbed {

// A version that present parts hold, and that a copy of a part which is to follow does not. A copy
// that has failed for long is left out where another one of its part holds the version.
struct LackedVersion {
  uint64_t number = 0;
  std::string server;  // whose part it is
  ServedPart part;
  std::string trouble;    // for people: why; empty: nothing has failed
  int64_t failed_ns = 0;  // from the first to the last of its attempts that failed in a row
  bool current = false;   // of its model
  bool held = false;      // by another copy of the part, which may answer
  bool failed = false;    // for as long as is waited for at most
  bool given_up = false;  // the parts may follow without it
};

// Whether fewer parts are coming because they would fit, and not because a person has asked.
bool JoinsParts(const v1::ServedTable& table);

class ServedCuts {
 public:
  struct Options {
    int64_t leave_ns = 0;       // a cut stays so long for readers with an old map
    int64_t join_after_ns = 0;  // that a table would have fitted fewer parts
    // A table that grows old for want of room is cut without its parts after so long.
    int64_t give_up_after_ns = 0;
    int64_t give_version_up_after_ns = 0;  // that parts have failed to take it up
    double rows_per_s_max = 0;             // of a copy, above which one more is wanted
  };
  ServedCuts(const Options& options, const ServingFleet* fleet, const CopyPlacement* placement)
      : options_(options), fleet_(*fleet), placement_(*placement) {}

  void Begin();
  // Versions that are current of their models in the state that is looked at, or changed, next.
  // Parts are not to follow without these.
  void SetCurrent(std::set<uint64_t> versions) { current_ = std::move(versions); }
  // Notes since when cuts leave, tables may be joined and tables are stuck.
  void Note(int64_t now_ns, const ServedTables& tables, const TableSpecs& specs);
  // All that a cut may depend on, besides the tables and servers.
  std::string States(int64_t now_ns, const ServedTables& tables) const;

  // Begins another cut of the table where it is due, finds servers for it, lets it follow when it
  // is ready, and ends the one before.
  void Recut(int64_t now_ns, const ServedTables& tables, const v1::TableSpec& spec,
             v1::ServedTable* table) const;
  // The table in fewer parts, if that is due and servers have ample room for it beside those that
  // it has.
  std::optional<v1::ServedTable> JoinIfDue(int64_t now_ns, const ServedTables& tables,
                                           const v1::TableSpec& spec,
                                           const v1::ServedTable& table) const;
  // The versions that the coming cut of the table lacks; none if no cut is coming. Each version
  // comes with the copy that has failed to take it up for longest, or, if there is one, with such a
  // copy of a part of which no other copy holds it.
  std::vector<LackedVersion> Lacked(int64_t now_ns, const v1::ServedTable& table) const;

 private:
  // Parts of a table, or of another cut of it.
  struct PartStates {
    std::set<uint32_t> placed;    // a server has it
    std::set<uint32_t> hopeful;   // on a server that is not too small for it, as far as is known
    std::set<uint32_t> answered;  // a copy is ready, if it follows or not
  };
  PartStates StatesOf(int64_t now_ns, const v1::ServedTable& table) const;
  // Whether no server will ever follow some part, as things are.
  bool IsStuck(int64_t now_ns, const v1::ServedTable& table) const;
  // Whether the parts of a table that is stuck may go before others are loaded: not on the view of
  // a moment, if they still answer.
  bool MayGiveUp(int64_t now_ns, const v1::ServedTable& table) const;
  // Cuts a table that is stuck into more parts, if there are servers for all of them: besides the
  // parts that it has, or instead of them where nobody can look them up or there is no room.
  void CutFurther(int64_t now_ns, const ServedTables& tables, const v1::TableSpec& spec,
                  v1::ServedTable* table) const;
  std::set<uint64_t> VersionsOf(int64_t now_ns, const v1::ServedTable& table) const;
  // The parts of which some copy that may answer holds the version.
  std::set<uint32_t> PartsWith(int64_t now_ns, const v1::ServedTable& table,
                               uint64_t version) const;
  // Whether readers may be told of `cut`, which the table has besides.
  bool MayFollow(int64_t now_ns, const v1::ServedTable& table, const v1::ServedTable& cut) const;
  std::optional<v1::ServedTable> Joined(int64_t now_ns, const ServedTables& tables,
                                        const v1::TableSpec& spec,
                                        const v1::ServedTable& table) const;
  bool JoinIsDue(int64_t now_ns, TableId table) const;

  const Options options_;
  const ServingFleet& fleet_;
  const CopyPlacement& placement_;
  std::set<uint64_t> current_;
  absl::btree_map<TableId, int64_t> left_since_ns_;
  absl::btree_map<TableId, int64_t> may_join_since_ns_;
  absl::btree_map<TableId, int64_t> stuck_since_ns_;  // also while other parts are loaded
  int64_t look_for_joins_ns_ = 0;
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_SERVING_SERVED_CUTS_H_
