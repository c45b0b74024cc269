// A row on disk that fails its checksum: its shard is refused, and nothing else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "common/files/byte_order.h"
#include "kv/kv_store.h"
#include "tests/shard/host_fixture.h"
#include "tests/shard/replica_pushes.h"

namespace hotbed {
namespace damaged_row_test {

// Damages a row of table 1 in the data directory of a server that does not run.
void DamageRow(const std::string& data_dir, uint64_t id) {
  KvOptions options;
  options.dir = data_dir + "/spill/rows";
  options.wal = false;
  auto kv = KvStore::Open(options);
  ASSERT_TRUE(kv.ok()) << kv.status();
  std::string key(14, '\0');
  StoreBig32(key.data(), 1);
  StoreBig64(key.data() + 6, id);
  auto record = (*kv)->Get(key);
  ASSERT_TRUE(record.ok()) << record.status();
  record->back() ^= 1;
  auto batch = (*kv)->NewBatch();
  batch->Put(key, *record);
  ASSERT_TRUE((*kv)->Write(batch.get()).ok());
  ASSERT_TRUE((*kv)->Flush().ok());
  MarkRowsOpened(data_dir);
}

class DamagedRowTest : public testing::Test {
 protected:
  static constexpr uint32_t kDim = 256;

  ShardHostOptions Options() {
    ShardHostOptions options;
    options.data_dir = dir_.path();
    options.host_bytes = 64ull << 20;
    options.log_bytes_max = 4ull << 20;
    options.checkpoint_interval_ms = 0;
    return options;
  }
  static TableSpec Countdown(Durability durability) {
    TableSpec table = TestTable(1, "wide", 1000, kDim, OptimizerKind::kSgd);
    table.optimizer.learning_rate = 1.0f;
    table.initializer = {InitializerKind::kZero, 0, 0};
    table.durability = durability;
    return table;
  }
  static std::vector<float> Ones(size_t rows) { return std::vector<float>(rows * kDim, 1.0f); }
  void Damage(uint64_t id) { DamageRow(dir_.path(), id); }
  static SegmentCode PushTo(TestServer* server, uint64_t id) {
    auto push = server->MakePush(8, 1, 1, {id}, Ones(1));
    push->segments[0].seq = 1;
    push->segments[0].open = true;
    server->Run(push.get());
    return push->segments[0].result.code;
  }
  static SegmentCode PullOf(TestServer* server, uint64_t id) {
    auto pull = server->MakePull(1, {id});
    server->Run(pull.get());
    return pull->segments[0].result.code;
  }

  TempDir dir_;
};

TEST_F(DamagedRowTest, ItsRecordsAreKeptAndTheNeighboursGoOnWithinTheLimit) {
  TestServer server(Options(), {Countdown(Durability::kLog)}, 2);
  server.Start();
  TestClient client(&server, 7);
  client.Push(1, 1, {5, 800}, Ones(2));
  ASSERT_TRUE(server.Stop().ok());
  Damage(5);
  server.Start();
  EXPECT_EQ(PushTo(&server, 5), SegmentCode::kUnavailable) << "in the log, and not applied";
  EXPECT_EQ(PullOf(&server, 5), SegmentCode::kCorrupt);
  EXPECT_TRUE(server.host()->Status().shards[0].refused);

  std::vector<uint64_t> ids(200);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = 500 + i;
  constexpr uint64_t kSteps = 60;  // 12 MB through a log of 4 MiB
  for (uint64_t step = 2; step < 2 + kSteps; ++step) {
    client.Push(1, step, ids, Ones(ids.size()));
    if (step % 5 == 0) Clock::Real()->SleepNs(60'000'000);
  }
  const HostStatus status = server.host()->Status();
  EXPECT_GT(status.numbers["log_refused_bytes"], 0u);
  EXPECT_LT(status.numbers["log_bytes"], 2 * Options().log_bytes_max)
      << "what nobody needs behind the refused shard's record is emptied";

  server.Kill();
  server.Start();
  client.ResendLast();
  EXPECT_EQ(server.Pull(1, {500})[0], -static_cast<float>(kSteps));
  EXPECT_EQ(PullOf(&server, 5), SegmentCode::kCorrupt) << "its record is still in the log";
  EXPECT_THAT(server.host()->Status().shards[0].error, testing::HasSubstr("damaged"));

  ASSERT_TRUE(server.host()->ApplyAssignment({}, {}, {1}).ok());
  for (int i = 0; i < 500 && server.host()->Status().numbers["log_refused_bytes"] > 0; ++i) {
    Clock::Real()->SleepNs(20'000'000);
  }
  EXPECT_EQ(server.host()->Status().numbers["log_refused_bytes"], 0u) << "let go with its table";
}

TEST_F(DamagedRowTest, AStopWithADamagedCheckpointShardIsNotClean) {
  TestServer server(Options(), {Countdown(Durability::kCheckpoint)}, 2);
  server.Start();
  TestClient client(&server, 7);
  client.Push(1, 1, {5, 6, 800}, Ones(3));
  ASSERT_TRUE(server.Stop().ok());
  Damage(5);
  server.Start();
  client.Push(1, 2, {6, 800}, Ones(2));
  EXPECT_EQ(PushTo(&server, 5), SegmentCode::kUnavailable);
  const absl::Status stopped = server.Stop();
  EXPECT_EQ(stopped.code(), absl::StatusCode::kFailedPrecondition) << stopped;
  EXPECT_THAT(std::string(stopped.message()), testing::HasSubstr("the one before stays"));
  server.Start();
  EXPECT_EQ(server.Pull(1, {5, 6, 800}), std::vector<float>(3 * kDim, -1.0f))
      << "all of it as the last whole checkpoint has it";
}

class DamagedReplicaTest : public ReplicaTest {};

TEST_F(DamagedReplicaTest, APullThatMeetsItGivesTheReplicaUpAndOthersAnswer) {
  Begin(Table(OptimizerKind::kAdam), {1, 2}, 2);
  Push(5);
  const ShardId shard = cluster_->shards()[0];
  Random first(seed_.value());
  const uint64_t id = MakeBatch(&first, cluster_->shards()[0]).ids.front();  // of the first push

  ASSERT_TRUE(cluster_->Stop(2).ok());
  cluster_->FailOver();
  cluster_->Settle();
  DamageRow(cluster_->data_dir(2), id);
  cluster_->Start(2);
  cluster_->AddLearner(shard, 2);
  cluster_->SettleUntil([&] { return cluster_->IsMember(shard, 2); }, "it is back");
  cluster_->Settle();
  EXPECT_EQ(cluster_->Pull(2, shard, {id}).code, SegmentCode::kUnavailable) << "ask another one";
  const std::vector<ShardHost::LostReplica> lost = cluster_->host(2)->LostReplicas();
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost[0].shard, shard);
  EXPECT_EQ(cluster_->Pull(1, shard, {id}).code, SegmentCode::kOk);
  cluster_->Change(shard, true, [](ShardRecord* record) { record->members.resize(1); });
  cluster_->Settle();
  cluster_->AddLearner(shard, 2);
  cluster_->SettleUntil([&] { return cluster_->IsMember(shard, 2); }, "a new replica is there");
  cluster_->Settle();
  EXPECT_EQ(cluster_->Pull(2, shard, {id}).code, SegmentCode::kOk);
  Push(5);
  ExpectAsAlone();
}

}  // namespace damaged_row_test
}  // namespace hotbed
