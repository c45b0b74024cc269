// The replicas of shards and their state, from a cluster map. Pure functions; the view copies the
// parts of the map that it needs.
#ifndef HOTBED_CLI_SHARDS_SHARD_COPIES_H_
#define HOTBED_CLI_SHARDS_SHARD_COPIES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"
#include "proto/control.pb.h"

namespace hotbed {

enum class ReplicaRole : uint8_t { kPrimary, kMember, kLearner };

struct ShardReplica {
  std::string server;  // its name
  ReplicaRole role = ReplicaRole::kPrimary;
  bool live = false;   // its process has a lease
  std::string domain;  // failure domain; empty: unknown
  // Records that the primary has applied and this replica has not, if both have reported (servers
  // report their busiest shards with each heartbeat). 0 for the primary.
  std::optional<uint64_t> behind;
};

// Whether the server holds a replica of the shard, in whatever role.
bool StoresShard(const v1::ShardRecord& record, uint64_t server);

// Totals over the shards of a table.
struct ReplicaCount {
  uint64_t shards = 0;
  uint64_t active = 0;
  uint64_t replicas = 0;  // wanted per shard
  uint64_t short_of = 0;  // shards with fewer live members than wanted
  uint64_t learners = 0;  // replicas that are not members: new ones and readers
  uint64_t behind_max = 0;
  std::string first_short;  // name of the first of `short_of`
};

class ReplicaView {
 public:
  explicit ReplicaView(const v1::ClusterMap& map);

  // The primary, then the other members and the learners in the record's order.
  std::vector<ShardReplica> ReplicasOf(const v1::ShardRecord& record) const;
  uint64_t Wanted(const v1::ShardRecord& record) const;  // members
  ReplicaCount CountOf(uint32_t table) const;
  // The number of shards with two live members in one failure domain; `*first` names one of them.
  uint64_t SharingDomains(std::string* first) const;

 private:
  struct Server {
    std::string name, domain;
    uint64_t incarnation = 0;
    bool live = false;
  };
  ShardReplica CopyOf(const v1::ShardRecord& record, const v1::Member& member,
                      ReplicaRole role) const;

  std::map<uint64_t, Server> servers_;
  std::map<std::pair<uint64_t, uint64_t>, uint64_t> applied_;    // (server, shard) -> LSN
  std::map<uint32_t, std::pair<std::string, uint64_t>> tables_;  // name, replicas wanted
  std::map<uint32_t, std::vector<v1::ShardRecord>> shards_;
};

// "16 of 16", with "; 3 short of replicas" if there are any.
std::string ActiveText(const ReplicaCount& count);
// "s1 s2", with "(down)" and "(812 behind)" where that is so; "-" for none.
std::string ReplicasText(const std::vector<ShardReplica>& replicas, ReplicaRole role);
// [{"server", "role", "live", "behind"}]; `behind` is null if unknown.
nlohmann::ordered_json ReplicasJson(const std::vector<ShardReplica>& replicas);

// "t/0 since 2026-01-02 03:04:05 UTC: stopped: lost all of ..."
std::string DoubtText(const v1::ClusterMap& map, const v1::ShardDoubt& doubt);

}  // namespace hotbed

#endif  // HOTBED_CLI_SHARDS_SHARD_COPIES_H_
