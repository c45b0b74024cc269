// The names of the coordinator's records in the metadata store. Numbers are zero-padded, so that
// keys sort by value.
//
//   /hotbed/format                 kFormat
//   /hotbed/cluster                the cluster id
//   /hotbed/leader                 token of the coordinator that may write; every transaction
//                                  compares the revision of this key
//   /hotbed/generation             of these metadata (ClusterState::generation), decimal
//   /hotbed/revisions              the highest revision of the store that these metadata were moved
//                                  from, decimal; absent if they never were
//   /hotbed/given                  v1.GivenOut: what earlier generations had given out, as far as
//                                  is known; absent in the first one
//   /hotbed/counters/{tables,servers,sessions,moves}
//                                  the last number assigned, decimal; never assigned again
//   /hotbed/tables/ID              v1.TableSpec; written last and deleted first: a table exists
//                                  iff this key does
//   /hotbed/names/NAME             the id of the table of that name, decimal
//   /hotbed/shards/TABLE/INDEX     v1.ShardRecord without its revision (which is the key's own)
//   /hotbed/goals/TABLE/INDEX      v1.ShardGoal: the placement wanted of the shard; deleted with
//                                  the change that reaches it
//   /hotbed/cuts/TABLE/INDEX       v1.ShardCut: a split or merge of the shard that was asked for;
//                                  deleted with the change that makes it, refuses it or gives it up
//   /hotbed/moves                  v1.MoveControl
//   /hotbed/checkpoint_schedule    v1.CheckpointSchedule; absent: there is none
//   /hotbed/events/NUMBER          v1.ClusterEvent; the newest ones only
//   /hotbed/dropped/ID             the name of a dropped table; the newest ones only
//   /hotbed/servers/ID             v1.ServerInfo without load and shard count
//   /hotbed/left_out/ID            v1.RegisterServerRequest: what that server held of tables that a
//                                  rebuild has left out
//   /hotbed/sessions/NAME          v1.OpenSessionReply without the cluster id
//   /hotbed/serving/TABLE          v1.ServedTable: a table that serving servers have copies of
//   /hotbed/versions/NUMBER        v1.ServedVersion: a version of served tables
//   /hotbed/version_choice         v1.VersionChoice: which of them is current, of model "default"
//   /hotbed/version_choices/MODEL  v1.VersionChoice of another model
//   /hotbed/groups/NAME            v1.GroupCommit: the last commit of that group of trainers
//
// While metadata are moved to another store (metadata/move_metadata.h), /hotbed/format says so.
#ifndef HOTBED_PLANNER_COORDINATOR_STATE_KEYS_H_
#define HOTBED_PLANNER_COORDINATOR_STATE_KEYS_H_

#include <cstdint>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/ids.h"

namespace hotbed::keys {

inline constexpr char kFormat[] = "2";

// Instead of kFormat: they were exported, or are being imported. No coordinator begins with either.
inline constexpr char kExported[] = "exported";
inline constexpr char kImporting[] = "importing";

// Held by the coordinator that leads, in etcd. Outside of kRoot: it is no record of the cluster.
inline constexpr char kElectionKey[] = "/hotbed-election";
inline constexpr char kRoot[] = "/hotbed/";
inline constexpr char kFormatKey[] = "/hotbed/format";
inline constexpr char kClusterKey[] = "/hotbed/cluster";
inline constexpr char kLeaderKey[] = "/hotbed/leader";
// By these a coordinator knows whether it may begin, and begins. The leader's record is read first:
// whoever takes the metadata out of use writes it with the format.
inline constexpr const char* kHeadKeys[] = {kLeaderKey, kFormatKey, kClusterKey};
inline constexpr char kGenerationKey[] = "/hotbed/generation";
inline constexpr char kRevisionsKey[] = "/hotbed/revisions";
inline constexpr char kGivenKey[] = "/hotbed/given";
inline constexpr char kTableCounter[] = "/hotbed/counters/tables";
inline constexpr char kServerCounter[] = "/hotbed/counters/servers";
inline constexpr char kSessionCounter[] = "/hotbed/counters/sessions";
inline constexpr char kMoveCounter[] = "/hotbed/counters/moves";
inline constexpr char kMovesKey[] = "/hotbed/moves";
inline constexpr char kCheckpointScheduleKey[] = "/hotbed/checkpoint_schedule";
inline constexpr char kTables[] = "/hotbed/tables/";
inline constexpr char kNames[] = "/hotbed/names/";
inline constexpr char kShards[] = "/hotbed/shards/";
inline constexpr char kGoals[] = "/hotbed/goals/";
inline constexpr char kCuts[] = "/hotbed/cuts/";
inline constexpr char kEvents[] = "/hotbed/events/";
inline constexpr char kDropped[] = "/hotbed/dropped/";
inline constexpr char kServers[] = "/hotbed/servers/";
inline constexpr char kLeftOut[] = "/hotbed/left_out/";
inline constexpr char kSessions[] = "/hotbed/sessions/";
inline constexpr char kServing[] = "/hotbed/serving/";
inline constexpr char kVersions[] = "/hotbed/versions/";
inline constexpr char kVersionChoiceKey[] = "/hotbed/version_choice";
inline constexpr char kVersionChoices[] = "/hotbed/version_choices/";
// The model of versions that name none.
inline constexpr char kDefaultModel[] = "default";
inline constexpr char kGroups[] = "/hotbed/groups/";

inline std::string Table(TableId id) {
  return absl::StrCat(kTables, absl::Dec(id, absl::kZeroPad10));
}
inline std::string Dropped(TableId id) {
  return absl::StrCat(kDropped, absl::Dec(id, absl::kZeroPad10));
}
inline std::string LeftOut(ServerId server) {
  return absl::StrCat(kLeftOut, absl::Dec(server, absl::kZeroPad20));
}
inline std::string Name(const std::string& name) { return absl::StrCat(kNames, name); }
inline std::string Shard(ShardId id) {
  return absl::StrCat(kShards, absl::Dec(id.table, absl::kZeroPad10), "/",
                      absl::Dec(id.index, absl::kZeroPad4));
}
inline std::string Goal(ShardId id) {
  return absl::StrCat(kGoals, absl::Dec(id.table, absl::kZeroPad10), "/",
                      absl::Dec(id.index, absl::kZeroPad4));
}
inline std::string Cut(ShardId id) {
  return absl::StrCat(kCuts, absl::Dec(id.table, absl::kZeroPad10), "/",
                      absl::Dec(id.index, absl::kZeroPad4));
}
// Parses the part of a key after kShards, kGoals or kCuts.
inline bool ParseShard(absl::string_view rest, ShardId* id) {
  const size_t slash = rest.find('/');
  return slash != rest.npos && absl::SimpleAtoi(rest.substr(0, slash), &id->table) &&
         absl::SimpleAtoi(rest.substr(slash + 1), &id->index);
}
inline std::string Event(uint64_t number) {
  return absl::StrCat(kEvents, absl::Dec(number, absl::kZeroPad20));
}
inline std::string Server(ServerId id) {
  return absl::StrCat(kServers, absl::Dec(id, absl::kZeroPad20));
}
inline std::string Served(TableId id) {
  return absl::StrCat(kServing, absl::Dec(id, absl::kZeroPad10));
}
inline std::string Version(uint64_t number) {
  return absl::StrCat(kVersions, absl::Dec(number, absl::kZeroPad20));
}
inline std::string VersionChoice(const std::string& model) {
  return model == kDefaultModel ? kVersionChoiceKey : absl::StrCat(kVersionChoices, model);
}
// Whether the record is of served tables or their versions.
inline bool IsOfServing(absl::string_view key) {
  return absl::StartsWith(key, kServing) || absl::StartsWith(key, kVersions) ||
         absl::StartsWith(key, kVersionChoices) || key == kVersionChoiceKey;
}
inline std::string Group(const std::string& name) { return absl::StrCat(kGroups, name); }
inline std::string Session(const std::string& name) { return absl::StrCat(kSessions, name); }

}  // namespace hotbed::keys

#endif  // HOTBED_PLANNER_COORDINATOR_STATE_KEYS_H_
