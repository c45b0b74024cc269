// A trainer's half of steps: its requests to the group, the pushes that it admits, the delivery of
// commits to shards. Coordinator and servers are scripted in memory; tests/steps has real ones.
#include "client/trainers/trainer_member.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "client/client_impl.h"
#include "proto/convert.h"
#include "tests/proto/segment_twin.h"

namespace hotbed {
namespace trainer_member_test {

using testing::HasSubstr;

constexpr SessionId kSession = 42;
constexpr uint32_t kShards = 3;

// One synchronous table, "sync", of three shards on one server, and one of staleness 1, "bounded".
class ScriptedControl : public ControlPlane {
 public:
  absl::StatusOr<MapUpdate> GetMap(uint64_t, absl::Duration) override {
    MapUpdate map;
    map.cluster_id = "test";
    map.plan_revision = 1;
    for (const TableId id : {1u, 2u}) {
      TableSpec table;
      table.id = id;
      table.name = id == 1 ? "sync" : "bounded";
      table.rows = 30;
      table.dim = 2;
      table.consistency = id == 1 ? Consistency::kSync : Consistency::kBounded;
      table.staleness = 1;
      map.tables.push_back(table);
      for (uint32_t i = 0; i < kShards; ++i) map.shards.push_back(Record({id, i}, 1));
    }
    map.servers.push_back({1, 1, "server:1", 0});
    return map;
  }
  static ShardRecord Record(ShardId shard, Epoch epoch) {
    ShardRecord record;
    record.shard = shard;
    record.range = {shard.index * 10, shard.index * 10 + 10, 0, 2};
    record.epoch = epoch;
    record.revision = epoch;
    record.primary = {1, 1};
    record.members = {record.primary};
    record.active = true;
    return record;
  }
  absl::Status Watch(uint64_t, const std::function<void(const MapUpdate&)>&) override {
    absl::MutexLock lock(&mu_);
    mu_.Await(absl::Condition(&stopped_));
    return absl::CancelledError("stopped");
  }
  void StopWatching() override {
    absl::MutexLock lock(&mu_);
    stopped_ = true;
  }
  absl::StatusOr<MapUpdate> CreateTable(const TableSpec&, bool, absl::Duration) override {
    return absl::UnimplementedError("");
  }
  absl::StatusOr<MapUpdate> DropTable(const std::string&, absl::Duration) override {
    return absl::UnimplementedError("");
  }
  absl::StatusOr<SessionIdentity> OpenSession(const std::string&, absl::Duration) override {
    return SessionIdentity{kSession, 1};
  }
  absl::StatusOr<v1::TrainReply> Train(const v1::TrainRequest& request, absl::Duration) override {
    absl::MutexLock lock(&mu_);
    asked.push_back(request);
    if (answers.empty()) return last_answer_;
    absl::StatusOr<v1::TrainReply> reply = answers.front();
    answers.pop_front();
    return reply;
  }

  // The answer to all requests after `answers`.
  void SetLastAnswer(const v1::TrainReply& reply) {
    absl::MutexLock lock(&mu_);
    last_answer_ = reply;
  }

  std::vector<v1::TrainRequest> asked;
  std::deque<absl::StatusOr<v1::TrainReply>> answers;

 private:
  static v1::TrainReply Alone() {
    v1::TrainReply reply;
    reply.set_member(true);
    reply.set_lease_ms(60000);
    return reply;
  }

  v1::TrainReply last_answer_ = Alone();
  absl::Mutex mu_;
  bool stopped_ = false;
};

// Answers every segment OK except those that the script answers.
class ScriptedTransport : public Transport {
 public:
  ~ScriptedTransport() override {
    for (std::thread& thread : threads_) thread.join();
  }
  void Send(const std::string&, Lane, OutgoingMessage message,
            std::shared_ptr<PendingRequest> request) override {
    v1::PushHeader header;
    ASSERT_TRUE(header.ParseFromString(message.header));
    auto view = std::make_shared<PullReplyView>();
    for (const PushAsk& segment : AskedOf(header)) {
      v1::SegmentReply reply;
      reply.set_epoch(segment.epoch);
      reply.set_last_seq(segment.seq);
      if (segment.commit != 0) {
        const v1::StepCommit& commit = header.commits(segment.commit - 1);
        if (script) reply = script(segment, reply);
        if (reply.code() == v1::OK) committed.push_back({segment.shard.packed(), commit.step()});
      }
      AddAnswer(reply, ++lsn_, segment.epoch, segment.seq, &view->header);
    }
    threads_.emplace_back([view, request = std::move(request)] {
      ServerReply reply;
      reply.view = view.get();
      reply.segment_count = view->header.segments();
      reply.whole = true;
      request->Done(absl::OkStatus(), &reply);
    });
  }
  void SetSession(uint64_t, uint64_t) override {}
  void SetClusterId(const std::string&) override {}
  uint64_t MessageBytesMax() const override { return 0; }
  ClientStats Stats() const override { return {}; }

  std::function<v1::SegmentReply(const PushAsk&, v1::SegmentReply)> script;
  std::vector<std::pair<uint64_t, uint64_t>> committed;  // shard, step

 private:
  uint64_t lsn_ = 0;
  std::vector<std::thread> threads_;
};

class TrainerMemberTest : public testing::Test {
 protected:
  void Connect(const std::string& group) {
    ClientOptions options;
    options.session_name = "t";
    options.trainer_group = group;
    options.deadline = absl::Seconds(5);
    auto control = std::make_unique<ScriptedControl>();
    auto transport = std::make_unique<ScriptedTransport>();
    control_ = control.get();
    transport_ = transport.get();
    auto client = std::make_unique<ClientImpl>(options, std::move(control), std::move(transport),
                                               Clock::Real(), 1);
    ASSERT_TRUE(client->Start().ok());
    client_ = std::move(client);
    sync_ = *client_->OpenTable("sync");
    bounded_ = *client_->OpenTable("bounded");
  }
  v1::TrainReply Answer(uint64_t committed, std::vector<SessionId> sessions, uint64_t ended = 0,
                        uint64_t ended_min = 0) {
    v1::TrainReply reply;
    reply.set_member(true);
    reply.set_lease_ms(60000);
    reply.set_ended_step(ended);
    reply.set_ended_min(ended_min);
    reply.set_slowest("other");
    reply.mutable_commit()->set_step(committed);
    if (committed == 0) return reply;
    for (const SessionId session : sessions) reply.mutable_commit()->add_sessions(session);
    reply.mutable_commit()->add_tables(1);
    return reply;
  }
  PushResult Push(const Table* table, uint64_t step, bool assign = false) {
    const std::vector<uint64_t> ids = {1, 15};
    const std::vector<float> gradients(4, 1.0f);
    const PushFeature feature{table, ids, gradients.data()};
    PushOptions options;
    options.assign = assign;
    return client_->Push(step, {&feature, 1}, options).Wait();
  }
  static std::pair<uint64_t, uint64_t> At(uint32_t shard, uint64_t step) {
    return {ShardId{1, shard}.packed(), step};
  }

  std::unique_ptr<Client> client_;
  ScriptedControl* control_ = nullptr;
  ScriptedTransport* transport_ = nullptr;
  const Table* sync_ = nullptr;
  const Table* bounded_ = nullptr;
};

TEST_F(TrainerMemberTest, WithoutAGroupSuchTablesTakeNoPushes) {
  Connect("");
  for (const Table* table : {sync_, bounded_}) {
    const PushResult refused = Push(table, 1);
    EXPECT_EQ(refused.outcome, PushResult::Outcome::kFailed);
    EXPECT_EQ(refused.status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(refused.status.message(), HasSubstr("table " + table->name()));
    EXPECT_THAT(refused.status.message(), HasSubstr("set ClientOptions::trainer_group"));
  }
  EXPECT_FALSE(client_->JoinTrainers().ok());
  const PushResult assigned = Push(sync_, 1, /*assign=*/true);
  EXPECT_TRUE(assigned.status.ok()) << "no step";
  EXPECT_FALSE(assigned.staged);
}

TEST_F(TrainerMemberTest, JoinsFirst) {
  Connect("g");
  EXPECT_THAT(Push(sync_, 1).status.message(), HasSubstr("call Client::JoinTrainers first"));
  EXPECT_EQ(client_->EndStep(1).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(TrainerMemberTest, AStepFromItsBeginToItsEnd) {
  Connect("g");
  control_->answers.push_back(Answer(4, {7}, /*ended=*/4));
  const absl::StatusOr<uint64_t> next = client_->JoinTrainers();
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ(*next, 5u);
  EXPECT_THAT(transport_->committed, testing::UnorderedElementsAre(At(0, 4), At(1, 4), At(2, 4)))
      << "whoever was to bring the last commit may have died";
  transport_->committed.clear();

  const PushResult pushed = Push(sync_, 5);
  EXPECT_TRUE(pushed.status.ok()) << pushed.status;
  EXPECT_TRUE(pushed.staged);
  const PushResult early = Push(sync_, 6);
  EXPECT_EQ(early.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(early.status.message(), HasSubstr("call Client::EndStep(5) before step 6"));

  control_->asked.clear();
  control_->answers.push_back(absl::UnavailableError("restarting"));
  control_->answers.push_back(Answer(4, {7}));  // it waited for a while
  control_->answers.push_back(Answer(5, {7, kSession}));
  // A shard moves meanwhile.
  bool moved = false;
  transport_->script = [&](const PushAsk& segment, v1::SegmentReply reply) {
    if (segment.shard.index != 1 || segment.epoch == 2) return reply;
    moved = true;
    reply.set_code(v1::WRONG_EPOCH);
    ToProto(ScriptedControl::Record({1, 1}, 2), reply.mutable_record());
    return reply;
  };
  const absl::Status ended = client_->EndStep(5);
  ASSERT_TRUE(ended.ok()) << ended;
  EXPECT_TRUE(moved);
  EXPECT_THAT(transport_->committed, testing::UnorderedElementsAre(At(0, 5), At(1, 5), At(2, 5)));
  ASSERT_EQ(control_->asked.size(), 3u);
  for (const v1::TrainRequest& asked : control_->asked) {
    EXPECT_EQ(asked.ended_step(), 5u);
    EXPECT_EQ(asked.wait_commit(), 5u);
    EXPECT_EQ(asked.delivered_step(), 4u);
    EXPECT_THAT(asked.tables(), testing::ElementsAre(1));
    EXPECT_EQ(asked.name(), "t");
  }
  EXPECT_TRUE(client_->EndStep(5).ok()) << "once more is nothing";
  EXPECT_EQ(Push(sync_, 5).status.code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(TrainerMemberTest, GivenUp) {
  Connect("g");
  control_->answers.push_back(Answer(0, {}));
  ASSERT_TRUE(client_->JoinTrainers().ok());
  EXPECT_TRUE(Push(sync_, 1).status.ok());
  control_->answers.push_back(Answer(1, {7}));
  EXPECT_EQ(client_->EndStep(1).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(Push(sync_, 2).status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(client_->BeginStep(2).message(), HasSubstr("JoinTrainers again"));
  control_->answers.push_back(Answer(1, {7}, 1));
  EXPECT_EQ(*client_->JoinTrainers(), 2u);
  EXPECT_TRUE(Push(sync_, 2).status.ok());
}

TEST_F(TrainerMemberTest, CountsTheMembersOfItsGroup) {
  Connect("g");
  EXPECT_EQ(client_->TrainersInGroup(), 0u);
  v1::TrainReply reply = Answer(0, {});
  reply.set_members(1);
  control_->answers.push_back(reply);
  reply.set_members(3);
  control_->SetLastAnswer(reply);
  ASSERT_TRUE(client_->JoinTrainers().ok());
  const auto becomes = [this](uint32_t count) {
    const absl::Time limit = absl::Now() + absl::Seconds(30);
    while (client_->TrainersInGroup() != count && absl::Now() < limit) {
      absl::SleepFor(absl::Milliseconds(5));
    }
    EXPECT_EQ(client_->TrainersInGroup(), count);
  };
  becomes(3);  // by a renewal soon after the join, though the lease is a minute
  reply.set_member(false);
  control_->SetLastAnswer(reply);
  becomes(0);
  EXPECT_EQ(client_->BeginStep(1).code(), absl::StatusCode::kAborted);
}

TEST_F(TrainerMemberTest, BoundedWaitsForTheSlowest) {
  Connect("g");
  control_->answers.push_back(Answer(0, {}));
  ASSERT_TRUE(client_->JoinTrainers().ok());
  EXPECT_TRUE(Push(bounded_, 1).status.ok());
  EXPECT_TRUE(Push(bounded_, 2).status.ok()) << "one step ahead";
  const PushResult early = Push(bounded_, 3);
  EXPECT_EQ(early.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(early.status.message(), HasSubstr("call Client::EndStep(1) first"));
}

}  // namespace trainer_member_test
}  // namespace hotbed
