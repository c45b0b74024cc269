// ChangeStream over a server whose answers the test chooses: its age must never be less than it is,
// and rows that it has told must not stay when they are gone.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "client/changes/follow_as.h"
#include "common/clock.h"
#include "common/ids.h"
#include "hotbed/changes.h"
#include "proto/changes.grpc.pb.h"
#include "proto/control.grpc.pb.h"

namespace hotbed {
namespace change_age_test {

constexpr uint32_t kTable = 5;

// A coordinator and the primary of the table's two shards, on one port. Its lists are empty.
class FakeSource : public v1::Coordinator::Service, public v1::Changes::Service {
 public:
  enum class Says { kNothingNew, kMore, kElsewhere, kBehind, kLost };

  FakeSource() {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(static_cast<v1::Coordinator::Service*>(this));
    builder.RegisterService(static_cast<v1::Changes::Service*>(this));
    server_ = builder.BuildAndStart();
    address_ = absl::StrCat("127.0.0.1:", port);
  }
  ~FakeSource() override { server_->Shutdown(); }
  const std::string& address() const { return address_; }

  // The answers of shard 1 from now on; shard 0 has nothing new.
  void Say(Says says) {
    absl::MutexLock lock(&mu_);
    says_ = says;
  }
  void EndLists(bool ends) {
    absl::MutexLock lock(&mu_);
    ends_lists_ = ends;
  }
  void SetTable(uint32_t table) {
    absl::MutexLock lock(&mu_);
    table_ = table;
  }

  grpc::Status GetClusterMap(grpc::ServerContext*, const v1::GetClusterMapRequest*,
                             v1::ClusterMap* map) override {
    absl::MutexLock lock(&mu_);
    map->set_cluster_id("c");
    v1::ServerInfo& server = *map->add_servers();
    server.set_server(10);
    server.set_address(address_);
    v1::TableSpec& table = *map->add_tables();
    table.set_id(table_);
    table.set_name("t");
    table.set_hashed(true);
    for (uint32_t i = 0; i < 2; ++i) {
      v1::ShardRecord& shard = *map->add_shards();
      shard.set_shard(ShardId{table_, i}.packed());
      shard.set_range_first(i * 50);
      shard.set_range_limit(i * 50 + 50);
      shard.mutable_primary()->set_server(10);
    }
    return grpc::Status::OK;
  }

  grpc::Status ListRows(grpc::ServerContext*, const v1::ListRowsRequest* request,
                        v1::ListRowsReply* reply) override {
    absl::MutexLock lock(&mu_);
    const bool second = ShardId::FromPacked(request->shard()).index == 1;
    if (second && says_ == Says::kElsewhere) {
      reply->set_elsewhere(true);
      return grpc::Status::OK;
    }
    if (second && says_ == Says::kLost && request->above().through().lsn() != 0) {
      reply->set_lost(true);
      return grpc::Status::OK;
    }
    reply->set_ended(ends_lists_);
    reply->mutable_at()->mutable_through()->set_epoch(1);
    reply->mutable_at()->mutable_through()->set_lsn(9);
    *reply->mutable_at()->mutable_seen() = reply->at().through();
    return grpc::Status::OK;
  }

  grpc::Status ReadChanges(grpc::ServerContext*, const v1::ReadChangesRequest* request,
                           v1::ReadChangesReply* reply) override {
    Clock::Real()->SleepNs(kMillisecondNs);
    absl::MutexLock lock(&mu_);
    reply->set_more(says_ == Says::kMore);
    for (const v1::FollowedShard& asked : request->shards()) {
      if (ShardId::FromPacked(asked.shard()).index != 1) continue;
      if (says_ != Says::kElsewhere && says_ != Says::kBehind && says_ != Says::kLost) continue;
      v1::ShardChanges& said = *reply->add_shards();
      said.set_shard(asked.shard());
      (says_ == Says::kElsewhere) ? said.set_elsewhere(true) : said.set_behind(true);
    }
    return grpc::Status::OK;
  }

 private:
  std::string address_;
  absl::Mutex mu_;
  Says says_ ABSL_GUARDED_BY(mu_) = Says::kNothingNew;
  bool ends_lists_ ABSL_GUARDED_BY(mu_) = true;
  uint32_t table_ ABSL_GUARDED_BY(mu_) = kTable;
  std::unique_ptr<grpc::Server> server_;
};

class ChangeAgeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    v1::TableSpec spec;
    spec.set_id(kTable);
    spec.set_name("t");
    auto stream = FollowAs(source_.address(), {}, spec, {.patience = absl::InfiniteDuration()});
    ASSERT_TRUE(stream.ok()) << stream.status();
    stream_ = *std::move(stream);
  }
  // Reads on for so long; true if it was told `again`.
  bool Read(absl::Duration duration) {
    const int64_t end_ns = Clock::Real()->NowNs() + absl::ToInt64Nanoseconds(duration);
    bool again = false;
    while (Clock::Real()->NowNs() < end_ns) {
      const auto changes = stream_->Next(absl::Milliseconds(5));
      EXPECT_TRUE(changes.ok()) << changes.status();
      if (!changes.ok()) break;
      again = again || (changes->has_value() && (*changes)->again);
    }
    return again;
  }
  // Reads on until the age is finite and below.
  void ReadUntilBelow(absl::Duration age) {
    while (stream_->Age() >= age) Read(absl::Milliseconds(5));
  }
  // From now on nothing that is said may lower the age: what was asked before has been answered.
  void ExpectGrowth() {
    Read(absl::Milliseconds(300));
    const absl::Duration before = stream_->Age();
    const int64_t begun_ns = Clock::Real()->NowNs();
    Read(absl::Milliseconds(100));
    EXPECT_GE(stream_->Age(), before + absl::Nanoseconds(Clock::Real()->NowNs() - begun_ns) -
                                  absl::Milliseconds(1));
  }

  FakeSource source_;
  std::unique_ptr<ChangeStream> stream_;
};

TEST_F(ChangeAgeTest, IsInfiniteUntilListsHaveEndedAndAServerIsSureOfItself) {
  EXPECT_EQ(stream_->Age(), absl::InfiniteDuration());
  source_.EndLists(false);
  Read(absl::Milliseconds(100));
  EXPECT_EQ(stream_->Age(), absl::InfiniteDuration());
  source_.Say(FakeSource::Says::kMore);
  source_.EndLists(true);
  Read(absl::Milliseconds(300));
  EXPECT_EQ(stream_->Age(), absl::InfiniteDuration());
  source_.Say(FakeSource::Says::kNothingNew);
  ReadUntilBelow(absl::InfiniteDuration());
  EXPECT_GT(stream_->Age(), absl::ZeroDuration());
}

TEST_F(ChangeAgeTest, GrowsWhileTheServerIsNotSureOrHasMore) {
  ReadUntilBelow(absl::InfiniteDuration());
  source_.Say(FakeSource::Says::kMore);
  ExpectGrowth();
  source_.Say(FakeSource::Says::kNothingNew);
  ReadUntilBelow(absl::Milliseconds(250));
}

TEST_F(ChangeAgeTest, GrowsWhileOneShardIsElsewhere) {
  ReadUntilBelow(absl::InfiniteDuration());
  source_.Say(FakeSource::Says::kElsewhere);
  ExpectGrowth();
  source_.Say(FakeSource::Says::kNothingNew);
  ReadUntilBelow(absl::Milliseconds(400));
}

TEST_F(ChangeAgeTest, GrowsWhileAShardIsListedAgain) {
  ReadUntilBelow(absl::InfiniteDuration());
  source_.EndLists(false);
  source_.Say(FakeSource::Says::kBehind);
  ExpectGrowth();
  EXPECT_LT(stream_->Age(), absl::InfiniteDuration());
}

TEST_F(ChangeAgeTest, IsInfiniteWhereToldChangesWereLost) {
  ReadUntilBelow(absl::InfiniteDuration());
  source_.EndLists(false);
  source_.Say(FakeSource::Says::kLost);
  while (!Read(absl::Milliseconds(10))) {
  }
  EXPECT_EQ(stream_->Age(), absl::InfiniteDuration());
}

// A row that was told may be deleted before the next list, which does not name it.
TEST_F(ChangeAgeTest, AFirstListThatWasBrokenOffIsToldAgain) {
  source_.EndLists(false);
  EXPECT_FALSE(Read(absl::Milliseconds(50)));
  source_.Say(FakeSource::Says::kElsewhere);
  while (!Read(absl::Milliseconds(10))) {
  }
}

TEST_F(ChangeAgeTest, GrowsWhileNobodyReads) {
  ReadUntilBelow(absl::InfiniteDuration());
  const absl::Duration before = stream_->Age();
  Clock::Real()->SleepNs(30 * kMillisecondNs);
  EXPECT_GE(stream_->Age(), before + absl::Milliseconds(30));
}

TEST_F(ChangeAgeTest, AnotherTableOfTheSameNameIsNotFollowed) {
  source_.SetTable(kTable + 1);
  v1::TableSpec spec;
  spec.set_id(kTable);
  spec.set_name("t");
  const auto stream = FollowAs(source_.address(), {}, spec, {});
  EXPECT_EQ(stream.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(stream.status().message(), ::testing::HasSubstr("was dropped"));
}

}  // namespace change_age_test
}  // namespace hotbed
