// Synchronous tables over a real host: staged pushes, commits, restarts in between, and any number
// of shards.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "common/random.h"
#include "tests/common/test_seed.h"
#include "tests/shard/attach_shard.h"
#include "tests/shard/host_fixture.h"

namespace hotbed {
namespace shard_commit_test {

constexpr uint32_t kDim = 4;
constexpr uint64_t kRows = 500;
constexpr uint64_t kSteps = 12;
constexpr SessionId kTrainers[] = {11, 7, 23};  // in trainer order

TableSpec SyncTable(OptimizerKind optimizer) {
  TableSpec table = TestTable(1, "sync", kRows, kDim, optimizer);
  table.consistency = Consistency::kSync;
  return table;
}

ShardHostOptions Options(const TempDir& dir) {
  ShardHostOptions options;
  options.data_dir = dir.path();
  options.host_bytes = 64ull << 20;
  return options;
}

std::vector<uint64_t> AllIds() {
  std::vector<uint64_t> ids;
  for (uint64_t id = 0; id < kRows; ++id) ids.push_back(id);
  return ids;
}

// To every shard of the table; the code of each.
std::vector<SegmentCode> Commit(TestServer* server, TableId table, uint64_t step,
                                const std::vector<uint64_t>& sessions) {
  TestPush commit;
  for (const ShardRecord& record : server->records()) {
    if (record.shard.table != table) continue;
    PushSegment& segment = commit.segments.emplace_back();
    AttachShard(*server->host(), record.shard, &commit, &segment);
    segment.shard_id = record.shard;
    segment.epoch = record.epoch;
    segment.commit_step = step;
    segment.ids = sessions.data();
    segment.count = static_cast<uint32_t>(sessions.size());
  }
  server->Run(&commit);
  std::vector<SegmentCode> codes;
  for (const PushSegment& segment : commit.segments) {
    codes.push_back(segment.result.code);
    if (segment.result.code != SegmentCode::kOk) {
      EXPECT_NE(segment.result.detail.find("table sync"), std::string::npos);
    }
  }
  return codes;
}

void MustCommit(TestServer* server, uint64_t step, const std::vector<uint64_t>& sessions) {
  for (const SegmentCode code : Commit(server, 1, step, sessions)) {
    ASSERT_EQ(code, SegmentCode::kOk);
  }
}

struct Push {
  std::vector<uint64_t> ids;
  std::vector<float> gradients;
};
// [step][trainer]
using Training = std::vector<std::vector<Push>>;

Training MakeTraining(uint64_t seed, bool integers) {
  Random random(seed);
  Training training(kSteps);
  for (auto& step : training) {
    for (size_t t = 0; t < std::size(kTrainers); ++t) {
      Push& push = step.emplace_back();
      for (uint64_t id = 0; id < kRows; ++id) {
        if (random.Double() > 0.15) continue;
        push.ids.push_back(id);
        for (uint32_t c = 0; c < kDim; ++c) {
          push.gradients.push_back(integers ? static_cast<float>(random.Uniform(7)) - 3
                                            : static_cast<float>(random.Double() - 0.5));
        }
      }
    }
  }
  return training;
}

struct Layout {
  const char* name;
  uint32_t shards;
  uint64_t hot_bytes;
  uint64_t parts;
  bool kill_staged;   // between the pushes and their commit
  bool kill_between;  // two steps
  bool stop_staged;   // in order
};

constexpr Layout kLayouts[] = {
    {"one shard", 1, 64ull << 20, 1, false, false, false},
    {"two shards, killed between stage and commit", 2, 64ull << 20, 2, true, false, false},
    {"seven shards, killed between commits", 7, 64ull << 20, 1, false, true, false},
    {"two shards, stopped between stage and commit, killed", 2, 64ull << 20, 3, false, true, true},
    {"three shards, a sliver resident, killed", 3, 4ull << 10, 1, true, true, false},
};

std::vector<float> Train(const Layout& layout, OptimizerKind optimizer, const Training& training) {
  const TempDir dir;
  ShardHostOptions options = Options(dir);
  options.hot_bytes = layout.hot_bytes;
  TestServer server(options, {SyncTable(optimizer)}, layout.shards);
  server.Start();
  std::vector<TestClient> clients;
  for (const SessionId session : kTrainers) clients.emplace_back(&server, session);
  const std::vector<uint64_t> order(std::begin(kTrainers), std::end(kTrainers));
  for (uint64_t step = 1; step <= kSteps; ++step) {
    // The order of arrival is not that of the trainers.
    for (size_t turn = 0; turn < clients.size(); ++turn) {
      const size_t t = (turn + step) % clients.size();
      const Push& push = training[step - 1][t];
      for (uint64_t part = 0; part < layout.parts; ++part) {
        const size_t first = push.ids.size() * part / layout.parts;
        const size_t limit = push.ids.size() * (part + 1) / layout.parts;
        clients[t].Push(
            1, step, {push.ids.begin() + first, push.ids.begin() + limit},
            {push.gradients.begin() + first * kDim, push.gradients.begin() + limit * kDim},
            part + 1);
      }
    }
    if (layout.kill_staged && step % 3 == 0) {
      server.Kill();
      server.Start();
      clients[0].ResendLast();
    }
    if (layout.stop_staged && step % 4 == 0) {
      EXPECT_TRUE(server.Stop().ok());
      server.Start();
    }
    MustCommit(&server, step, order);
    if (step % 5 == 0) MustCommit(&server, step, order);  // another trainer brings it too
    if (layout.kill_between && step % 4 == 1) {
      server.Kill();
      server.Start();
      MustCommit(&server, step, order);
    }
  }
  return server.Pull(1, AllIds());
}

class SynchronousTest : public testing::TestWithParam<OptimizerKind> {};

TEST_P(SynchronousTest, TheSameBitsOnAnyShardsAndOverRestarts) {
  const TestSeed seed(20260501);
  const Training training = MakeTraining(seed.value(), false);
  const std::vector<float> expected = Train(kLayouts[0], GetParam(), training);
  for (const Layout& layout : kLayouts) {
    const std::vector<float> rows = Train(layout, GetParam(), training);
    ASSERT_EQ(rows.size(), expected.size());
    size_t different = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      different += std::memcmp(&rows[i], &expected[i], sizeof(float)) != 0;
    }
    EXPECT_EQ(different, 0u) << layout.name << ": elements that differ, of " << rows.size();
  }
}

// One trainer that pushes the sums (made here, in double) to an asynchronous table.
std::vector<float> TrainAlone(OptimizerKind optimizer, const Training& training) {
  const TempDir dir;
  TableSpec table = SyncTable(optimizer);
  table.consistency = Consistency::kAsync;
  TestServer server(Options(dir), {table}, 1);
  server.Start();
  TestClient client(&server, 3);
  for (uint64_t step = 1; step <= kSteps; ++step) {
    std::map<uint64_t, std::vector<double>> sums;
    for (const Push& push : training[step - 1]) {
      for (size_t i = 0; i < push.ids.size(); ++i) {
        std::vector<double>& sum = sums[push.ids[i]];
        sum.resize(kDim);
        for (uint32_t c = 0; c < kDim; ++c) sum[c] += push.gradients[i * kDim + c];
      }
    }
    Push batch;
    for (const auto& [id, sum] : sums) {
      batch.ids.push_back(id);
      for (const double g : sum) batch.gradients.push_back(static_cast<float>(g));
    }
    client.Push(1, step, batch.ids, batch.gradients);
  }
  return server.Pull(1, AllIds());
}

TEST_P(SynchronousTest, TrainersTogetherEqualOneWithTheirBatches) {
  const TestSeed seed(20260502);
  for (const bool integers : {false, true}) {
    const Training training = MakeTraining(seed.value(), integers);
    const std::vector<float> together = Train(kLayouts[2], GetParam(), training);
    const std::vector<float> alone = TrainAlone(GetParam(), training);
    for (size_t i = 0; i < alone.size(); ++i) {
      if (integers) {
        ASSERT_EQ(together[i], alone[i]) << "element " << i;
      } else {
        ASSERT_LE(std::fabs(together[i] - alone[i]), 1e-6 * std::max(1.0f, std::fabs(alone[i])))
            << "element " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, SynchronousTest,
                         testing::Values(OptimizerKind::kSgd, OptimizerKind::kRowwiseAdagrad,
                                         OptimizerKind::kAdam));

// --- single rules, on a table where a row is minus the sum of its gradients

class CommitTest : public testing::Test {
 protected:
  CommitTest() : server_(HostOptions(), {Table()}, 2) { server_.Start(); }

  ShardHostOptions HostOptions() {
    ShardHostOptions options = Options(dir_);
    options.staged_bytes_max = 2000;
    return options;
  }
  static TableSpec Table() {
    TableSpec table = SyncTable(OptimizerKind::kSgd);
    table.optimizer.learning_rate = 1.0f;
    table.initializer = {InitializerKind::kZero, 0, 0};
    return table;
  }
  // One push to id's shard, by hand.
  SegmentResult Push(SessionId session, uint64_t seq, uint64_t prev, uint64_t id, float gradient,
                     const float* rate = nullptr, bool assign = false) {
    auto push = server_.MakePush(session, 1, 1, {id}, std::vector<float>(kDim, gradient));
    PushSegment& segment = push->segments[0];
    segment.seq = seq;
    segment.prev_seq = prev;
    segment.open = prev == 0;
    segment.assign = assign;
    segment.has_learning_rate = rate != nullptr;
    if (rate != nullptr) segment.learning_rate = *rate;
    server_.Run(push.get());
    return push->segments[0].result;
  }
  float At(uint64_t id) { return server_.Pull(1, {id})[0]; }
  static uint64_t Seq(uint64_t step) { return step << 20 | 1; }

  TempDir dir_;
  TestServer server_;
};

TEST_F(CommitTest, NothingBeforeItsCommitAndOthersNever) {
  EXPECT_EQ(Push(7, Seq(1), 0, 3, 1).code, SegmentCode::kOk);
  EXPECT_EQ(Push(8, Seq(1), 0, 3, 10).code, SegmentCode::kOk);
  EXPECT_EQ(Push(9, Seq(1), 0, 3, 100).code, SegmentCode::kOk);
  EXPECT_EQ(At(3), 0.0f);
  MustCommit(&server_, 1, {9, 7});
  EXPECT_EQ(At(3), -101.0f);
  MustCommit(&server_, 1, {7, 8, 9});
  EXPECT_EQ(At(3), -101.0f);
  const SegmentResult late = Push(6, Seq(1), 0, 3, 1000);
  EXPECT_EQ(late.code, SegmentCode::kStepOver);
  EXPECT_NE(late.detail.find("step 1 was committed without"), std::string::npos) << late.detail;
  EXPECT_EQ(Push(6, Seq(2), Seq(1), 3, 4).code, SegmentCode::kOk);
  MustCommit(&server_, 2, {6, 7});
  EXPECT_EQ(At(3), -105.0f);
  for (const ShardStatus& shard : server_.host()->Status().shards) {
    EXPECT_EQ(shard.committed_step, 2u);
    EXPECT_EQ(shard.staged_bytes, 0u);
  }
}

TEST_F(CommitTest, ReadYourWritesByTheCommitsLsn) {
  EXPECT_EQ(Push(7, Seq(1), 0, 3, 1).code, SegmentCode::kOk);
  auto pull = server_.MakePull(1, {3});
  pull->segments[0].lsn_min = 2;
  server_.Run(pull.get());
  EXPECT_EQ(pull->segments[0].result.code, SegmentCode::kUnavailable) << "nothing is parked";
  MustCommit(&server_, 1, {7});
  pull = server_.MakePull(1, {3});
  pull->segments[0].lsn_min = 2;
  server_.Run(pull.get());
  EXPECT_EQ(pull->segments[0].result.code, SegmentCode::kOk);
}

TEST_F(CommitTest, MemoryIsBoundedAndACommitFreesIt) {
  uint64_t prev = 0;
  SegmentResult result;
  int staged = 0;
  for (uint64_t part = 1; part <= 50; ++part) {
    const uint64_t seq = uint64_t{1} << 20 | part;
    result = Push(7, seq, prev, 3 + part, 1);
    if (result.code != SegmentCode::kOk) break;
    prev = seq;
    ++staged;
  }
  EXPECT_EQ(result.code, SegmentCode::kResourceExhausted);
  EXPECT_NE(result.detail.find("2000 bytes (--staged-bytes-max)"), std::string::npos)
      << result.detail;
  EXPECT_GT(result.retry_after_ms, 0u);
  EXPECT_GT(staged, 4);
  EXPECT_LT(staged, 11);
  MustCommit(&server_, 1, {7});
  EXPECT_EQ(Push(7, Seq(2), prev, 3, 1).code, SegmentCode::kOk);
}

TEST_F(CommitTest, OneLearningRateAStep) {
  const float rate = 0.5f;
  const float other = 0.25f;
  EXPECT_EQ(Push(7, Seq(1), 0, 3, 1, &rate).code, SegmentCode::kOk);
  const SegmentResult refused = Push(8, Seq(1), 0, 3, 1, &other);
  EXPECT_EQ(refused.code, SegmentCode::kInvalidArgument);
  EXPECT_NE(refused.detail.find("learning rate 0.25 in step 1, where session 7 pushed with 0.5"),
            std::string::npos)
      << refused.detail;
  EXPECT_EQ(Push(8, Seq(2), Seq(1), 3, 1, &other).code, SegmentCode::kOk) << "of another step";
  MustCommit(&server_, 1, {7, 8});
  EXPECT_EQ(At(3), -0.5f);
}

TEST_F(CommitTest, AnAssignmentIsNoStep) {
  EXPECT_EQ(Push(7, Seq(1), 0, 3, 8, nullptr, /*assign=*/true).code, SegmentCode::kOk);
  MustCommit(&server_, 5, {});
  EXPECT_EQ(Push(7, Seq(2), Seq(1), 4, 8, nullptr, /*assign=*/true).code, SegmentCode::kOk);
}

TEST_F(CommitTest, BadCommitsAreRefused) {
  EXPECT_EQ(Commit(&server_, 1, 1, {7, 8, 7}),
            std::vector<SegmentCode>(2, SegmentCode::kInvalidArgument));
  EXPECT_EQ(Commit(&server_, 1, uint64_t{1} << 60, {7}),
            std::vector<SegmentCode>(2, SegmentCode::kInvalidArgument));
  EXPECT_EQ(Push(7, Seq(1), 0, 3, 1).code, SegmentCode::kOk) << "and nothing is committed";
}

// A trainer died in its step and its group is gone: what it staged must not hold the log for ever,
// and is there should the step be committed after all.
TEST(StagedLogTest, WhatIsStagedDoesNotHoldTheLog) {
  const TempDir dir;
  ShardHostOptions options = Options(dir);
  options.log_bytes_max = 2ull << 20;
  TableSpec busy = TestTable(2, "busy", 1000, 64, OptimizerKind::kSgd);
  TableSpec table = SyncTable(OptimizerKind::kSgd);
  table.optimizer.learning_rate = 1.0f;
  table.initializer = {InitializerKind::kZero, 0, 0};
  TestServer server(options, {table, busy}, 1);
  server.Start();
  TestClient trainer(&server, 7);
  trainer.Push(1, 1, {3}, std::vector<float>(kDim, 5));
  TestClient other(&server, 8);
  std::vector<uint64_t> ids;
  for (uint64_t id = 0; id < 1000; ++id) ids.push_back(id);
  uint64_t pushed = 0;
  for (uint64_t step = 1; pushed < 8ull << 20; ++step) {
    other.Push(2, step, ids, std::vector<float>(1000 * 64, 0.5f));
    pushed += 1000 * 64 * 4;
  }
  EXPECT_LT(server.host()->Status().numbers["log_bytes"], pushed / 2);
  server.Kill();
  server.Start();
  EXPECT_EQ(server.Pull(1, {3})[0], 0.0f);
  MustCommit(&server, 1, {7});
  EXPECT_EQ(server.Pull(1, {3})[0], -5.0f);
}

}  // namespace shard_commit_test
}  // namespace hotbed
