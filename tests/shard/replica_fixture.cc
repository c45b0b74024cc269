#include "tests/shard/replica_fixture.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "row_math/position.h"
#include "server/shard/shard.h"
#include "tests/shard/attach_shard.h"

namespace hotbed {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kSettleNsMax = 30 * kSecond;

}  // namespace

// --- cluster

ShardHostOptions ReplicaCluster::DefaultOptions() {
  ShardHostOptions options;
  options.host_bytes = 64ull << 20;
  options.hot_bytes = 8ull << 20;
  options.log_segment_bytes = 1 << 20;
  options.snapshot_file_bytes_min =
      1;  // transfers are small here, and are to go the way of large ones
  return options;
}

ReplicaCluster::ReplicaCluster(const std::vector<TableSpec>& tables, uint32_t shards, uint64_t seed,
                               const ShardHostOptions& options)
    : tables_([&] {
        std::map<TableId, TableSpec> by_id;
        for (const TableSpec& table : tables) by_id[table.id] = table;
        return by_id;
      }()),
      options_(options),
      network_(seed) {
  absl::MutexLock lock(&mu_);
  for (const TableSpec& table : tables) {
    const uint64_t positions = table.hashed ? kBuckets : table.rows;
    for (uint32_t i = 0; i < shards; ++i) {
      ShardRecord record;
      record.shard = {table.id, i};
      record.range = {positions * i / shards, positions * (i + 1) / shards, 0, table.dim};
      records_[record.shard] = record;
    }
  }
}

ReplicaCluster::~ReplicaCluster() {
  while (!servers_.empty()) Kill(servers_.begin()->first);
}

std::string ReplicaCluster::data_dir(ServerId server) const {
  return absl::StrCat(dir_.path(), "/s", server);
}

void ReplicaCluster::Start(ServerId server, FileSystem* files) {
  ShardHostOptions options = options_;
  options.data_dir = data_dir(server);
  options.files = files;
  auto opened = ShardHost::Open(options, Clock::Real());
  HOTBED_CHECK(opened.ok()) << opened.status();
  {
    absl::MutexLock lock(&hosts_mu_);
    servers_[server] = {{server, ++incarnation_}, *std::move(opened), {}};
  }
  Server& one = servers_.at(server);
  HOTBED_CHECK(one.host->SetIdentity({server, "test"}).ok());
  one.remembered = one.host->Recollect();
  one.host->SetIncarnation(one.self.incarnation);
  one.host->SetReplicaNetwork(network_.Attach(one.self, one.host.get()));
  one.host->SetLease(Clock::Real()->NowNs() + 3600 * kSecond);
  std::vector<ShardRecord> all;
  {
    absl::MutexLock lock(&mu_);
    for (const auto& [shard, record] : records_) {
      if (record.epoch != 0) all.push_back(record);
    }
  }
  Tell(all);
}

void ReplicaCluster::Kill(ServerId server) {
  network_.Detach(servers_.at(server).self);
  std::unique_ptr<ShardHost> host;  // goes last, without the lock
  {
    absl::MutexLock lock(&hosts_mu_);
    host = std::move(servers_.at(server).host);
    servers_.erase(server);
  }
}

absl::Status ReplicaCluster::Stop(ServerId server) {
  network_.Detach(servers_.at(server).self);
  const absl::Status stopped = servers_.at(server).host->Shutdown();
  std::unique_ptr<ShardHost> host;
  {
    absl::MutexLock lock(&hosts_mu_);
    host = std::move(servers_.at(server).host);
    servers_.erase(server);
  }
  return stopped;
}

void ReplicaCluster::Tell(const std::vector<ShardRecord>& records) {
  std::vector<TableSpec> tables;
  for (const auto& [id, table] : tables_) tables.push_back(table);
  for (auto& [id, server] : servers_) {
    const absl::Status told = server.host->ApplyAssignment(tables, records, {});
    if (!told.ok()) HOTBED_CHECK(absl::IsResourceExhausted(told)) << told;
  }
}

void ReplicaCluster::Assign(const std::vector<ServerId>& members) {
  std::vector<ShardRecord> changed;
  {
    absl::MutexLock lock(&mu_);
    for (auto& [shard, record] : records_) {
      ++record.epoch;
      record.revision = ++revision_;
      record.members.clear();
      for (const ServerId server : members) record.members.push_back(servers_.at(server).self);
      record.primary = record.members.front();
      record.active = false;
      changed.push_back(record);
    }
  }
  Tell(changed);
  Settle();
}

ShardRecord ReplicaCluster::record(ShardId shard) const {
  absl::MutexLock lock(&mu_);
  return records_.at(shard);
}

std::vector<ShardId> ReplicaCluster::shards() const {
  absl::MutexLock lock(&mu_);
  std::vector<ShardId> ids;
  for (const auto& [shard, record] : records_) ids.push_back(shard);
  return ids;
}

void ReplicaCluster::Change(ShardId shard, bool bump,
                            const std::function<void(ShardRecord*)>& change) {
  ShardRecord changed;
  {
    absl::MutexLock lock(&mu_);
    ShardRecord& record = records_.at(shard);
    change(&record);
    record.revision = ++revision_;
    if (bump) {
      ++record.epoch;
      record.active = false;
    }
    changed = record;
  }
  Tell({changed});
}

void ReplicaCluster::AddLearner(ShardId shard, ServerId server) {
  const Member learner = servers_.at(server).self;
  Change(shard, /*bump=*/false, [&](ShardRecord* record) { record->learners = {learner}; });
}

void ReplicaCluster::SwitchAndDrop(ShardId shard, ServerId to, ServerId from) {
  Change(shard, /*bump=*/true, [&](ShardRecord* record) {
    std::erase_if(record->members, [&](const Member& m) { return m.server == from; });
    for (const Member& m : record->members) {
      if (m.server == to) record->primary = m;
    }
  });
}

void ReplicaCluster::FailOver() {
  const auto live = [this](const Member& m) {
    const auto it = servers_.find(m.server);
    return it != servers_.end() && it->second.self == m;
  };
  for (const ShardId shard : shards()) {
    const ShardRecord before = record(shard);
    std::vector<Member> members;
    for (const Member& m : before.members) {
      if (live(m)) members.push_back(m);
    }
    std::vector<Member> learners;
    for (const Member& m : before.learners) {
      if (live(m)) learners.push_back(m);
    }
    if (members.empty() && !before.active) {
      for (const Member& m : before.base) {
        if (live(m)) members.push_back(m);
      }
    }
    // Nobody: a member that came back with its log.
    for (const Member& m : before.members) {
      if (!members.empty()) break;
      const auto it = servers_.find(m.server);
      if (it != servers_.end()) members.push_back(it->second.self);
    }
    if (members == before.members && learners == before.learners) continue;
    HOTBED_CHECK(!members.empty()) << shard.ToString();
    const bool bump = !(members == before.members);
    Change(shard, bump, [&](ShardRecord* record) {
      record->members = members;
      record->learners = learners;
      if (!live(record->primary)) record->primary = members.front();
    });
  }
}

bool ReplicaCluster::AllActive() const {
  absl::MutexLock lock(&mu_);
  return std::all_of(records_.begin(), records_.end(),
                     [](const auto& entry) { return entry.second.active; });
}

bool ReplicaCluster::IsMember(ShardId shard, ServerId server) const {
  const ShardRecord found = record(shard);
  return std::any_of(found.members.begin(), found.members.end(),
                     [&](const Member& m) { return m.server == server; });
}

// The compare-and-sets that servers ask for.
void ReplicaCluster::Grant() {
  std::vector<ShardRecord> changed;
  for (auto& [id, server] : servers_) {
    for (const ShardHost::ShardEpoch& asks : server.host->ShardsToActivate()) {
      absl::MutexLock lock(&mu_);
      ShardRecord& record = records_.at(asks.shard);
      if (record.epoch != asks.epoch || record.active || !(record.primary == server.self)) continue;
      record.active = true;
      record.base = record.members;
      record.revision = ++revision_;
      changed.push_back(record);
    }
    for (const ShardHost::JoinReady& ready : server.host->JoinsReady()) {
      absl::MutexLock lock(&mu_);
      ShardRecord& record = records_.at(ready.shard);
      const auto it = std::find(record.learners.begin(), record.learners.end(), ready.member);
      if (record.epoch != ready.epoch || !record.active || it == record.learners.end()) continue;
      if (!grant_joins_) continue;
      record.learners.erase(it);
      record.members.push_back(ready.member);
      ++record.epoch;
      record.active = false;
      record.revision = ++revision_;
      changed.push_back(record);
    }
  }
  if (!changed.empty()) Tell(changed);
}

void ReplicaCluster::SettleUntil(const std::function<bool()>& done, const char* what) {
  const int64_t end_ns = Clock::Real()->NowNs() + kSettleNsMax;
  while (!done()) {
    if (Clock::Real()->NowNs() >= end_ns) {
      std::string state;
      for (const auto& [id, server] : servers_) {
        for (const ShardStatus& s : server.host->Status().shards) {
          absl::StrAppend(&state, "\n  server ", id, " ", s.shard.ToString(), " epoch ", s.epoch,
                          s.primary ? " primary" : "", s.active ? " active" : "", " applied ",
                          s.applied_lsn, " commit ", s.commit_lsn, " ", s.error);
        }
      }
      FAIL() << "after " << kSettleNsMax / kSecond << " s it is not so that " << what << state;
    }
    Grant();
    Clock::Real()->SleepNs(1'000'000);
  }
}

void ReplicaCluster::Move(ShardId shard, ServerId from, ServerId to) {
  AddLearner(shard, to);
  SettleUntil([&] { return IsMember(shard, to) && record(shard).active; },
              "the learner has joined");
  SwitchAndDrop(shard, to, from);
  SettleUntil([&] { return record(shard).active; }, "the new primary is active");
}

ShardId ReplicaCluster::ShardOf(TableId table, uint64_t id) const {
  const uint64_t position = tables_.at(table).hashed ? BucketOf(Mix64(id)) : id;
  absl::MutexLock lock(&mu_);
  for (const auto& [shard, r] : records_) {
    if (shard.table == table && position >= r.range.first && position < r.range.limit) return shard;
  }
  HOTBED_CHECK(false) << "id " << id;
  __builtin_unreachable();
}

ReplicaCluster::Rows ReplicaCluster::Pull(ServerId server, ShardId shard,
                                          const std::vector<uint64_t>& ids, Lsn lsn_min,
                                          bool strict, uint32_t staleness_ms_max) {
  Rows out;
  TestPull pull;
  pull.strict = strict;
  pull.staleness_ms_max = staleness_ms_max;
  const uint32_t dim = tables_.at(shard.table).dim;
  out.rows.resize(ids.size() * dim);
  PullSegment& segment = pull.segments.emplace_back();
  segment.shard_id = shard;
  segment.epoch = record(shard).epoch;
  segment.lsn_min = lsn_min;
  segment.ids = ids.data();
  segment.count = static_cast<uint32_t>(ids.size());
  segment.rows = reinterpret_cast<uint8_t*>(out.rows.data());
  const bool up = WithHost(server, [&](ShardHost* host) {
    AttachShard(*host, shard, &pull, &segment);
    host->Pull(&pull);
  });
  if (!up) {
    out.code = SegmentCode::kUnavailable;
    return out;
  }
  pull.done.WaitForNotification();
  out.code = segment.result.code;
  out.lsn = segment.result.lsn;
  return out;
}

std::vector<float> ReplicaCluster::PullAll(TableId table, const std::vector<uint64_t>& ids) {
  const uint32_t dim = tables_.at(table).dim;
  std::vector<float> rows(ids.size() * dim);
  std::map<ShardId, std::pair<std::vector<uint64_t>, std::vector<size_t>>> cut;
  for (size_t i = 0; i < ids.size(); ++i) {
    auto& part = cut[ShardOf(table, ids[i])];
    part.first.push_back(ids[i]);
    part.second.push_back(i);
  }
  for (const auto& [shard, part] : cut) {
    const Rows got = Pull(record(shard).primary.server, shard, part.first);
    EXPECT_EQ(got.code, SegmentCode::kOk) << shard.ToString();
    for (size_t k = 0; k < part.second.size(); ++k) {
      std::memcpy(rows.data() + part.second[k] * dim, got.rows.data() + k * dim, 4 * dim);
    }
  }
  return rows;
}

}  // namespace hotbed
