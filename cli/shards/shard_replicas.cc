#include "cli/shards/shard_replicas.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cli/tables/table_text.h"
#include "common/ids.h"

namespace hotbed {
namespace {

constexpr const char* kRoleWords[] = {"primary", "member", "learner"};

bool IsMember(const ShardReplica& replica) { return replica.role != ReplicaRole::kLearner; }

}  // namespace

bool StoresShard(const v1::ShardRecord& record, uint64_t server) {
  const auto is_here = [server](const v1::Member& member) { return member.server() == server; };
  return is_here(record.primary()) ||
         std::any_of(record.members().begin(), record.members().end(), is_here) ||
         std::any_of(record.learners().begin(), record.learners().end(), is_here);
}

ReplicaView::ReplicaView(const v1::ClusterMap& map) {
  for (const v1::ServerInfo& info : map.servers()) {
    servers_[info.server()] = {
        info.name().empty() ? absl::StrCat("server ", info.server()) : info.name(),
        info.failure_domain(), info.incarnation(), info.live()};
    for (const v1::ShardLoad& load : info.load().shards()) {
      applied_[{info.server(), load.shard()}] = load.applied_lsn();
    }
  }
  for (const v1::TableSpec& table : map.tables()) {
    tables_[table.id()] = {table.name(), std::max<uint64_t>(table.replicas(), 1)};
  }
  for (const v1::ShardRecord& record : map.shards()) {
    shards_[ShardId::FromPacked(record.shard()).table].push_back(record);
  }
}

ShardReplica ReplicaView::CopyOf(const v1::ShardRecord& record, const v1::Member& member,
                                 ReplicaRole role) const {
  ShardReplica replica{absl::StrCat("server ", member.server()), role, false, "", std::nullopt};
  const auto server = servers_.find(member.server());
  if (server != servers_.end()) {
    replica.server = server->second.name;
    replica.domain = server->second.domain;
    replica.live = server->second.live && server->second.incarnation == member.incarnation();
  }
  const auto mine = applied_.find({member.server(), record.shard()});
  const auto primary = applied_.find({record.primary().server(), record.shard()});
  if (role == ReplicaRole::kPrimary) {
    replica.behind = 0;
  } else if (mine != applied_.end() && primary != applied_.end()) {
    replica.behind = primary->second - std::min(primary->second, mine->second);
  }
  return replica;
}

std::vector<ShardReplica> ReplicaView::ReplicasOf(const v1::ShardRecord& record) const {
  std::vector<ShardReplica> replicas;
  if (record.primary().server() != 0) {
    replicas.push_back(CopyOf(record, record.primary(), ReplicaRole::kPrimary));
  }
  for (const v1::Member& member : record.members()) {
    if (member.server() == record.primary().server()) continue;
    replicas.push_back(CopyOf(record, member, ReplicaRole::kMember));
  }
  for (const v1::Member& learner : record.learners()) {
    replicas.push_back(CopyOf(record, learner, ReplicaRole::kLearner));
  }
  return replicas;
}

uint64_t ReplicaView::Wanted(const v1::ShardRecord& record) const {
  const auto table = tables_.find(ShardId::FromPacked(record.shard()).table);
  return table == tables_.end() ? 1 : table->second.second;
}

ReplicaCount ReplicaView::CountOf(uint32_t table) const {
  ReplicaCount count;
  const auto known = tables_.find(table);
  const auto shards = shards_.find(table);
  if (known == tables_.end() || shards == shards_.end()) return count;
  count.replicas = known->second.second;
  for (const v1::ShardRecord& record : shards->second) {
    ++count.shards;
    count.active += record.active() ? 1 : 0;
    uint64_t members = 0;
    for (const ShardReplica& replica : ReplicasOf(record)) {
      members += IsMember(replica) && replica.live ? 1 : 0;
      count.learners += IsMember(replica) ? 0 : 1;
      count.behind_max = std::max(count.behind_max, replica.behind.value_or(0));
    }
    if (members >= count.replicas || count.short_of++ > 0) continue;
    count.first_short =
        absl::StrCat(known->second.first, "/", ShardId::FromPacked(record.shard()).index);
  }
  return count;
}

uint64_t ReplicaView::SharingDomains(std::string* first) const {
  uint64_t sharing = 0;
  for (const auto& [table, records] : shards_) {
    for (const v1::ShardRecord& record : records) {
      std::set<std::string> domains;
      size_t members = 0;
      for (const ShardReplica& replica : ReplicasOf(record)) {
        if (!IsMember(replica) || !replica.live || replica.domain.empty()) continue;
        ++members;
        domains.insert(replica.domain);
      }
      if (domains.size() == members || sharing++ > 0) continue;
      const auto known = tables_.find(table);
      *first = absl::StrCat(known == tables_.end() ? absl::StrCat(table) : known->second.first, "/",
                            ShardId::FromPacked(record.shard()).index);
    }
  }
  return sharing;
}

std::string ActiveText(const ReplicaCount& count) {
  return absl::StrCat(
      count.active, " of ", count.shards,
      count.short_of == 0 ? "" : absl::StrCat("; ", count.short_of, " short of replicas"));
}

std::string ReplicasText(const std::vector<ShardReplica>& replicas, ReplicaRole role) {
  std::string text;
  for (const ShardReplica& replica : replicas) {
    if (replica.role != role) continue;
    absl::StrAppend(&text, text.empty() ? "" : " ", replica.server);
    if (!replica.live) {
      absl::StrAppend(&text, "(down)");
    } else if (replica.behind.value_or(0) > 0) {
      absl::StrAppend(&text, "(", *replica.behind, " behind)");
    }
  }
  return text.empty() ? "-" : text;
}

nlohmann::ordered_json ReplicasJson(const std::vector<ShardReplica>& replicas) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const ShardReplica& replica : replicas) {
    nlohmann::ordered_json one = {{"server", replica.server},
                                  {"role", kRoleWords[static_cast<int>(replica.role)]},
                                  {"live", replica.live},
                                  {"behind", nullptr}};
    if (replica.behind) one["behind"] = *replica.behind;
    json.push_back(std::move(one));
  }
  return json;
}

std::string DoubtText(const v1::ClusterMap& map, const v1::ShardDoubt& doubt) {
  return absl::StrCat(
      ShardName(map, doubt.shard()), " since ",
      absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::FromUnixMillis(doubt.since_unix_ms()),
                       absl::UTCTimeZone()),
      " UTC: ", doubt.text());
}

}  // namespace hotbed
