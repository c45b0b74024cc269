// CoordinatorLink over Coordinator.Attend.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "leader/leader_stub.h"
#include "server/cluster/attend_stream.h"
#include "tests/server/coordinator_link_fixture.h"

namespace hotbed {
namespace coordinator_attend_test {

class AttendTest : public ::testing::Test, protected LinkFixture {
 protected:
  // Heartbeats come every `interval_ms` only, so that anything sooner did not wait for one.
  void Begin(uint32_t interval_ms = 60'000, int64_t rpc_timeout_ms = 2000) {
    coordinator_.SetHeartbeatIntervalMs(interval_ms);
    StartCoordinator(0);
    StartLink("s1", rpc_timeout_ms);
    ASSERT_TRUE(WaitFor([&] { return host_.assignments() == 1; }));
  }
  static void AddServer(ServerId server, Incarnation incarnation, bool live, v1::ClusterMap* map) {
    v1::ServerInfo* const info = map->add_servers();
    info->set_server(server);
    info->set_incarnation(incarnation);
    info->set_address(absl::StrCat("host-", server, ":1"));
    info->set_live(live);
  }
  // A record of shard 1/`index`; the first of `members` is its primary.
  static void AddShared(uint32_t index, Epoch epoch, bool active,
                        const std::vector<Member>& members, v1::ClusterMap* map) {
    v1::ShardRecord* const record = map->add_shards();
    FillRecord({1, index}, epoch, active, record);
    for (const Member& member : members) {
      v1::Member* const to = record->add_members();
      to->set_server(member.server);
      to->set_incarnation(member.incarnation);
    }
    *record->mutable_primary() = record->members(0);
  }
};

TEST_F(AttendTest, NewsAreAppliedAsTheyCome) {
  Begin();
  const int heartbeats = coordinator_.heartbeats();
  v1::HeartbeatReply news;
  news.set_lease_held(true);
  news.mutable_map()->set_plan_revision(41);
  news.mutable_map()->set_delta(true);
  FillRecord({1, 7}, 9, true, news.mutable_map()->add_shards());
  ASSERT_TRUE(coordinator_.Tell(news));
  ASSERT_TRUE(WaitFor([&] { return host_.RecordOf({1, 7}).has_value(); }));
  ASSERT_TRUE(WaitFor([&] { return link_->status().plan_revision == 41; }));
  EXPECT_EQ(coordinator_.heartbeats(), heartbeats);
}

TEST_F(AttendTest, ALostReplicaIsToldAtOnceAndAgain) {
  Begin();
  const int heartbeats = coordinator_.heartbeats();
  host_.set_lost_replicas({{{1, 2}, 5, "it differs"}});
  host_.Notify();
  ASSERT_TRUE(WaitFor([&] { return coordinator_.last().replicas_lost_size() == 1; }));
  EXPECT_EQ(coordinator_.last().replicas_lost(0).shard(), (ShardId{1, 2}).packed());
  EXPECT_EQ(coordinator_.last().replicas_lost(0).epoch(), 5u);
  EXPECT_EQ(coordinator_.last().replicas_lost(0).why(), "it differs");
  for (int i = 0; i < 100; ++i) host_.Notify();  // nothing new
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_EQ(coordinator_.heartbeats(), heartbeats + 1);
  // The next heartbeat, whatever causes it, reports it again.
  host_.set_joins({{{1, 3}, 5, {8, 80}}});
  host_.Notify();
  ASSERT_TRUE(WaitFor([&] { return coordinator_.last().join_ready_size() == 1; }));
  EXPECT_EQ(coordinator_.last().replicas_lost_size(), 1);
}

TEST_F(AttendTest, ActivationsAndJoinsDoNotWaitForAHeartbeat) {
  Begin();
  host_.set_waiting({{{1, 2}, 5}});
  host_.Notify();
  ASSERT_TRUE(WaitFor([&] { return coordinator_.activated() == 1; }));

  const int heartbeats = coordinator_.heartbeats();
  host_.set_silent({{{1, 3}, 6, {9, 90}}});
  host_.set_joins({{{1, 2}, 5, {8, 80}}});
  host_.Notify();
  ASSERT_TRUE(WaitFor([&] { return coordinator_.last().join_ready_size() == 1; }));
  EXPECT_EQ(coordinator_.last().join_ready(0).epoch(), 5u);
  ASSERT_EQ(coordinator_.last().silent_size(), 1);
  EXPECT_EQ(coordinator_.last().silent(0).shard(), (ShardId{1, 3}).packed());
  EXPECT_EQ(coordinator_.last().silent(0).epoch(), 6u);
  EXPECT_EQ(coordinator_.last().silent(0).member().server(), 9u);
  EXPECT_EQ(coordinator_.last().silent(0).member().incarnation(), 90u);
  EXPECT_EQ(coordinator_.last().join_ready(0).member().server(), 8u);
  for (int i = 0; i < 100; ++i) host_.Notify();  // nothing new
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_EQ(coordinator_.heartbeats(), heartbeats + 1);
}

// A failed activation is requested again.
TEST_F(AttendTest, ActivationsAreAskedForUntilTheyAre) {
  Begin();
  StopCoordinator();
  host_.set_waiting({{{1, 2}, 5}});
  host_.Notify();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  StartCoordinator(port_);
  EXPECT_TRUE(WaitFor([&] { return coordinator_.activated() >= 1; }));
}

TEST_F(AttendTest, SaysWhatThisServerDoes) {
  HostStatus status;
  for (const char* key : {"hot_bytes", "host_bytes_limit", "spill_bytes", "log_bytes"}) {
    status.numbers.Add(key, "", "", key == std::string("host_bytes_limit") ? 1234 : 0);
  }
  host_.set_status(status);
  host_.AddShard({1, 2}, 4, 5);
  host_.set_transfers({{{1, 2}, {8, 80}, 10, 100, 5, 2, 7, true}});
  host_.set_held({{1, 2}, {6, 1}});
  Begin(/*interval_ms=*/5);
  ASSERT_TRUE(WaitFor([&] { return coordinator_.last().held_unnamed_size() == 1; }));
  const v1::HeartbeatRequest last = coordinator_.last();
  EXPECT_EQ(last.load().host_bytes_limit(), 1234u);
  ASSERT_EQ(last.load().shards_size(), 1);
  EXPECT_EQ(ShardId::FromPacked(last.load().shards(0).shard()), (ShardId{1, 2}));
  ASSERT_EQ(last.transfers_size(), 1);
  EXPECT_EQ(last.transfers(0).bytes_copied(), 10u);
  EXPECT_EQ(last.transfers(0).passes(), 2u);
  EXPECT_EQ(last.transfers(0).changed_bytes_per_s(), 7u);
  EXPECT_TRUE(last.transfers(0).beyond_rate());
  EXPECT_EQ(last.transfers(0).to().incarnation(), 80u);
  EXPECT_EQ(ShardId::FromPacked(last.held_unnamed(0)), (ShardId{6, 1}));
  // Once a map has named it, it is not reported any more.
  v1::HeartbeatReply news;
  news.set_lease_held(true);
  news.mutable_map()->set_plan_revision(41);
  news.mutable_map()->set_delta(true);
  FillRecord({6, 1}, 9, true, news.mutable_map()->add_shards());
  ASSERT_TRUE(coordinator_.Tell(news));
  EXPECT_TRUE(WaitFor([&] { return coordinator_.last().held_unnamed_size() == 0; }));
}

TEST_F(AttendTest, KnowsWhereOthersAreAndHowFastToTransfer) {
  v1::ClusterMap servers;
  AddServer(7, 101, true, &servers);
  AddServer(8, 80, true, &servers);
  coordinator_.SetServers(servers);
  v1::TransferLimits limits;
  limits.set_bytes_per_s(5'000'000);
  limits.set_paused(true);
  coordinator_.SetTransferLimits(limits);
  Begin();
  EXPECT_EQ(network_.peers(), "self 7/101 of cluster-a, 7/101 at host-7:1, 8/80 at host-8:1");
  EXPECT_EQ(host_.transfer_limits().bytes_per_s, 5'000'000u);
  EXPECT_TRUE(host_.transfer_limits().paused);
  v1::HeartbeatReply news;  // 8 came back, 9 is new; limits are absent and stay
  news.set_lease_held(true);
  news.mutable_map()->set_plan_revision(41);
  news.mutable_map()->set_delta(true);
  AddServer(8, 81, true, news.mutable_map());
  AddServer(9, 90, false, news.mutable_map());
  ASSERT_TRUE(coordinator_.Tell(news));
  EXPECT_TRUE(WaitFor([&] {
    return network_.peers() ==
           "self 7/101 of cluster-a, 7/101 at host-7:1, 8/81 at host-8:1, "
           "9/90 at host-9:1";
  })) << network_.peers();
  EXPECT_TRUE(host_.transfer_limits().paused);
}

TEST_F(AttendTest, TellsTheHostWhatWasGivenOut) {
  Begin();
  v1::HeartbeatReply news;
  news.set_lease_held(true);
  news.mutable_given()->set_session(12);
  news.mutable_given()->add_steps()->set_table(3);
  news.mutable_given()->mutable_steps(0)->set_step(40);
  ASSERT_TRUE(coordinator_.Tell(news));
  ASSERT_TRUE(WaitFor([&] { return host_.session_given() == 12; }));
  ASSERT_EQ(host_.steps_given().size(), 1u);
  EXPECT_EQ(host_.steps_given()[0].table, 3u);
  EXPECT_EQ(host_.steps_given()[0].step, 40u);
}

TEST_F(AttendTest, TheLeaseCountsFromBeforeTheHeartbeatLeft) {
  const int64_t begin_ns = Clock::Real()->NowNs();
  Begin(/*interval_ms=*/20);
  const int64_t length_ns = 3'000'000'000 - CoordinatorLink::LeaseMarginNs(3'000'000'000);
  ASSERT_TRUE(WaitFor([&] { return host_.lease_until_ns() > 0; }));
  EXPECT_GE(host_.lease_until_ns(), begin_ns + length_ns);
  EXPECT_LE(host_.lease_until_ns(), Clock::Real()->NowNs() + length_ns);
  // An unanswered heartbeat renews nothing.
  coordinator_.SetSilent(true);
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  const int64_t until_ns = host_.lease_until_ns();
  v1::HeartbeatReply news;
  news.set_lease_held(true);
  news.set_lease_ttl_ms(3000);
  ASSERT_TRUE(coordinator_.Tell(news));
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  EXPECT_EQ(host_.lease_until_ns(), until_ns);
  coordinator_.SetSilent(false);
  ASSERT_TRUE(WaitFor([&] { return host_.lease_until_ns() > until_ns; }));
  coordinator_.LoseLease();
  ASSERT_TRUE(WaitFor([&] { return coordinator_.registrations() == 2; }));
}

// While the lease was lost, others may have replaced its shards as primaries: the map that says so
// comes before the lease.
TEST_F(AttendTest, ANewIncarnationHasNoLeaseBeforeItsFirstMap) {
  Begin(/*interval_ms=*/5);
  ASSERT_TRUE(WaitFor([&] { return host_.lease_until_ns() > 0; }));
  coordinator_.LoseLease();
  ASSERT_TRUE(WaitFor([&] { return coordinator_.registrations() == 2; }));
  ASSERT_TRUE(WaitFor([&] { return host_.assignments() > 1; }));
  EXPECT_EQ(host_.lease_when_assigned_ns(), 0);
  ASSERT_TRUE(WaitFor([&] { return host_.lease_until_ns() > 0; }));
}

TEST_F(AttendTest, ABrokenStreamIsReopenedByTheSameProcess) {
  Begin(/*interval_ms=*/5);
  for (int i = 0; i < 5; ++i) {
    coordinator_.CutStreams();
    const int heartbeats = coordinator_.heartbeats();
    ASSERT_TRUE(WaitFor([&] { return coordinator_.heartbeats() > heartbeats + 2; }));
  }
  EXPECT_EQ(coordinator_.registrations(), 1);
  EXPECT_EQ(coordinator_.streams(), 1);
  EXPECT_EQ(host_.incarnation(), 101u);
}

// For example stopped in a debugger: connected, but silent.
TEST_F(AttendTest, ASilentCoordinatorIsLeftAndRetried) {
  Begin(/*interval_ms=*/5, /*rpc_timeout_ms=*/100);
  coordinator_.SetSilent(true);
  ASSERT_TRUE(WaitFor([&] { return !link_->status().error.empty(); }));
  EXPECT_EQ(coordinator_.registrations(), 1);
  coordinator_.SetSilent(false);
  EXPECT_TRUE(WaitFor([&] { return link_->status().error.empty(); }));
  EXPECT_EQ(coordinator_.registrations(), 1);
}

TEST_F(AttendTest, ADrainWaitsUntilOthersHaveTakenOver) {
  v1::ClusterMap servers;
  AddServer(7, 101, true, &servers);
  AddServer(8, 80, true, &servers);
  AddServer(9, 90, false, &servers);
  coordinator_.SetServers(servers);
  for (uint32_t index = 2; index < 6; ++index) host_.AddShard({1, index}, 4, 5);
  Begin();
  const Member self = {7, 101}, other = {8, 80}, dead = {9, 90};
  v1::HeartbeatReply news;
  news.set_lease_held(true);
  v1::ClusterMap* const map = news.mutable_map();
  map->set_delta(true);
  map->set_plan_revision(41);
  AddShared(2, 9, true, {self}, map);         // it is the only member
  AddShared(3, 9, true, {self, other}, map);  // to be switched
  AddShared(4, 9, true, {self, dead}, map);   // the other member is dead
  AddShared(5, 9, true, {other, self}, map);  // the other server is the primary, and waits for this
  ASSERT_TRUE(coordinator_.Tell(news));
  ASSERT_TRUE(WaitFor([&] { return link_->status().plan_revision == 41; }));

  EXPECT_FALSE(link_->Drain(50));
  EXPECT_TRUE(coordinator_.draining());  // told at once, by the stream
  bool drained = false;
  std::thread waiter([&] { drained = link_->Drain(10'000); });
  map->clear_shards();
  map->set_plan_revision(42);
  AddShared(3, 10, false, {other, self}, map);  // switched, but it may still need the log here
  ASSERT_TRUE(coordinator_.Tell(news));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(drained);
  map->clear_shards();
  map->set_plan_revision(43);
  AddShared(3, 11, true, {other}, map);
  ASSERT_TRUE(coordinator_.Tell(news));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(drained);
  map->clear_shards();
  map->set_plan_revision(44);
  AddShared(5, 10, true, {other}, map);
  ASSERT_TRUE(coordinator_.Tell(news));
  waiter.join();
  EXPECT_TRUE(drained);
}

TEST_F(AttendTest, ADrainEndsWhereNothingIsHandedOver) {
  v1::ClusterMap servers;
  AddServer(8, 80, true, &servers);
  coordinator_.SetServers(servers);
  host_.AddShard({1, 3}, 4, 5);
  Begin();
  v1::HeartbeatReply news;
  news.set_lease_held(true);
  news.mutable_map()->set_delta(true);
  news.mutable_map()->set_plan_revision(41);
  AddShared(3, 9, true, {{7, 101}, {8, 80}}, news.mutable_map());
  ASSERT_TRUE(coordinator_.Tell(news));
  ASSERT_TRUE(WaitFor([&] { return link_->status().plan_revision == 41; }));
  const int64_t begin_ns = Clock::Real()->NowNs();
  EXPECT_FALSE(link_->Drain(60'000));
  EXPECT_LT(Clock::Real()->NowNs() - begin_ns, 20'000'000'000);
}

TEST_F(AttendTest, ADrainDoesNotWaitForACoordinatorThatIsAway) {
  v1::ClusterMap servers;
  AddServer(8, 80, true, &servers);
  coordinator_.SetServers(servers);
  host_.AddShard({1, 3}, 4, 5);
  Begin();
  v1::HeartbeatReply news;
  news.set_lease_held(true);
  news.mutable_map()->set_delta(true);
  news.mutable_map()->set_plan_revision(41);
  AddShared(3, 9, true, {{7, 101}, {8, 80}}, news.mutable_map());
  ASSERT_TRUE(coordinator_.Tell(news));
  ASSERT_TRUE(WaitFor([&] { return link_->status().plan_revision == 41; }));
  StopCoordinator();
  const int64_t begin_ns = Clock::Real()->NowNs();
  EXPECT_FALSE(link_->Drain(60'000));
  EXPECT_LT(Clock::Real()->NowNs() - begin_ns, 20'000'000'000);
}

// The stream alone.
class StreamTest : public ::testing::Test, protected LinkFixture {
 protected:
  void SetUp() override {
    StartCoordinator(0);
    leader_ = std::make_unique<LeaderStub>(absl::StrCat("127.0.0.1:", port_), ClientIdentity(),
                                           grpc::ChannelArguments());
    stream_ = std::make_unique<AttendStream>(
        leader_.get(), Clock::Real(),
        [this](const v1::HeartbeatReply& reply, int64_t) { return OnReply(reply); }, [] {});
    Send();
    ASSERT_TRUE(WaitFor([&] { return applied() == 40; }));
  }
  void TearDown() override {
    Hold(false);
    stream_.reset();
  }
  void Send() {
    v1::HeartbeatRequest request;
    stream_->Send(applied(), &request);
  }
  // Between two heartbeats, with a shard of this index.
  void Tell(uint64_t revision) {
    v1::HeartbeatReply news;
    news.set_lease_held(true);
    news.mutable_map()->set_plan_revision(revision);
    news.mutable_map()->set_delta(true);
    ASSERT_TRUE(coordinator_.Tell(news));
  }
  void Hold(bool hold) {
    absl::MutexLock lock(&mu_);
    hold_ = hold;
  }
  void FailNext() {
    absl::MutexLock lock(&mu_);
    fail_next_ = true;
  }
  uint64_t applied() {
    absl::MutexLock lock(&mu_);
    return applied_;
  }
  int replies() {
    absl::MutexLock lock(&mu_);
    return replies_;
  }

  std::unique_ptr<LeaderStub> leader_;
  std::unique_ptr<AttendStream> stream_;

 private:
  absl::Status OnReply(const v1::HeartbeatReply& reply) {
    absl::MutexLock lock(&mu_);
    ++replies_;
    const auto may = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return !hold_; };
    mu_.Await(absl::Condition(&may));
    if (std::exchange(fail_next_, false)) return absl::UnavailableError("as the test asks");
    if (reply.map().plan_revision() != 0) applied_ = reply.map().plan_revision();
    return absl::OkStatus();
  }

  absl::Mutex mu_;
  bool hold_ ABSL_GUARDED_BY(mu_) = false;
  bool fail_next_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t applied_ ABSL_GUARDED_BY(mu_) = 0;
  int replies_ ABSL_GUARDED_BY(mu_) = 0;
};

// A map that opens a thousand shards takes a while, and a lease hangs on the heartbeats.
TEST_F(StreamTest, HeartbeatsAreAnsweredWhileAMapIsApplied) {
  Hold(true);
  const int replies = this->replies();
  Tell(41);
  ASSERT_TRUE(WaitFor([&] { return this->replies() == replies + 1; }));
  for (int i = 0; i < 20; ++i) {
    Send();
    ASSERT_TRUE(WaitFor([&] { return stream_->unanswered() == 0; })) << i;
  }
  EXPECT_EQ(coordinator_.last().plan_revision_known(), 41u) << "it is not asked for again";
  EXPECT_EQ(this->replies(), replies + 1);
  Hold(false);
  EXPECT_TRUE(WaitFor([&] { return this->replies() == replies + 21; }));
}

// A map goes on from the one before: one behind a map that failed would leave a gap.
TEST_F(StreamTest, AMapBehindOneThatFailedIsLeftOutUntilBothComeAgain) {
  const int replies = this->replies();
  FailNext();
  Tell(41);
  Tell(42);
  ASSERT_TRUE(WaitFor([&] { return this->replies() == replies + 2; }));
  EXPECT_EQ(applied(), 40u);
  coordinator_.SetMap("cluster-a", 43, 0);
  Send();
  EXPECT_TRUE(WaitFor([&] { return applied() == 43; }));
  EXPECT_EQ(coordinator_.last().plan_revision_known(), 40u);
  Tell(44);
  EXPECT_TRUE(WaitFor([&] { return applied() == 44; }));
}

}  // namespace coordinator_attend_test
}  // namespace hotbed
