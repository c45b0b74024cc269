// Shards are copied while pushes run and rows move between the tiers, and new shards begin with
// such copies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/random.h"
#include "server/host/row_files.h"
#include "tests/common/test_seed.h"
#include "tests/shard/host_fixture.h"

namespace hotbed {
namespace shard_copy_test {

constexpr uint32_t kDim = 32;

// What a file would hold.
class Copy : public RowSink {
 public:
  absl::Status BeginPass(uint64_t) override { return absl::OkStatus(); }
  absl::Status Take(absl::Span<const uint64_t> ids, absl::Span<const uint8_t> payloads) override {
    const size_t bytes = payloads.size() / ids.size();
    for (size_t i = 0; i < ids.size(); ++i) {
      rows_[ids[i]].assign(payloads.begin() + i * bytes, payloads.begin() + (i + 1) * bytes);
    }
    if (first_take != nullptr) std::exchange(first_take, nullptr)(ids);
    Clock::Real()->SleepNs(pause_ns);
    if (meanwhile) meanwhile();
    return fails ? absl::ResourceExhaustedError("no space") : absl::OkStatus();
  }
  absl::Status TakeDeleted(absl::Span<const uint64_t> ids) override {
    for (const uint64_t id : ids) rows_.erase(id);
    deleted += ids.size();
    return absl::OkStatus();
  }
  const std::map<uint64_t, std::vector<uint8_t>>& rows() const { return rows_; }
  float weight(uint64_t id, uint32_t column) const {
    float value;
    std::memcpy(&value, rows_.at(id).data() + column * sizeof(float), sizeof(value));
    return value;
  }
  int64_t pause_ns = 0;
  std::function<void()> meanwhile;  // runs at each block, while nothing holds up pushes
  bool fails = false;
  uint64_t deleted = 0;
  std::function<void(absl::Span<const uint64_t>)> first_take;  // has read these rows

 private:
  std::map<uint64_t, std::vector<uint8_t>> rows_;
};

// The rows of copies, for bounded tables.
class CopySource : public RowSource {
 public:
  absl::StatusOr<std::unique_ptr<Rows>> Open(const TableSpec&, const ShardRange& range) override {
    opened.fetch_add(1);
    auto rows = std::make_unique<Taken>();
    for (const auto& [id, payload] : copy.rows()) {
      if (id < range.first || id >= range.limit) continue;
      rows->positions.push_back(id);
      rows->payloads.insert(rows->payloads.end(), payload.begin(), payload.end());
    }
    rows->sessions_ = sessions;
    rows->source = this;
    return rows;
  }

  Copy copy;
  std::string sessions;
  std::atomic<int> opened{0};
  std::atomic<int> failures{0};    // so many times reading ends with an error
  std::atomic<bool> holds{false};  // reading waits

 private:
  struct Taken : Rows {
    absl::StatusOr<bool> Next(std::vector<uint64_t>* to, std::vector<uint8_t>* bytes) override {
      if (source->failures.load() > 0) {
        source->failures.fetch_sub(1);
        return absl::UnavailableError("the directory is away");
      }
      if (source->holds.load()) {
        Clock::Real()->SleepNs(kMillisecondNs);
        to->clear();
        return true;
      }
      to->swap(positions);
      bytes->swap(payloads);
      positions.clear();
      return !to->empty();
    }
    uint64_t bytes_total() const override { return payloads.size(); }
    std::string sessions() const override { return sessions_; }
    Incarnation forgotten() const override { return 0; }
    std::vector<uint64_t> positions;
    std::vector<uint8_t> payloads;
    std::string sessions_;
    CopySource* source = nullptr;
  };
};

class ShardCopyTest : public testing::Test {
 protected:
  ShardCopyTest() : seed_(19), random_(seed_.value()) {}

  ShardHostOptions Options(const TempDir& dir, uint64_t hot_bytes = 0) {
    ShardHostOptions options;
    options.data_dir = dir.path();
    options.host_bytes = 256ull << 20;
    options.hot_bytes = hot_bytes;
    options.checkpoint_interval_ms = 0;
    options.log_sync_interval_ms = 10'000;
    return options;
  }
  // Each push adds 1 to each of its rows.
  static TableSpec Counters(uint64_t rows) {
    TableSpec table = TestTable(1, "counters", rows, kDim, OptimizerKind::kSgd);
    table.optimizer.learning_rate = 1.0f;
    table.initializer = {InitializerKind::kZero, 0, 0};
    return table;
  }
  // Pushes ids to the one shard; its LSN is then the number of the pushes.
  void Push(TestClient* client, std::vector<uint64_t> ids) {
    pushed_.push_back(ids);
    client->Push(1, pushed_.size(), ids, std::vector<float>(ids.size() * kDim, -1.0f));
  }
  std::vector<uint64_t> SomeIds(size_t count, uint64_t below) {
    std::vector<uint64_t> ids;
    const uint64_t first = random_.Uniform(below - count + 1);
    for (size_t i = 0; i < count; ++i) ids.push_back(first + i);
    return ids;
  }
  void ExpectAsOf(const Copy& copy, Lsn lsn) {
    ASSERT_LE(lsn, pushed_.size());
    std::map<uint64_t, float> counts;
    for (Lsn push = 1; push <= lsn; ++push) {
      for (const uint64_t id : pushed_[push - 1]) counts[id] += 1.0f;
    }
    ASSERT_EQ(copy.rows().size(), counts.size());
    for (const auto& [id, count] : counts) {
      ASSERT_EQ(copy.weight(id, 0), count) << "id " << id << " as of LSN " << lsn;
      ASSERT_EQ(copy.weight(id, kDim - 1), count) << "id " << id;
    }
  }
  // Copies while pushes of `ids_per_push` ids below `below` run.
  void CopyWhilePushing(TestServer* server, size_t ids_per_push, uint64_t below, Copy* copy,
                        CopiedShard* copied) {
    std::atomic<bool> stop{false};
    std::thread pusher([&] {
      TestClient client(server, 7);
      while (!stop.load()) {
        Push(&client, SomeIds(ids_per_push, below));
        pushes_meanwhile_.fetch_add(1);
      }
    });
    Clock::Real()->SleepNs(20 * kMillisecondNs);
    const auto done = server->host()->Copy({1, 0}, {}, copy);
    stop.store(true);
    pusher.join();
    ASSERT_TRUE(done.ok()) << done.status();
    *copied = *done;
  }

  TestSeed seed_;
  Random random_;
  std::vector<std::vector<uint64_t>> pushed_;  // by LSN, from 1
  std::atomic<int> pushes_meanwhile_{0};       // acknowledged ones of CopyWhilePushing
};

TEST_F(ShardCopyTest, IsOfOneMomentWhileFewRowsChange) {
  const TempDir dir;
  TestServer server(Options(dir), {Counters(40'000)}, 1);
  server.Start();
  TestClient first(&server, 6);
  Push(&first, SomeIds(40'000, 40'000));
  Copy copy;
  copy.pause_ns = 3 * kMillisecondNs;
  CopiedShard copied;
  CopyWhilePushing(&server, 50, 1000, &copy, &copied);
  EXPECT_GT(copied.passes, 1u);
  EXPECT_LT(copied.passes, 8u);
  EXPECT_EQ(copied.session_count, 2u);
  ExpectAsOf(copy, copied.lsn);
}

TEST_F(ShardCopyTest, IsOfOneMomentWhilePushesAreFaster) {
  const TempDir dir;
  TestServer server(Options(dir), {Counters(40'000)}, 1);
  server.Start();
  TestClient first(&server, 6);
  Push(&first, SomeIds(40'000, 40'000));
  Copy copy;
  copy.meanwhile = [this] {  // half of the rows change in each pass, however slow pushes are
    const int before = pushes_meanwhile_.load();
    while (pushes_meanwhile_.load() == before) Clock::Real()->SleepNs(kMillisecondNs);
  };
  CopiedShard copied;
  CopyWhilePushing(&server, 20'000, 40'000, &copy, &copied);
  EXPECT_EQ(copied.passes, 9u);  // the last one from the spill tier
  ExpectAsOf(copy, copied.lsn);
}

// Rows that the first pass had, and that were deleted since, are not in the copy.
TEST_F(ShardCopyTest, IsOfOneMomentWhileRowsAreDeleted) {
  const TempDir dir;
  TableSpec table = Counters(40'000);
  table.hashed = true;
  TestServer server(Options(dir), {table}, 1);
  server.Start();
  TestClient client(&server, 6);
  Push(&client, SomeIds(40'000, 40'000));
  std::vector<uint64_t> gone;
  Copy copy;
  copy.first_take = [&](absl::Span<const uint64_t> ids) {
    gone.assign(ids.begin(), ids.begin() + 20);
    client.Delete(1, 2, gone);
    pushed_.push_back({});
    Push(&client, {gone[0], gone[1]});
  };
  const auto copied = server.host()->Copy({1, 0}, {}, &copy);
  ASSERT_TRUE(copied.ok()) << copied.status();
  EXPECT_EQ(copied->lsn, 3u);
  EXPECT_EQ(copy.deleted, 18u);
  EXPECT_EQ(copy.rows().size(), 40'000u - 18);
  for (size_t i = 0; i < gone.size(); ++i) EXPECT_EQ(copy.rows().contains(gone[i]), i < 2) << i;
  EXPECT_EQ(copy.weight(gone[0], 0), 1.0f) << "a push after the deletion begins at the first value";
}

TEST_F(ShardCopyTest, IsOfOneMomentWhileRowsLeaveMemory) {
  const TempDir dir;
  TestServer server(Options(dir, 2 << 20), {Counters(40'000)}, 1);
  server.Start();
  TestClient first(&server, 6);
  for (int i = 0; i < 8; ++i) Push(&first, SomeIds(5'000, 40'000));
  Copy copy;
  copy.pause_ns = kMillisecondNs;
  CopiedShard copied;
  CopyWhilePushing(&server, 300, 40'000, &copy, &copied);
  ExpectAsOf(copy, copied.lsn);
}

TEST_F(ShardCopyTest, AnErrorOfTheSinkEndsItAndTheNextCopyIsWhole) {
  const TempDir dir;
  TestServer server(Options(dir), {Counters(40'000)}, 1);
  server.Start();
  TestClient client(&server, 6);
  Push(&client, SomeIds(40'000, 40'000));
  Copy broken;
  broken.fails = true;
  EXPECT_EQ(server.host()->Copy({1, 0}, {}, &broken).status().code(),
            absl::StatusCode::kResourceExhausted);
  Push(&client, SomeIds(100, 40'000));
  Copy copy;
  const auto copied = server.host()->Copy({1, 0}, {}, &copy);
  ASSERT_TRUE(copied.ok()) << copied.status();
  ExpectAsOf(copy, copied->lsn);
  EXPECT_EQ(server.host()->Copy({2, 0}, {}, &copy).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

class ShardRestoreTest : public ShardCopyTest {
 protected:
  ShardRestoreTest() {
    const TempDir dir;
    TestServer server(Options(dir), {Counters(5'000)}, 1);
    server.Start();
    TestClient client(&server, 6);
    for (int i = 0; i < 20; ++i) Push(&client, SomeIds(200, 5'000));
    const auto copied = server.host()->Copy({1, 0}, {}, &source_.copy);
    EXPECT_TRUE(copied.ok()) << copied.status();
    source_.sessions = copied->sessions;
    for (const auto& [id, payload] : source_.copy.rows()) ids_.push_back(id);
    want_ = server.Pull(1, ids_);
  }
  ShardHostOptions RestoringOptions(const TempDir& dir) {
    ShardHostOptions options = Options(dir);
    options.restores = &source_;
    return options;
  }
  static TableSpec Restored(Durability durability = Durability::kLog) {
    TableSpec table = Counters(5'000);
    table.durability = durability;
    table.restored_from = {"/a/checkpoint", "counters", true};
    return table;
  }
  // Until all shards serve.
  static void Await(TestServer* server) {
    for (int i = 0; i < 2000 && !AllActive(*server); ++i) {
      server->Activate();
      Clock::Real()->SleepNs(10 * kMillisecondNs);
    }
    EXPECT_TRUE(AllActive(*server));
  }
  static bool AllActive(const TestServer& server) {
    return std::all_of(server.records().begin(), server.records().end(),
                       [](const ShardRecord& record) { return record.active; });
  }
  static void AwaitOpened(const CopySource& source, int count) {
    for (int i = 0; i < 2000 && source.opened.load() < count; ++i) {
      Clock::Real()->SleepNs(5 * kMillisecondNs);
    }
  }

  CopySource source_;
  std::vector<uint64_t> ids_;
  std::vector<float> want_;
};

TEST_F(ShardRestoreTest, OtherShardsBeginWithTheRowsAndGoOn) {
  const TempDir dir;
  TestServer server(RestoringOptions(dir), {Restored()}, 3);
  server.Start();
  Await(&server);
  EXPECT_EQ(server.Pull(1, ids_), want_);
  // The session's last push is known; the next one is applied, and survives a restart.
  TestClient client(&server, 6);
  client.Restart();
  client.Push(1, 20, {ids_[0]}, std::vector<float>(kDim, -1.0f));
  EXPECT_EQ(server.Pull(1, {ids_[0]})[0], want_[0]);
  TestClient other(&server, 9);
  other.Push(1, 21, {ids_[0]}, std::vector<float>(kDim, -1.0f));
  EXPECT_EQ(server.Pull(1, {ids_[0]})[0], want_[0] + 1);
  want_[0] = server.Pull(1, {ids_[0]})[0];
  for (uint32_t i = 1; i < kDim; ++i) want_[i] = want_[0];
  for (ShardRecord record : server.records()) {
    server.record(record.shard).base = record.members;  // as the coordinator does from now on
  }
  server.Kill();
  source_.holds = true;  // nothing is read again
  server.Start();
  Await(&server);
  EXPECT_EQ(server.Pull(1, ids_), want_);
}

TEST_F(ShardRestoreTest, AKillMidwayBeginsAgain) {
  for (const Durability durability : {Durability::kLog, Durability::kCheckpoint}) {
    const TempDir dir;
    TestServer server(RestoringOptions(dir), {Restored(durability)}, 3);
    source_.holds = true;
    source_.opened = 0;
    server.Start();
    AwaitOpened(source_, 2);
    EXPECT_THAT(server.host()->ShardsToActivate(), testing::IsEmpty());
    EXPECT_EQ(server.host()->Restores(1).shards.size(), 3u);
    server.Kill();
    source_.holds = false;
    server.Start();
    Await(&server);
    EXPECT_EQ(server.Pull(1, ids_), want_);
    // Without a clean stop the rows of class checkpoint go back to what the restore kept.
    for (ShardRecord record : server.records()) server.record(record.shard).base = record.members;
    server.Kill();
    server.Start();
    Await(&server);
    EXPECT_EQ(server.Pull(1, ids_), want_);
  }
}

TEST_F(ShardRestoreTest, AnErrorIsToldAndPasses) {
  const TempDir dir;
  source_.failures = 1;
  TestServer server(RestoringOptions(dir), {Restored()}, 1);
  server.Start();
  AwaitOpened(source_, 2);
  const ShardHost::RestoreProgress progress = server.host()->Restores(1);
  if (!progress.shards.empty()) {
    EXPECT_EQ(progress.shards[0].second.message(), "the directory is away");
  }
  Await(&server);
  EXPECT_EQ(server.Pull(1, ids_), want_);
  EXPECT_THAT(server.host()->Restores(1).shards, testing::IsEmpty());
}

TEST_F(ShardRestoreTest, ATableThatIsDroppedMidwayLeavesNothing) {
  const TempDir dir;
  source_.holds = true;
  TestServer server(RestoringOptions(dir), {Restored()}, 3);
  server.Start();
  AwaitOpened(source_, 2);
  ASSERT_TRUE(server.host()->ApplyAssignment({}, {}, {1}).ok());
  for (int i = 0; i < 2000 && !server.host()->Held().empty(); ++i) {
    Clock::Real()->SleepNs(5 * kMillisecondNs);
  }
  EXPECT_THAT(server.host()->Held(), testing::IsEmpty());
  EXPECT_THAT(server.host()->Restores(1).shards, testing::IsEmpty());
}

}  // namespace shard_copy_test
}  // namespace hotbed
