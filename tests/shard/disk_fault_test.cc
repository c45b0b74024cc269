// Disk full, I/O errors and damage under the shard host, by a file system that a test can break.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "server/shard_log/identity_file.h"
#include "tests/common/fault_file_system.h"
#include "tests/common/test_seed.h"
#include "tests/shard/host_fixture.h"
#include "tests/shard/small_disk.h"

namespace hotbed {
namespace disk_fault_test {

constexpr uint32_t kDim = 4;

class DiskFaultTest : public testing::Test {
 protected:
  DiskFaultTest() : seed_(5), files_(seed_.value()), server_(Options(), Tables(), 2) {}

  ShardHostOptions Options() {
    ShardHostOptions options;
    options.data_dir = dir_.path();
    options.host_bytes = 64ull << 20;
    options.files = &files_;
    return options;
  }
  static std::vector<TableSpec> Tables() {
    TableSpec table = TestTable(1, "t", 100, kDim, OptimizerKind::kSgd);
    table.optimizer.learning_rate = 1.0f;
    table.initializer = {InitializerKind::kZero, 0, 0};
    return {table};
  }

  std::unique_ptr<TestPush> Push(uint64_t seq, uint64_t prev) {
    auto push = server_.MakePush(7, 1, 1, {3, 70}, std::vector<float>(2 * kDim, 1.0f));
    for (PushSegment& segment : push->segments) {
      segment.seq = seq;
      segment.prev_seq = prev;
      segment.open = seq == 1;
    }
    server_.Run(push.get());
    return push;
  }

  TestSeed seed_;
  TempDir dir_;
  FaultFileSystem files_;
  TestServer server_;
};

TEST_F(DiskFaultTest, SaysWhatIsFreeForRows) {
  server_.Start();
  files_.SetFreeBytes(12345);
  EXPECT_EQ(server_.host()->Status().free_bytes, 12345u);
  ShardHostOptions options = Options();
  TempDir other;
  options.data_dir = other.path();
  options.spill_bytes_max = 1000;
  TestServer bounded(options, Tables(), 2);
  bounded.Start();
  EXPECT_EQ(bounded.host()->Status().numbers["spill_bytes"], 0u);
  EXPECT_EQ(bounded.host()->Status().free_bytes, 1000u) << "as much as the flag leaves";
  files_.SetFreeBytes(999);
  EXPECT_EQ(bounded.host()->Status().free_bytes, 999u);
  files_.SetFreeBytes(UINT64_MAX);
}

TEST_F(DiskFaultTest, AFullDiskAcknowledgesNothingAndLosesNothing) {
  server_.Start();
  ASSERT_EQ(Push(1, 0)->segments[0].result.code, SegmentCode::kOk);
  files_.SetFreeBytes(0);
  for (int attempt = 0; attempt < 3; ++attempt) {
    const auto refused = Push(2, 1);
    for (const PushSegment& segment : refused->segments) {
      EXPECT_EQ(segment.result.code, SegmentCode::kReadOnly) << segment.result.detail;
      EXPECT_GT(segment.result.retry_after_ms, 0u);
    }
  }
  EXPECT_TRUE(server_.host()->Status().read_only);
  EXPECT_EQ(server_.Pull(1, {3})[0], -1.0f) << "pulls go on";
  files_.SetFreeBytes(UINT64_MAX);
  SegmentCode code = SegmentCode::kReadOnly;
  for (int i = 0; i < 100 && code == SegmentCode::kReadOnly; ++i) {
    Clock::Real()->SleepNs(50'000'000);
    const auto again = Push(2, 1);
    code = std::max(again->segments[0].result.code, again->segments[1].result.code);
  }
  EXPECT_EQ(code, SegmentCode::kOk) << "without a restart";
  EXPECT_EQ(server_.Pull(1, {3, 70})[4], -2.0f);
  server_.Kill();
  files_.Kill();
  server_.Start();
  EXPECT_EQ(Push(2, 1)->segments[0].result.code, SegmentCode::kOk);
  EXPECT_EQ(server_.Pull(1, {3, 70})[0], -2.0f) << "neither lost nor applied twice";
}

TEST_F(DiskFaultTest, APromiseThatCannotBeKeptIsNotServed) {
  server_.Open();
  files_.SetFreeBytes(0);
  std::vector<ShardRecord> records = server_.records();
  for (ShardRecord& record : records) {
    record.epoch = record.revision = 1;
    record.primary = {1, 1};
    record.members = {record.primary};
  }
  EXPECT_FALSE(server_.host()->ApplyAssignment(Tables(), records, {}).ok());
  EXPECT_TRUE(server_.host()->ShardsToActivate().empty());
  files_.SetFreeBytes(UINT64_MAX);
  EXPECT_TRUE(server_.host()->ApplyAssignment(Tables(), records, {}).ok());
  EXPECT_EQ(server_.host()->ShardsToActivate().size(), 2u);
}

// A server that cannot open one shard hears all the same that it lost another one.
TEST_F(DiskFaultTest, WhatCannotBeOpenedKeepsNoNewsFromOthers) {
  server_.Start();
  std::vector<TableSpec> tables = Tables();
  tables.push_back(TestTable(2, "new", 100, kDim, OptimizerKind::kSgd));
  ShardRecord lost = server_.records()[0];
  lost.epoch += 1;
  lost.revision += 1;
  lost.active = false;
  lost.primary = {2, 1};
  lost.members = {lost.primary};
  lost.learners = {server_.records()[0].primary};
  ShardRecord added = server_.records()[0];
  added.shard = {2, 0};
  added.range = {0, 100, 0, kDim};
  files_.SetFreeBytes(0);
  EXPECT_FALSE(server_.host()->ApplyAssignment(tables, {lost, added}, {}).ok());
  EXPECT_EQ(server_.host()->RecordOf(lost.shard)->epoch, lost.epoch);
  EXPECT_FALSE(server_.host()->RecordOf(added.shard).has_value());
  EXPECT_EQ(Push(1, 0)->segments[0].result.code, SegmentCode::kWrongEpoch);
  files_.SetFreeBytes(UINT64_MAX);
  EXPECT_TRUE(server_.host()->ApplyAssignment(tables, {lost, added}, {}).ok());
  EXPECT_EQ(server_.host()->RecordOf(added.shard)->epoch, added.epoch);
  EXPECT_NE(server_.host()->Find(added.shard), nullptr);
}

TEST_F(DiskFaultTest, DamageInTheLogIsRefusedAndReported) {
  // The machine ran on: nothing but damage explains a record that is not whole.
  ASSERT_TRUE(files_.MakeDir("/proc/sys/kernel/random").ok());
  ASSERT_TRUE(files_.WriteAtomically("/proc/sys/kernel/random/boot_id", "one boot\n").ok());
  server_.Start();
  for (uint64_t seq = 1; seq <= 20; ++seq) Push(seq, seq - 1);
  server_.Kill();
  files_.Kill();
  const std::string log = dir_.path() + "/log";
  const std::vector<std::string> segments = *files_.List(log);
  ASSERT_FALSE(segments.empty());
  const std::string path = log + "/" + segments.back();
  files_.FlipBit(path, *files_.FileSize(path) / 2, 3);
  server_.Start();
  auto pull = server_.MakePull(1, {3});
  server_.Run(pull.get());
  EXPECT_EQ(pull->segments[0].result.code, SegmentCode::kCorrupt);
  EXPECT_THAT(pull->segments[0].result.detail, testing::HasSubstr(segments.back()));
  EXPECT_EQ(Push(21, 20)->segments[0].result.code, SegmentCode::kCorrupt);
  EXPECT_THAT(server_.host()->Status().shards[0].error, testing::HasSubstr("damaged"));
  EXPECT_TRUE(server_.host()->Ready()) << "a refused shard is reported, not waited for";
}

TEST_F(DiskFaultTest, ARebootIsForgottenOnlyAfterRecovery) {
  ASSERT_TRUE(files_.MakeDir("/proc/sys/kernel/random").ok());
  ASSERT_TRUE(files_.WriteAtomically("/proc/sys/kernel/random/boot_id", "first\n").ok());
  const std::string identity = dir_.path() + "/IDENTITY";
  const std::string catalog = dir_.path() + "/CATALOG";
  server_.Start();
  ASSERT_EQ(Push(1, 0)->segments[0].result.code, SegmentCode::kOk);
  server_.Kill();
  files_.Crash();
  ASSERT_TRUE(files_.WriteAtomically("/proc/sys/kernel/random/boot_id", "second\n").ok());
  files_.FlipBit(catalog, 0, 0);  // the start ends before the log was looked at
  EXPECT_FALSE(ShardHost::Open(Options(), Clock::Real()).ok());
  EXPECT_EQ(IdentityFile::Load(identity, &files_)->boot_id, "first");
  files_.FlipBit(catalog, 0, 0);
  server_.Start();
  EXPECT_EQ(IdentityFile::Load(identity, &files_)->boot_id, "second");
}

TEST_F(DiskFaultTest, ARestartWithAFullSpillWaitsForRoom) {
  SmallDisk disk(dir_.path() + "/spill");
  if (!disk.mounted()) GTEST_SKIP() << "this machine lets no test mount a tmpfs";
  constexpr uint32_t kWide = 256;
  constexpr uint64_t kRows = 4000;
  constexpr uint64_t kSteps = 80;  // each updates 200 rows: 16 MB
  constexpr uint64_t kPushesOfARow = kSteps * 200 / kRows;
  TableSpec table = TestTable(1, "wide", kRows, kWide, OptimizerKind::kSgd);
  table.optimizer.learning_rate = 1.0f;
  table.initializer = {InitializerKind::kZero, 0, 0};
  {
    TestServer server(Options(), {table}, 1);
    server.Start();
    TestClient client(&server, 7);
    std::vector<uint64_t> ids(200);
    for (uint64_t step = 0; step < kSteps; ++step) {
      for (size_t i = 0; i < ids.size(); ++i) ids[i] = (step * ids.size() + i) % kRows;
      client.Push(1, step + 1, ids, std::vector<float>(ids.size() * kWide, 1.0f));
    }
  }
  files_.Kill();
  disk.Fill(6 << 20);
  ShardHostOptions options = Options();
  options.hot_bytes = 64 << 10;  // so that recovery writes rows back
  TestServer server(options, {table}, 1);
  std::atomic<bool> started{false};
  std::thread start([&] {
    server.Start();
    started = true;
  });
  Clock::Real()->SleepNs(2'000'000'000);
  EXPECT_FALSE(started) << "this test must meet the limit";
  disk.Free();
  start.join();
  EXPECT_EQ(server.host()->Status().shards[0].error, "");
  for (uint64_t id = 0; id < kRows; id += 333) {
    EXPECT_EQ(server.Pull(1, {id})[0], -static_cast<float>(kPushesOfARow)) << id;
  }
  server.Kill();
}

TEST_F(DiskFaultTest, APowerLossWithSyncedAppendsLosesNothing) {
  ShardHostOptions options = Options();
  options.log_sync_interval_ms = 0;
  TestServer server(options, Tables(), 1);
  server.Start();
  TestClient client(&server, 7);
  uint64_t step = 0;
  for (int life = 0; life < 5; ++life) {
    for (int i = 0; i < 10; ++i) client.Push(1, ++step, {3}, std::vector<float>(kDim, 1.0f));
    server.Kill();
    files_.Crash();
    server.Start();
    client.ResendLast();
    EXPECT_EQ(server.Pull(1, {3})[0], -static_cast<float>(step));
  }
}

}  // namespace disk_fault_test
}  // namespace hotbed
