#include "cli/shards/shard_copies.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cli/tables/table_text.h"
#include "common/ids.h"

namespace hotbed {
namespace {

constexpr const char* kRoleWords[] = {"primary", "member", "learner"};

bool IsMember(const ShardCopy& copy) { return copy.role != CopyRole::kLearner; }

}  // namespace

CopyView::CopyView(const v1::ClusterMap& map) {
  for (const v1::ServerInfo& info : map.servers()) {
    servers_[info.server()] = {
        info.name().empty() ? absl::StrCat("server ", info.server()) : info.name(),
        info.failure_domain(), info.incarnation(), info.live()};
    for (const v1::ShardLoad& load : info.load().shards()) {
      applied_[{info.server(), load.shard()}] = load.applied_lsn();
    }
  }
  for (const v1::TableSpec& table : map.tables()) {
    tables_[table.id()] = {table.name(), std::max<uint64_t>(table.copies(), 1)};
  }
  for (const v1::ShardRecord& record : map.shards()) {
    shards_[ShardId::FromPacked(record.shard()).table].push_back(record);
  }
}

ShardCopy CopyView::CopyOf(const v1::ShardRecord& record, const v1::Member& member,
                           CopyRole role) const {
  ShardCopy copy{absl::StrCat("server ", member.server()), role, false, "", std::nullopt};
  const auto server = servers_.find(member.server());
  if (server != servers_.end()) {
    copy.server = server->second.name;
    copy.domain = server->second.domain;
    copy.live = server->second.live && server->second.incarnation == member.incarnation();
  }
  const auto mine = applied_.find({member.server(), record.shard()});
  const auto primary = applied_.find({record.primary().server(), record.shard()});
  if (role == CopyRole::kPrimary) {
    copy.behind = 0;
  } else if (mine != applied_.end() && primary != applied_.end()) {
    copy.behind = primary->second - std::min(primary->second, mine->second);
  }
  return copy;
}

std::vector<ShardCopy> CopyView::CopiesOf(const v1::ShardRecord& record) const {
  std::vector<ShardCopy> copies;
  if (record.primary().server() != 0) {
    copies.push_back(CopyOf(record, record.primary(), CopyRole::kPrimary));
  }
  for (const v1::Member& member : record.members()) {
    if (member.server() == record.primary().server()) continue;
    copies.push_back(CopyOf(record, member, CopyRole::kMember));
  }
  for (const v1::Member& learner : record.learners()) {
    copies.push_back(CopyOf(record, learner, CopyRole::kLearner));
  }
  return copies;
}

uint64_t CopyView::Wanted(const v1::ShardRecord& record) const {
  const auto table = tables_.find(ShardId::FromPacked(record.shard()).table);
  return table == tables_.end() ? 1 : table->second.second;
}

CopyCount CopyView::CountOf(uint32_t table) const {
  CopyCount count;
  const auto known = tables_.find(table);
  const auto shards = shards_.find(table);
  if (known == tables_.end() || shards == shards_.end()) return count;
  count.copies = known->second.second;
  for (const v1::ShardRecord& record : shards->second) {
    ++count.shards;
    count.active += record.active() ? 1 : 0;
    uint64_t members = 0;
    for (const ShardCopy& copy : CopiesOf(record)) {
      members += IsMember(copy) && copy.live ? 1 : 0;
      count.learners += IsMember(copy) ? 0 : 1;
      count.behind_max = std::max(count.behind_max, copy.behind.value_or(0));
    }
    if (members >= count.copies || count.short_of++ > 0) continue;
    count.first_short =
        absl::StrCat(known->second.first, "/", ShardId::FromPacked(record.shard()).index);
  }
  return count;
}

uint64_t CopyView::SharingDomains(std::string* first) const {
  uint64_t sharing = 0;
  for (const auto& [table, records] : shards_) {
    for (const v1::ShardRecord& record : records) {
      std::set<std::string> domains;
      size_t members = 0;
      for (const ShardCopy& copy : CopiesOf(record)) {
        if (!IsMember(copy) || !copy.live || copy.domain.empty()) continue;
        ++members;
        domains.insert(copy.domain);
      }
      if (domains.size() == members || sharing++ > 0) continue;
      const auto known = tables_.find(table);
      *first = absl::StrCat(known == tables_.end() ? absl::StrCat(table) : known->second.first, "/",
                            ShardId::FromPacked(record.shard()).index);
    }
  }
  return sharing;
}

std::string ActiveText(const CopyCount& count) {
  return absl::StrCat(
      count.active, " of ", count.shards,
      count.short_of == 0 ? "" : absl::StrCat("; ", count.short_of, " short of copies"));
}

std::string CopiesText(const std::vector<ShardCopy>& copies, CopyRole role) {
  std::string text;
  for (const ShardCopy& copy : copies) {
    if (copy.role != role) continue;
    absl::StrAppend(&text, text.empty() ? "" : " ", copy.server);
    if (!copy.live) {
      absl::StrAppend(&text, "(down)");
    } else if (copy.behind.value_or(0) > 0) {
      absl::StrAppend(&text, "(", *copy.behind, " behind)");
    }
  }
  return text.empty() ? "-" : text;
}

nlohmann::ordered_json CopiesJson(const std::vector<ShardCopy>& copies) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const ShardCopy& copy : copies) {
    nlohmann::ordered_json one = {{"server", copy.server},
                                  {"role", kRoleWords[static_cast<int>(copy.role)]},
                                  {"live", copy.live},
                                  {"behind", nullptr}};
    if (copy.behind) one["behind"] = *copy.behind;
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
