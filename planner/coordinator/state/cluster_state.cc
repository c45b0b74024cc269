#include "planner/coordinator/state/cluster_state.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "planner/coordinator/state/keys.h"
#include "planner/model/placement.h"
#include "proto/convert.h"

namespace hotbed {
namespace {

// For the snapshot transfers of all servers together: a fifth of a 10 Gbit/s network.
constexpr uint64_t kTransferBytesPerSecond = 256 << 20;
// Far above the p99 of pulls in a healthy cluster.
constexpr uint32_t kTransferPullP99MsMax = 100;

absl::Status Damaged(const std::string& key) {
  return absl::DataLossError(absl::StrCat("metadata record ", key,
                                          " cannot be decoded; restore the coordinator's data "
                                          "directory"));
}

TableId TableOf(uint64_t packed) { return ShardId::FromPacked(packed).table; }

bool HeldAlike(const ShardRecord& a, const ShardRecord& b) {
  return a.range.first == b.range.first && a.range.limit == b.range.limit &&
         a.primary == b.primary && a.members == b.members;
}

}  // namespace

std::string StoredRecord(const ShardRecord& record) {
  v1::ShardRecord message = ToProto(record);
  message.clear_revision();
  return message.SerializeAsString();
}

std::vector<ServerId> ServersOf(const ShardRecord& record) {
  std::set<ServerId> servers;
  if (record.primary.server != 0) servers.insert(record.primary.server);
  for (const Member& m : record.members) servers.insert(m.server);
  for (const Member& m : record.learners) servers.insert(m.server);
  for (const Member& m : record.base) servers.insert(m.server);
  for (const PassedOver& passed : record.passed_over) servers.insert(passed.server);
  return {servers.begin(), servers.end()};
}

v1::MoveControl ClusterState::DefaultMoveControl() {
  v1::MoveControl control;
  control.mutable_limits()->set_bytes_per_s(kTransferBytesPerSecond);
  control.mutable_limits()->set_pull_p99_ms_max(kTransferPullP99MsMax);
  control.mutable_rebalance()->set_on(true);
  return control;
}

absl::Status ClusterState::Reset(const std::vector<KeyValue>& kvs) {
  *this = ClusterState();
  // Tables first: a shard is an orphan only if no record has its table.
  for (const bool tables : {true, false}) {
    for (const KeyValue& kv : kvs) {
      if (absl::StartsWith(kv.key, keys::kTables) != tables) continue;
      NoteServing(kv.key, kv.mod_revision);
      HOTBED_RETURN_IF_ERROR(Put(kv.key, kv.value, kv.mod_revision));
    }
  }
  changes_.clear();
  changes_after_ = plan_revision_;
  return absl::OkStatus();
}

void ClusterState::Apply(const std::vector<Op>& ops, uint64_t revision) {
  HOTBED_CHECK(revision >= plan_revision_) << revision << " after " << plan_revision_;
  for (const Op& op : ops) {
    NoteServing(op.key, revision);
    if (op.kind == Op::Kind::kDelete) {
      Delete(op.key, revision);
      continue;
    }
    const absl::Status s = Put(op.key, op.value, revision);
    HOTBED_CHECK(s.ok()) << s.ToString();
  }
}

Compare ClusterState::Unchanged(const std::string& key) const {
  auto it = mod_revisions_.find(key);
  return {key, it == mod_revisions_.end() ? 0 : it->second};
}

absl::Status ClusterState::Put(const std::string& key, const std::string& value,
                               uint64_t revision) {
  mod_revisions_[key] = revision;
  absl::string_view rest = key;
  bool decoded = true;
  if (key == keys::kClusterKey) {
    cluster_id_ = value;
  } else if (key == keys::kFormatKey) {
    format_ = value;
  } else if (key == keys::kLeaderKey) {
    leader_ = value;
    changes_.clear();
    changes_after_ = plan_revision_ = std::max(plan_revision_, revision);
  } else if (key == keys::kGenerationKey) {
    decoded = absl::SimpleAtoi(value, &generation_);
  } else if (key == keys::kRevisionsKey) {
    decoded = absl::SimpleAtoi(value, &revisions_before_);
  } else if (key == keys::kGivenKey) {
    decoded = given_before_.ParseFromString(value);
  } else if (key == keys::kTableCounter) {
    decoded = absl::SimpleAtoi(value, &counters_.tables);
  } else if (key == keys::kServerCounter) {
    decoded = absl::SimpleAtoi(value, &counters_.servers);
  } else if (key == keys::kSessionCounter) {
    decoded = absl::SimpleAtoi(value, &counters_.sessions);
  } else if (key == keys::kMoveCounter) {
    decoded = absl::SimpleAtoi(value, &counters_.moves);
  } else if (key == keys::kMovesKey) {
    decoded = move_control_.ParseFromString(value);
  } else if (key == keys::kCheckpointScheduleKey) {
    decoded = checkpoint_schedule_.emplace().ParseFromString(value);
  } else if (absl::StartsWith(rest, keys::kGoals) || absl::StartsWith(rest, keys::kCuts)) {
    return PutGoalOrCut(key, value);
  } else if (absl::StartsWith(rest, keys::kEvents)) {
    v1::ClusterEvent event;
    decoded = event.ParseFromString(value) && keys::Event(event.number()) == key;
    if (decoded) events_[event.number()] = std::move(event);
  } else if (absl::StartsWith(rest, keys::kTables)) {
    return PutTable(key, value, revision);
  } else if (absl::StartsWith(rest, keys::kShards)) {
    return PutShard(key, value, revision);
  } else if (absl::ConsumePrefix(&rest, keys::kNames)) {
    decoded = absl::SimpleAtoi(value, &names_[std::string(rest)]);
  } else if (absl::ConsumePrefix(&rest, keys::kDropped)) {
    TableId id = 0;
    decoded = absl::SimpleAtoi(rest, &id);
    dropped_[id] = value;
    Note({revision, Change::Kind::kTableDropped, id, {}});
  } else if (absl::StartsWith(rest, keys::kServers)) {
    v1::ServerInfo info;
    decoded = info.ParseFromString(value) && keys::Server(info.server()) == key;
    if (!decoded) return Damaged(key);
    Note({revision, Change::Kind::kServer, info.server(), {}});
    servers_[info.server()] = std::move(info);
  } else if (absl::StartsWith(rest, keys::kLeftOut)) {
    v1::RegisterServerRequest said;
    decoded = said.ParseFromString(value) && keys::LeftOut(said.server()) == key;
    if (decoded) left_out_[said.server()] = std::move(said);
  } else if (absl::ConsumePrefix(&rest, keys::kSessions)) {
    v1::OpenSessionReply session;
    decoded = session.ParseFromString(value);
    sessions_[std::string(rest)] = {session.session(), session.incarnation()};
  } else if (keys::IsOfServing(rest)) {
    return PutServed(key, value);
  } else if (absl::ConsumePrefix(&rest, keys::kGroups)) {
    v1::GroupCommit commit;
    decoded = commit.ParseFromString(value) && commit.group() == rest;
    if (decoded) groups_[std::string(rest)] = std::move(commit);
  }
  return decoded ? absl::OkStatus() : Damaged(key);
}

absl::Status ClusterState::PutServed(const std::string& key, const std::string& value) {
  absl::string_view model = key;
  if (key == keys::kVersionChoiceKey || absl::ConsumePrefix(&model, keys::kVersionChoices)) {
    v1::VersionChoice choice;
    if (!choice.ParseFromString(value)) return Damaged(key);
    if (key == keys::kVersionChoiceKey) model = keys::kDefaultModel;
    choice.set_model(std::string(model));
    version_choices_[choice.model()] = std::move(choice);
    return absl::OkStatus();
  }
  if (absl::StartsWith(key, keys::kVersions)) {
    v1::ServedVersion version;
    if (!version.ParseFromString(value) || keys::Version(version.number()) != key) {
      return Damaged(key);
    }
    if (version.model().empty()) version.set_model(keys::kDefaultModel);
    versions_[version.number()] = std::move(version);
    return absl::OkStatus();
  }
  v1::ServedTable table;
  if (!table.ParseFromString(value) || keys::Served(table.table()) != key) return Damaged(key);
  served_[table.table()] = std::move(table);
  return absl::OkStatus();
}

absl::Status ClusterState::PutGoalOrCut(const std::string& key, const std::string& value) {
  if (absl::StartsWith(key, keys::kCuts)) {
    v1::ShardCut cut;
    if (!cut.ParseFromString(value) || keys::Cut(ShardId::FromPacked(cut.shard())) != key) {
      return Damaged(key);
    }
    cuts_[cut.shard()] = std::move(cut);
    return absl::OkStatus();
  }
  v1::ShardGoal goal;
  if (!goal.ParseFromString(value) || keys::Goal(ShardId::FromPacked(goal.shard())) != key) {
    return Damaged(key);
  }
  goals_[goal.shard()] = std::move(goal);
  return absl::OkStatus();
}

absl::Status ClusterState::PutTable(const std::string& key, const std::string& value,
                                    uint64_t revision) {
  v1::TableSpec spec;
  if (!spec.ParseFromString(value) || keys::Table(spec.id()) != key) return Damaged(key);
  const TableId id = spec.id();
  Note({revision, Change::Kind::kTable, id, {}});
  CountHeldOfTable(id, false);
  const bool is_new = tables_.insert_or_assign(id, std::move(spec)).second;
  counted_.reset();
  CountHeldOfTable(id, true);
  if (!is_new) return absl::OkStatus();
  orphans_.erase(id);
  // The table's shards were written before the table and become visible with it.
  for (const ShardRecord* record : ShardsOfTable(id)) {
    Note({revision, Change::Kind::kShard, record->shard.packed(), ServersOf(*record)});
  }
  return absl::OkStatus();
}

// Those that have a replica of the shard, or may have one still.
void ClusterState::AddServersOf(ShardId shard, std::vector<ServerId>* servers) const {
  if (const auto it = shards_.find(shard.packed()); it != shards_.end()) {
    const std::vector<ServerId> named = ServersOf(it->second);
    servers->insert(servers->end(), named.begin(), named.end());
  }
  if (const auto it = left_.find(shard.packed()); it != left_.end()) {
    servers->insert(servers->end(), it->second.begin(), it->second.end());
  }
}

absl::Status ClusterState::PutShard(const std::string& key, const std::string& value,
                                    uint64_t revision) {
  v1::ShardRecord message;
  if (!message.ParseFromString(value)) return Damaged(key);
  absl::StatusOr<ShardRecord> decoded = FromProto(message);
  if (!decoded.ok() || keys::Shard(decoded->shard) != key) return Damaged(key);
  ShardRecord& record = *decoded;
  record.revision = revisions_before_ + revision;
  const uint64_t packed = record.shard.packed();
  std::vector<ServerId> servers = ServersOf(record);
  auto [it, added] = shards_.try_emplace(packed);
  if (!added) {
    // A server that left may delete its replica only after it has read a later, active record.
    std::vector<ServerId>& left = left_[packed];
    std::vector<ServerId> before = ServersOf(it->second);
    if (record.merge.base.lsn != 0) AddServersOf(record.merge.with, &before);
    for (const ServerId s : before) {
      servers.push_back(s);
      if (!record.Names(s) && !Contains(left, s)) left.push_back(s);
    }
    servers.insert(servers.end(), left.begin(), left.end());
    if (left.empty() || record.active) left_.erase(packed);
    IndexShard(it->second, false);
  }
  if (added || !HeldAlike(it->second, record)) {
    if (!added) CountHeld(it->second, false);
    CountHeld(record, true);
  }
  std::sort(servers.begin(), servers.end());
  servers.erase(std::unique(servers.begin(), servers.end()), servers.end());
  IndexShard(record, true);
  it->second = std::move(record);
  if (tables_.contains(it->second.shard.table)) {
    Note({revision, Change::Kind::kShard, packed, std::move(servers)});
  } else if (added) {
    ++orphans_[it->second.shard.table];
  }
  return absl::OkStatus();
}

// Records that were deleted before the leader began are not known by their revision.
void ClusterState::NoteServing(const std::string& key, uint64_t revision) {
  if (key == keys::kLeaderKey || key == keys::kVersionChoiceKey ||
      absl::StartsWith(key, keys::kServing) || absl::StartsWith(key, keys::kVersions) ||
      absl::StartsWith(key, keys::kVersionChoices)) {
    serving_revision_ = std::max(serving_revision_, revision);
  }
}

void ClusterState::Delete(const std::string& key, uint64_t revision) {
  mod_revisions_.erase(key);
  absl::string_view rest = key;
  if (absl::ConsumePrefix(&rest, keys::kTables)) {
    TableId id = 0;
    HOTBED_CHECK(absl::SimpleAtoi(rest, &id));
    CountHeldOfTable(id, false);
    tables_.erase(id);
    counted_.reset();
    const size_t shards = ShardsOfTable(id).size();
    if (shards > 0) orphans_[id] = shards;
  } else if (absl::ConsumePrefix(&rest, keys::kNames)) {
    names_.erase(std::string(rest));
  } else if (absl::ConsumePrefix(&rest, keys::kDropped)) {
    TableId id = 0;
    HOTBED_CHECK(absl::SimpleAtoi(rest, &id));
    dropped_.erase(id);
  } else if (absl::ConsumePrefix(&rest, keys::kShards)) {
    ShardId id;
    HOTBED_CHECK(keys::ParseShard(rest, &id));
    EraseShard(id);
  } else if (absl::ConsumePrefix(&rest, keys::kGoals)) {
    ShardId id;
    HOTBED_CHECK(keys::ParseShard(rest, &id));
    goals_.erase(id.packed());
  } else if (absl::ConsumePrefix(&rest, keys::kCuts)) {
    ShardId id;
    HOTBED_CHECK(keys::ParseShard(rest, &id));
    cuts_.erase(id.packed());
  } else if (key == keys::kCheckpointScheduleKey) {
    checkpoint_schedule_.reset();
  } else if (absl::ConsumePrefix(&rest, keys::kEvents)) {
    uint64_t number = 0;
    HOTBED_CHECK(absl::SimpleAtoi(rest, &number));
    events_.erase(number);
  } else if (absl::ConsumePrefix(&rest, keys::kLeftOut)) {
    ServerId server = 0;
    HOTBED_CHECK(absl::SimpleAtoi(rest, &server));
    left_out_.erase(server);
  } else if (absl::ConsumePrefix(&rest, keys::kServing)) {
    TableId id = 0;
    HOTBED_CHECK(absl::SimpleAtoi(rest, &id));
    served_.erase(id);
  } else if (absl::ConsumePrefix(&rest, keys::kVersionChoices)) {
    version_choices_.erase(std::string(rest));
  } else if (absl::ConsumePrefix(&rest, keys::kVersions)) {
    uint64_t number = 0;
    HOTBED_CHECK(absl::SimpleAtoi(rest, &number));
    versions_.erase(number);
  } else if (absl::ConsumePrefix(&rest, keys::kSessions)) {
    sessions_.erase(std::string(rest));
  }
}

void ClusterState::EraseShard(ShardId id) {
  auto it = shards_.find(id.packed());
  if (it == shards_.end()) return;
  IndexShard(it->second, false);
  CountHeld(it->second, false);
  left_.erase(it->first);
  shards_.erase(it);
  auto orphans = orphans_.find(id.table);
  if (orphans != orphans_.end() && --orphans->second == 0) orphans_.erase(orphans);
}

void ClusterState::IndexShard(const ShardRecord& record, bool add) {
  for (const ServerId server : ServersOf(record)) {
    if (add) {
      shards_of_server_[server].insert(record.shard.packed());
    } else {
      shards_of_server_[server].erase(record.shard.packed());
    }
  }
  if (record.primary.server != 0) {
    primaries_of_server_[record.primary.server] += add ? 1 : -1;
  }
}

void ClusterState::CountHeld(const ShardRecord& record, bool add) {
  const auto table = tables_.find(record.shard.table);
  if (table == tables_.end()) return;
  if (!counted_.has_value() || counted_->id != record.shard.table) {
    absl::StatusOr<TableSpec> spec = FromProto(table->second);
    if (!spec.ok()) return;  // written by a later version
    counted_ = *std::move(spec);
  }
  const uint64_t bytes = RangeBytes(*counted_, record.range);
  for (const Member& member : record.members) {
    HeldBytes& held = held_[member.server];
    held.all += add ? bytes : -bytes;
    if (member.server == record.primary.server) held.primary += add ? bytes : -bytes;
  }
}

void ClusterState::CountHeldOfTable(TableId table, bool add) {
  if (!tables_.contains(table)) return;
  for (const ShardRecord* record : ShardsOfTable(table)) CountHeld(*record, add);
}

ClusterState::HeldBytes ClusterState::HeldBy(ServerId server) const {
  const auto it = held_.find(server);
  return it == held_.end() ? HeldBytes() : it->second;
}

void ClusterState::Note(Change change) {
  plan_revision_ = std::max(plan_revision_, change.revision);
  changes_.push_back(std::move(change));
  while (changes_.size() > kChangesMax) {
    // Whole revisions: a map must not carry half of a transaction.
    changes_after_ = changes_.front().revision;
    while (!changes_.empty() && changes_.front().revision <= changes_after_) changes_.pop_front();
  }
}

uint64_t ClusterState::StepBefore() const {
  uint64_t last = 0;
  for (const v1::TableStep& step : given_before_.steps()) last = std::max(last, step.step());
  return last;
}

const v1::TableSpec* ClusterState::FindTable(const std::string& name) const {
  auto id = names_.find(name);
  if (id == names_.end()) return nullptr;
  auto table = tables_.find(id->second);
  return table == tables_.end() ? nullptr : &table->second;
}

const v1::ServerInfo* ClusterState::FindServer(const std::string& name) const {
  for (const auto& [id, info] : servers_) {
    if (info.name() == name) return &info;
  }
  return nullptr;
}

const v1::ShardGoal* ClusterState::FindGoal(uint64_t packed) const {
  auto it = goals_.find(packed);
  return it == goals_.end() ? nullptr : &it->second;
}

std::string ClusterState::ShardName(uint64_t packed) const {
  const ShardId id = ShardId::FromPacked(packed);
  auto it = tables_.find(id.table);
  if (it == tables_.end()) return absl::StrCat(id.table, "/", id.index);
  return absl::StrCat(it->second.name(), "/", id.index);
}

std::string ClusterState::ServerName(ServerId server) const {
  auto it = servers_.find(server);
  return it == servers_.end() ? absl::StrCat("server ", server) : it->second.name();
}

std::string ClusterState::WithServerNames(absl::string_view text) const {
  std::vector<std::string> words;
  for (const absl::string_view word : absl::StrSplit(text, ' ')) {
    absl::string_view number = word;
    const size_t slash = word.find('/');
    ServerId server = 0;
    const bool member = slash != word.npos && absl::ConsumePrefix(&number, "s") &&
                        absl::SimpleAtoi(number.substr(0, slash - 1), &server) &&
                        servers_.contains(server);
    words.push_back(member ? absl::StrCat(ServerName(server), word.substr(slash))
                           : std::string(word));
  }
  return absl::StrJoin(words, " ");
}

std::vector<const ShardRecord*> ClusterState::ShardsOfTable(TableId table) const {
  std::vector<const ShardRecord*> records;
  for (auto it = shards_.lower_bound(ShardId{table, 0}.packed());
       it != shards_.end() && TableOf(it->first) == table; ++it) {
    records.push_back(&it->second);
  }
  return records;
}

const ShardRecord* ClusterState::FindVisibleShard(uint64_t packed) const {
  auto it = shards_.find(packed);
  return it == shards_.end() || !tables_.contains(TableOf(packed)) ? nullptr : &it->second;
}

const absl::btree_set<uint64_t>& ClusterState::ShardsOfServer(ServerId server) const {
  static const auto* const kNone = new absl::btree_set<uint64_t>();
  auto it = shards_of_server_.find(server);
  return it == shards_of_server_.end() ? *kNone : it->second;
}

uint64_t ClusterState::PrimariesOf(ServerId server) const {
  auto it = primaries_of_server_.find(server);
  return it == primaries_of_server_.end() ? 0 : it->second;
}

std::vector<ShardId> ClusterState::Orphans(size_t limit) const {
  std::vector<ShardId> out;
  for (const auto& [table, count] : orphans_) {
    for (const ShardRecord* record : ShardsOfTable(table)) {
      if (out.size() == limit) return out;
      out.push_back(record->shard);
    }
  }
  return out;
}

std::optional<std::vector<const ClusterState::Change*>> ClusterState::ChangesSince(
    uint64_t revision) const {
  if (revision < FirstRevision() + changes_after_ || revision > plan_revision()) {
    return std::nullopt;
  }
  revision -= FirstRevision();
  auto first = std::upper_bound(changes_.begin(), changes_.end(), revision,
                                [](uint64_t r, const Change& c) { return r < c.revision; });
  std::vector<const Change*> out;
  for (auto it = first; it != changes_.end(); ++it) out.push_back(&*it);
  return out;
}

}  // namespace hotbed
