// A file of a server's spill tier is damaged while it runs, and a compaction meets it: the server
// gets well by itself where others have replicas of all that it holds; nothing is lost where not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <system_error>

#include "absl/time/clock.h"
#include "common/files/file_system.h"
#include "server/host/catalog_file.h"
#include "tests/shard/replica_pushes.h"

namespace hotbed {
namespace tier_renewal_test {

using ::testing::HasSubstr;

class TierRenewalTest : public ReplicaTest {
 protected:
  // A log so small that rows are written back and flushed all the time; files are merged then.
  static ShardHostOptions Options() {
    ShardHostOptions options = ReplicaCluster::DefaultOptions();
    options.log_bytes_max = 128 << 10;
    options.replica_tail_bytes = 8 << 10;  // else the log would be enough to begin again
    return options;
  }
  // One byte of the first rows in each file of rows that is there now and was not when this was
  // called before; returns how many.
  int Damage(ServerId server) {
    int damaged = 0;
    std::error_code error;
    for (const auto& entry :
         std::filesystem::directory_iterator(cluster_->data_dir(server) + "/spill/rows", error)) {
      if (entry.path().extension() != ".sst" || damaged_.contains(entry.path())) continue;
      std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
      file.seekg(200);
      const int byte = file.get();
      if (byte < 0) continue;  // merged away just now
      file.seekp(200);
      file.put(static_cast<char>(byte ^ 0x10));
      if (!file.good()) continue;
      damaged_.insert(entry.path());
      ++damaged;
    }
    return damaged;
  }
  // Does as the coordinator with replicas that are reported lost: the others continue without them.
  void LeaveOutWhatIsLost(ServerId server) {
    for (const ShardHost::LostReplica& lost : cluster_->host(server)->LostReplicas()) {
      const ShardRecord record = cluster_->record(lost.shard);
      if (record.epoch != lost.epoch || record.members.size() < 2) continue;
      EXPECT_THAT(lost.why, HasSubstr("not served"));
      cluster_->Change(lost.shard, /*bump=*/true, [&](ShardRecord* next) {
        std::erase_if(next->members, [&](const Member& m) { return m.server == server; });
        if (next->primary.server == server) next->primary = next->members.front();
      });
    }
  }
  // A merge that had read the files before they were damaged replaces them by sound ones: for as
  // long as the server has not met any damage, the files of now are damaged too.
  void DamageUntilMet(ServerId server) {
    const HostStatus status = cluster_->host(server)->Status();
    if (status.numbers["spill_renewals"] == 0 && !status.read_only) Damage(server);
  }
  bool Renewed(ServerId server) {
    DamageUntilMet(server);
    LeaveOutWhatIsLost(server);
    return cluster_->host(server)->Status().numbers["spill_renewals"] > 0;
  }

  std::set<std::string> damaged_;  // paths
};

TEST_F(TierRenewalTest, AServerWhoseReplicasOthersHaveTooGetsWellByItself) {
  for (const ServerId victim : {2u, 1u}) {  // a backup, a primary
    random_ = Random(seed_.value());
    step_ = 0;
    Begin(Table(OptimizerKind::kAdam), {1, 2}, 3, Options());
    Push(400);
    ASSERT_GT(Damage(victim), 0) << "nothing was flushed";
    PushWhile([&] {
      cluster_->SettleUntil([&] { return Renewed(victim); }, "the tier is empty again");
      EXPECT_FALSE(cluster_->host(victim)->Status().read_only);
      for (const ShardId shard : cluster_->shards()) {
        EXPECT_FALSE(cluster_->IsMember(shard, victim));
        cluster_->AddLearner(shard, victim);
        cluster_->SettleUntil([&] { return cluster_->IsMember(shard, victim); }, "it is back");
      }
      cluster_->Settle();
    });
    Push(200);
    EXPECT_EQ(cluster_->host(victim)->Status().numbers["spill_renewals"], 1u);
    EXPECT_GE(cluster_->host(victim)->Status().numbers["snapshots_received"], uint64_t{kShards})
        << "all rows";
    ExpectAsAlone();
  }
}

// Its primary may have told that it holds everything: were its rows gone, it could be made a member
// without them.
TEST_F(TierRenewalTest, ALearnerThatIsCountedOnKeepsItsRowsUntilItIsTakenOut) {
  Begin(Table(OptimizerKind::kAdam), {1}, 2, Options());
  cluster_->GrantJoins(false);
  for (const ShardId shard : cluster_->shards()) cluster_->AddLearner(shard, 2);
  cluster_->SettleUntil([&] { return cluster_->host(1)->JoinsReady().size() == kShards; },
                        "they are counted on");
  Push(400);
  ASSERT_GT(Damage(2), 0) << "nothing was flushed";
  PushWhile([&] {
    cluster_->SettleUntil(
        [&] {
          DamageUntilMet(2);
          return cluster_->host(2)->LostReplicas().size() == kShards;
        },
        "they are called lost");
    const absl::Time end = absl::Now() + absl::Milliseconds(300);
    cluster_->SettleUntil([&] { return absl::Now() > end; }, "there was time to empty the tier");
    EXPECT_EQ(cluster_->host(2)->Status().numbers["spill_renewals"], 0u);
    // As the coordinator does then; until then, what is pushed waits for it.
    for (const ShardId shard : cluster_->shards()) {
      cluster_->Change(shard, true, [](ShardRecord* record) { record->learners.clear(); });
    }
    cluster_->SettleUntil([&] { return cluster_->host(2)->Status().numbers["spill_renewals"] > 0; },
                          "the tier is empty again");
  });
  cluster_->GrantJoins(true);
  for (const ShardId shard : cluster_->shards()) {
    cluster_->AddLearner(shard, 2);
    cluster_->SettleUntil([&] { return cluster_->IsMember(shard, 2); }, "it has joined");
  }
  cluster_->Settle();
  Push(50);
  ExpectAsAlone();
}

// A kill in between leaves a catalog without complete shards, and a part of the rows.
TEST_F(TierRenewalTest, AKillWhileTheTierBeginsAnewLeavesNoCopyThatSeemsWhole) {
  Begin(Table(OptimizerKind::kAdam), {1, 2}, 3, Options());
  Push(100);
  ASSERT_TRUE(cluster_->Stop(2).ok());
  const std::string path = cluster_->data_dir(2) + "/CATALOG";
  const auto marks =
      Marks::Open(cluster_->data_dir(2) + "/MARKS", FileSystem::Real(), /*make=*/false);
  ASSERT_TRUE(marks.ok()) << marks.status();
  KeptFile file(path, FileSystem::Real(), {.marks = marks->get(), .field = Marks::kCatalog});
  auto catalog = Catalog::Load(&file);
  ASSERT_TRUE(catalog.ok()) << catalog.status();
  ASSERT_EQ(catalog->shards.size(), size_t{kShards});
  for (const auto& [shard, range] : catalog->shards) catalog->installing.insert(shard);
  ASSERT_TRUE(catalog->Save(&file).ok());
  std::ofstream(cluster_->data_dir(2) + "/spill/RENEWING").put('\n');
  ASSERT_TRUE(std::filesystem::remove(cluster_->data_dir(2) + "/spill/rows/CURRENT"));
  cluster_->FailOver();
  cluster_->Settle();
  cluster_->Start(2);
  PushWhile([&] {
    for (const ShardId shard : cluster_->shards()) {
      cluster_->AddLearner(shard, 2);
      cluster_->SettleUntil([&] { return cluster_->IsMember(shard, 2); }, "it is back");
    }
    cluster_->Settle();
  });
  EXPECT_GE(cluster_->host(2)->Status().numbers["snapshots_received"], uint64_t{kShards})
      << "all rows";
  EXPECT_FALSE(std::filesystem::exists(cluster_->data_dir(2) + "/spill/RENEWING"));
  ExpectAsAlone();
}

TEST_F(TierRenewalTest, WhereNobodyElseHasAReplicaNothingIsDeletedAndItIsSaid) {
  TableSpec table = Table(OptimizerKind::kAdam, 1);
  Begin(table, {1}, 2, Options());
  Push(400);
  const std::vector<float> before = cluster_->PullAll(1, AllIds());
  ASSERT_GT(Damage(1), 0);
  std::string said;
  ReplicaClient other(cluster_.get(), 8);
  const int64_t end_ns = Clock::Real()->NowNs() + 30'000'000'000;
  uint64_t seq = 0;
  while (said.empty() && Clock::Real()->NowNs() < end_ns) {
    const Batch batch = MakeBatch(&random_, cluster_->shards()[0]);
    const SegmentResult result =
        other.TryPush(cluster_->shards()[0], seq + 1, seq, seq == 0, batch.ids, batch.gradients);
    if (result.code == SegmentCode::kOk) ++seq;
    DamageUntilMet(1);
    const HostStatus status = cluster_->host(1)->Status();
    if (status.read_only && status.read_only_reason.find("no replica") != std::string::npos) {
      said = status.read_only_reason;
    }
  }
  EXPECT_THAT(said, HasSubstr("of table copied"));
  EXPECT_THAT(said, HasSubstr("and 1 others have no replica on another server"));
  EXPECT_EQ(cluster_->host(1)->Status().numbers["spill_renewals"], 0u);
  // The shard that took none of these pushes has all its rows in memory, and answers.
  const auto rows = cluster_->Pull(1, cluster_->shards()[1], {kRows / 2, kRows / 2 + 1});
  EXPECT_EQ(rows.code, SegmentCode::kOk);
  EXPECT_TRUE(std::equal(rows.rows.begin(), rows.rows.end(), before.begin() + kRows / 2 * kDim));
}

}  // namespace tier_renewal_test
}  // namespace hotbed
