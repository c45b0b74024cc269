// A data directory from which something is missing: it never passes for a whole one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/files/file_system.h"
#include "server/host/data_directory.h"
#include "tests/common/fault_file_system.h"
#include "tests/shard/host_fixture.h"

namespace hotbed {
namespace missing_data_test {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr uint32_t kDim = 4;

class MissingDataTest : public testing::Test {
 protected:
  MissingDataTest() : server_(Options(), {Table()}, 2) {}

  ShardHostOptions Options() {
    ShardHostOptions options;
    options.data_dir = dir_.path() + "/data";
    options.host_bytes = 64ull << 20;
    return options;
  }
  static TableSpec Table() {
    TableSpec table = TestTable(1, "t", 100, kDim, OptimizerKind::kSgd);
    table.optimizer.learning_rate = 1.0f;
    table.initializer = {InitializerKind::kZero, 0, 0};
    return table;
  }
  std::string PathOf(const std::string& name) { return dir_.path() + "/data/" + name; }

  void PushSome(int count) {
    for (int i = 0; i < count; ++i) {
      client_.Push(1, ++step_, {3, 70}, std::vector<float>(2 * kDim, 1.0f));
    }
  }
  // Rows, a log that they contain in part, and a kill.
  void LeaveData() {
    server_.Start();
    PushSome(10);
    ASSERT_TRUE(server_.Stop().ok());
    server_.Start();
    PushSome(10);
    server_.Kill();
  }
  void ExpectExact() {
    server_.Start();
    EXPECT_EQ(server_.Pull(1, {3, 70})[0], -static_cast<float>(step_));
    server_.Kill();
  }
  std::string Refusal() {
    const auto opened = ShardHost::Open(Options(), Clock::Real());
    EXPECT_EQ(opened.status().code(), absl::StatusCode::kDataLoss) << opened.status();
    return std::string(opened.status().message());
  }
  // The newest file that matches FOLDER/BEGIN*END.
  std::string Newest(const std::string& pattern) {
    const std::string folder = pattern.substr(0, pattern.rfind('/'));
    const size_t star = pattern.find('*');
    const std::string begin = pattern.substr(folder.size() + 1, star - folder.size() - 1);
    const std::string end = pattern.substr(star + 1);
    std::string newest;
    for (const auto& entry : fs::directory_iterator(PathOf(folder))) {
      const std::string name = entry.path().filename();
      if (absl::StartsWith(name, begin) && absl::EndsWith(name, end)) {
        newest = std::max(newest, name);
      }
    }
    EXPECT_NE(newest, "") << pattern;
    return folder + "/" + newest;
  }

  TempDir dir_;
  TestServer server_;
  TestClient client_{&server_, 7};
  uint64_t step_ = 0;
};

TEST_F(MissingDataTest, EachMissingFileOrFolderIsRefusedByNameAndTheWayOutIsTold) {
  LeaveData();
  const std::string aside = dir_.path() + "/aside";
  for (const std::string& which :
       {std::string("IDENTITY"), std::string("MARKS"), std::string("CATALOG"),
        std::string("PROMISES"), std::string("log"), std::string("spill"),
        std::string("spill/rows"), std::string("spill/rows/CURRENT"),
        std::string("spill/rows/MANIFEST-*"), std::string("spill/rows/*.sst")}) {
    SCOPED_TRACE(which);
    const std::string name = which.find('*') == which.npos ? which : Newest(which);
    fs::rename(PathOf(name), aside);
    for (int start = 0; start < 2; ++start) {
      const std::string why = Refusal();
      EXPECT_THAT(why, HasSubstr("/data/" + name));
      EXPECT_THAT(why, HasSubstr("--adopt-incomplete"));
      EXPECT_THAT(why, HasSubstr("hotbed salvage"));
    }
    EXPECT_FALSE(fs::exists(PathOf(name))) << "a refused start makes nothing";
    fs::rename(aside, PathOf(name));
  }
  ExpectExact();
}

TEST_F(MissingDataTest, AnOlderFileOrFolderIsRefusedByName) {
  server_.Start();
  PushSome(10);
  ASSERT_TRUE(server_.Stop().ok());
  const std::string older = dir_.path() + "/older";
  fs::copy(PathOf(""), older, fs::copy_options::recursive);
  // Everything changes: another table, an epoch, rows that are flushed, records after them.
  server_.Start();
  PushSome(10);
  ASSERT_TRUE(server_.Stop().ok());
  server_.Start();
  PushSome(10);
  server_.Kill();
  const std::string newer = dir_.path() + "/newer";
  for (const std::string& name : {std::string("IDENTITY"), std::string("MARKS"),
                                  std::string("PROMISES"), std::string("spill")}) {
    SCOPED_TRACE(name);
    fs::rename(PathOf(name), newer);
    fs::copy(absl::StrCat(older, "/", name), PathOf(name), fs::copy_options::recursive);
    EXPECT_THAT(Refusal(), HasSubstr("/data/" + name));
    fs::remove_all(PathOf(name));
    fs::rename(newer, PathOf(name));
  }
  ExpectExact();
}

// A copy has everything that was written before it was made, and may have gone on.
TEST_F(MissingDataTest, PartsOfACopyThatWentOnAreRefusedByName) {
  LeaveData();
  const std::string copy = dir_.path() + "/copy", own = dir_.path() + "/own";
  fs::copy(PathOf(""), copy, fs::copy_options::recursive);
  ShardHostOptions options = Options();
  options.data_dir = copy;
  {
    TestServer other(options, {Table()}, 2);
    other.ContinueFrom(server_);
    other.Start();
    TestClient client(&other, 8);
    client.Push(1, 1, {3}, std::vector<float>(kDim, 1.0f));
    ASSERT_TRUE(other.Stop().ok());
  }
  for (const std::string& name :
       {std::string("log"), std::string("spill"), std::string("spill/rows")}) {
    SCOPED_TRACE(name);
    fs::rename(PathOf(name), own);
    fs::copy(absl::StrCat(copy, "/", name), PathOf(name), fs::copy_options::recursive);
    EXPECT_THAT(Refusal(), HasSubstr("/data/" + name));
    fs::remove_all(PathOf(name));
    fs::rename(own, PathOf(name));
  }
  ExpectExact();
}

// Whole records are missing where the log ends: what is left is served by nobody.
TEST_F(MissingDataTest, ACutLogRefusesItsShardsUntilItIsWhole) {
  LeaveData();
  const std::string segment = PathOf(Newest("log/*.log"));
  const std::string whole = dir_.path() + "/whole";
  fs::copy(segment, whole);
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{64}, fs::file_size(whole) - 200}) {
    SCOPED_TRACE(bytes);
    fs::resize_file(segment, bytes);
    for (int start = 0; start < 2; ++start) {
      server_.Start();
      auto pull = server_.MakePull(1, {3});
      server_.Run(pull.get());
      EXPECT_EQ(pull->segments[0].result.code, SegmentCode::kCorrupt);
      EXPECT_THAT(pull->segments[0].result.detail, HasSubstr(fs::path(segment).filename()));
      server_.Kill();
    }
    fs::copy(whole, segment, fs::copy_options::overwrite_existing);
    ExpectExact();
  }
}

TEST_F(MissingDataTest, AMissingCheckpointIsRefusedByName) {
  TableSpec table = Table();
  table.durability = Durability::kCheckpoint;
  TestServer server(Options(), {table}, 1);
  server.Start();
  TestClient client(&server, 7);
  client.Push(1, 1, {5}, std::vector<float>(kDim, 1.0f));
  ASSERT_TRUE(server.Stop().ok());
  server.Start();
  server.Kill();
  const std::string frozen = PathOf("spill/frozen-000001");
  fs::rename(frozen, dir_.path() + "/aside");
  EXPECT_THAT(Refusal(), HasSubstr("spill/frozen-000001"));
  fs::rename(dir_.path() + "/aside", frozen);
  server.Start();
  EXPECT_EQ(server.Pull(1, {5})[0], -1.0f);
}

TEST_F(MissingDataTest, AFirstStartThatDiedEarlyLeavesNothingToMiss) {
  for (const std::string& name : {std::string("CATALOG"), std::string("MARKS")}) {
    { ASSERT_TRUE(DataDirectory::Open(PathOf(""), FileSystem::Real()).ok()); }
    fs::remove(PathOf(name));
    ASSERT_TRUE(fs::exists(PathOf("IDENTITY")));
  }
  EXPECT_TRUE(ShardHost::Open(Options(), Clock::Real()).ok());
}

TEST_F(MissingDataTest, AdoptIncompleteGivesEverythingUpAndKeepsItAside) {
  LeaveData();
  fs::remove_all(PathOf("log"));
  ShardHostOptions options = Options();
  options.adopt_incomplete = true;
  {
    auto host = ShardHost::Open(options, Clock::Real());
    ASSERT_TRUE(host.ok()) << host.status();
    EXPECT_EQ((*host)->identity().server, 1u) << "it is the same server";
    EXPECT_THAT((*host)->identity().gave_up, HasSubstr("/data/log"));
    EXPECT_TRUE((*host)->Held().empty());
    // The coordinator's record names the process that had the data.
    ShardRecord record = server_.records()[0];
    record.epoch += 1;
    record.active = true;
    record.primary = {1, 8};
    record.members = {record.primary};
    record.base = {record.primary};
    (*host)->SetIncarnation(9);
    ASSERT_TRUE((*host)->ApplyAssignment({Table()}, {record}, {}).ok());
    EXPECT_TRUE((*host)->ShardsToActivate().empty()) << "an empty replica must not serve";
    EXPECT_TRUE((*host)->Held().empty());
    const auto held = (*host)->HeldReplicas(/*asked_for=*/true);
    ASSERT_EQ(held.size(), 1u);
    EXPECT_TRUE(held[0].nothing);
  }
  bool kept = false;
  for (const auto& entry : fs::directory_iterator(PathOf(""))) {
    const std::string name = entry.path().filename();
    if (name.rfind("given-up-", 0) == 0) kept = fs::exists(entry.path() / "spill/rows/CURRENT");
  }
  EXPECT_TRUE(kept);
  // The next start, with the flag still set, gives up nothing more.
  auto again = ShardHost::Open(options, Clock::Real());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ((*again)->identity().gave_up, "");
  EXPECT_TRUE((*again)->Status().shards.empty());
}

// However far the first start of a new directory came, the second one finds nothing missing.
TEST(FirstStartTest, ADiskThatFillsUpDuringTheFirstStartLeavesADirectoryThatStarts) {
  int failed = 0;
  for (uint64_t bytes = 0; bytes < 2000; bytes += 50) {
    FaultFileSystem files(1);
    files.SetFreeBytes(bytes);
    failed += DataDirectory::Open("/data", &files).ok() ? 0 : 1;
    files.Kill();
    files.SetFreeBytes(std::numeric_limits<uint64_t>::max());
    const auto opened = DataDirectory::Open("/data", &files);
    EXPECT_TRUE(opened.ok()) << bytes << " bytes: " << opened.status();
  }
  EXPECT_GT(failed, 0);
}

}  // namespace missing_data_test
}  // namespace hotbed
