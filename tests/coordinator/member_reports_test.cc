// The reports of servers about members (member_reports.h), and the snapshot transfers that follow
// from records and reports (snapshot_transfers.h), each over one shard.
#include "planner/coordinator/membership/member_reports.h"

#include <gtest/gtest.h>

#include <string>

#include "planner/coordinator/membership/snapshot_transfers.h"
#include "planner/coordinator/state/keys.h"

namespace hotbed {
namespace member_reports_test {

constexpr ShardId kReported{1, 0};
constexpr int64_t kReaderGraceNs = 1'000'000'000;  // a new reader counts as a transfer for so long

class MemberReportsTest : public ::testing::Test {
 protected:
  // s1 is primary, s2 a member, s3 a learner.
  MemberReportsTest() {
    record_.shard = kReported;
    record_.range = {0, 10, 0, 4};
    record_.epoch = 5;
    record_.primary = {1, 1};
    record_.members = {{1, 1}, {2, 1}};
    record_.learners = {{3, 1}};
    record_.active = true;
    record_.base = record_.members;
    Commit();
  }
  void Commit() {
    state_.Apply({{Op::Kind::kPut, keys::Shard(kReported), StoredRecord(record_)}}, ++revision_);
  }
  const ShardRecord& Record() const { return state_.shards().at(kReported.packed()); }
  v1::HeartbeatRequest From(ServerId server) const {
    v1::HeartbeatRequest request;
    request.set_server(server);
    request.set_incarnation(1);
    return request;
  }
  template <typename Report>
  void Fill(Report* report, Epoch epoch) const {
    report->set_shard(kReported.packed());
    report->set_epoch(epoch);
  }
  MemberReports::Changed ReportJoin(ServerId from, ServerId learner, Epoch epoch) {
    v1::HeartbeatRequest request = From(from);
    Fill(request.add_join_ready(), epoch);
    request.mutable_join_ready(0)->mutable_member()->set_server(learner);
    request.mutable_join_ready(0)->mutable_member()->set_incarnation(1);
    return reports_.OnHeartbeat(state_, request);
  }
  MemberReports::Changed ReportLost(ServerId from, Epoch epoch, const std::string& why) {
    v1::HeartbeatRequest request = From(from);
    Fill(request.add_replicas_lost(), epoch);
    request.mutable_replicas_lost(0)->set_why(why);
    return reports_.OnHeartbeat(state_, request);
  }
  MemberReports::Changed ReportSilent(ServerId from, ServerId member, Epoch epoch) {
    v1::HeartbeatRequest request = From(from);
    Fill(request.add_silent(), epoch);
    request.mutable_silent(0)->mutable_member()->set_server(member);
    request.mutable_silent(0)->mutable_member()->set_incarnation(1);
    return reports_.OnHeartbeat(state_, request);
  }

  ShardRecord record_;
  ClusterState state_;
  uint64_t revision_ = 1;
  MemberReports reports_;
};

TEST_F(MemberReportsTest, OnlyThePrimaryOfTheEpochSaysWhoJoined) {
  EXPECT_EQ(ReportJoin(2, 3, 5).joins.size(), 1u);
  EXPECT_FALSE(reports_.Joined(Record(), {3, 1})) << "s2 is not the primary";
  ReportJoin(1, 3, 4);
  EXPECT_FALSE(reports_.Joined(Record(), {3, 1})) << "of another epoch";
  ReportJoin(1, 3, 5);
  EXPECT_TRUE(reports_.Joined(Record(), {3, 1}));
  EXPECT_FALSE(reports_.Joined(Record(), {3, 2})) << "another process of s3";
  record_.epoch = 6;
  Commit();
  EXPECT_FALSE(reports_.Joined(Record(), {3, 1}));
}

// A server that was away while a shard was cut knows the whole alone.
TEST_F(MemberReportsTest, AProcessThatRegistersMayHoldAShardUnderAnotherName) {
  const ShardId other_table{2, 0};
  google::protobuf::RepeatedPtrField<v1::HeldReplica> held;
  held.Add()->set_shard(ShardId{1, 7}.packed());
  reports_.OnRegister(state_, {2, 2}, held);
  EXPECT_EQ(reports_.Held(kReported.packed(), {2, 2}), std::nullopt) << "it may be a part of 1/7";
  EXPECT_TRUE(reports_.Held(other_table.packed(), {2, 2})->nothing);
  v1::HeartbeatRequest request = From(2);
  request.set_incarnation(2);
  request.add_held()->set_shard(kReported.packed());
  request.mutable_held(0)->set_nothing(true);
  reports_.OnHeartbeat(state_, request);
  EXPECT_TRUE(reports_.Held(kReported.packed(), {2, 2})->nothing) << "it knows the records now";
}

TEST_F(MemberReportsTest, AProcessKnowsBestAboutItself) {
  EXPECT_EQ(ReportSilent(1, 2, 5).leaving.size(), 1u);
  EXPECT_EQ(reports_.WhyLeaving(Record(), {2, 1}), MemberOut::kSilent);
  EXPECT_EQ(ReportLost(2, 5, std::string(1000, 'x')).leaving.size(), 1u);
  EXPECT_EQ(reports_.WhyLeaving(Record(), {2, 1}), MemberOut::kReplicaLost);
  EXPECT_EQ(reports_.FindLeaving(Record(), {2, 1})->said.size(), MemberReports::kSaidBytesMax);
  EXPECT_TRUE(ReportSilent(1, 2, 5).leaving.empty()) << "weighs less";
  EXPECT_TRUE(ReportLost(2, 5, "again").leaving.empty()) << "is known";
  reports_.OnLoaded();
  EXPECT_EQ(reports_.WhyLeaving(Record(), {2, 1}), MemberOut::kNo);
}

TEST_F(MemberReportsTest, WhatAProcessHoldsCountsUntilItTakesPart) {
  const Member fresh = {4, 2};
  EXPECT_FALSE(reports_.Held(kReported.packed(), fresh).has_value());
  record_.passed_over = {{4, {3, 10}}};
  Commit();
  v1::RegisterServerRequest request;
  v1::HeldReplica* const held = request.add_held();
  held->set_shard(kReported.packed());
  held->mutable_end()->set_epoch(3);
  held->mutable_end()->set_lsn(12);
  reports_.OnRegister(state_, fresh, request.held());
  EXPECT_EQ(reports_.Held(kReported.packed(), fresh)->end, (LogEnd{3, 12}));
  EXPECT_TRUE(reports_.Held(ShardId{2, 9}.packed(), fresh)->nothing) << "it has said all it holds";
  EXPECT_FALSE(reports_.Held(kReported.packed(), {4, 3}).has_value()) << "another process";
  // As a learner it gets entries, so what it said is over; so is a report that comes late.
  record_.passed_over.clear();
  record_.learners.push_back(fresh);
  Commit();
  reports_.OnRecord(Record());
  EXPECT_FALSE(reports_.Held(kReported.packed(), fresh).has_value());
  v1::HeartbeatRequest late;
  late.set_server(4);
  late.set_incarnation(2);
  *late.add_held() = *held;
  EXPECT_TRUE(reports_.OnHeartbeat(state_, late).held.empty());
  EXPECT_FALSE(reports_.Held(kReported.packed(), fresh).has_value());
  // It takes part no more.
  record_.learners.pop_back();
  record_.passed_over = {{4, {3, 10}}};
  Commit();
  reports_.OnRecord(Record());
  EXPECT_EQ(reports_.OnHeartbeat(state_, late).held.size(), 1u);
  EXPECT_TRUE(reports_.OnHeartbeat(state_, late).held.empty()) << "no news";
  EXPECT_TRUE(reports_.Held(kReported.packed(), fresh).has_value());
}

TEST_F(MemberReportsTest, WhatWasSaidBeforeAFenceSaysNothing) {
  const Member fresh = {1, 2};
  reports_.OnRegister(state_, fresh, v1::RegisterServerRequest().held());
  EXPECT_TRUE(reports_.Held(kReported.packed(), fresh)->nothing);
  record_.epoch = 6;
  record_.primary = {1, 0};
  record_.members = {{1, 0}, {2, 0}};
  record_.learners.clear();
  record_.base = record_.members;
  record_.active = false;
  Commit();
  reports_.OnRecord(Record());
  EXPECT_FALSE(reports_.Held(kReported.packed(), fresh).has_value());
  v1::HeartbeatRequest again;
  again.set_server(1);
  again.set_incarnation(2);
  again.add_held()->set_shard(kReported.packed());
  EXPECT_EQ(reports_.OnHeartbeat(state_, again).held.size(), 1u);
  EXPECT_TRUE(reports_.Held(kReported.packed(), fresh).has_value());
}

TEST_F(MemberReportsTest, ReportsOfOthersOrOtherEpochsMeanNothing) {
  EXPECT_TRUE(ReportLost(4, 5, "no member").leaving.empty());
  EXPECT_TRUE(ReportLost(2, 4, "an older epoch").leaving.empty());
  EXPECT_TRUE(ReportSilent(2, 1, 5).leaving.empty()) << "not by the primary";
  EXPECT_TRUE(ReportJoin(1, 3, 5).leaving.empty());
  record_.epoch = 6;
  Commit();
  reports_.OnRecord(Record());
  EXPECT_FALSE(reports_.Joined(Record(), {3, 1}));
}

TEST_F(MemberReportsTest, TransfersCountUntilTheLearnerGoes) {
  Leases leases{LeaseOptions()};
  SnapshotTransfers transfers(&leases, &reports_);
  transfers.OnLoaded(state_);
  transfers.CountSenders(1, state_);
  MembershipBatch batch(&state_, 1, 1);
  transfers.AddTo(&batch);
  EXPECT_EQ(batch.transfers_from[1], 1u);
  EXPECT_EQ(batch.transfers_to[3], 1u);
  const uint64_t version = transfers.limits_version();
  record_.learners.clear();
  Commit();
  EXPECT_TRUE(transfers.OnRecord(2, Record())) << "others may begin";
  EXPECT_FALSE(transfers.OnRecord(3, Record()));
  transfers.CountSenders(3, state_);
  EXPECT_GT(transfers.limits_version(), version);
  EXPECT_TRUE(transfers.with_learners().empty());
}

TEST_F(MemberReportsTest, AReadReplicaCountsForAMomentOnly) {
  record_.readers = {3};
  Commit();
  Leases leases{LeaseOptions()};
  SnapshotTransfers transfers(&leases, &reports_);
  transfers.OnRecord(10, Record());
  MembershipBatch now(&state_, 10 + kReaderGraceNs - 1, 1);
  transfers.AddTo(&now);
  EXPECT_EQ(now.transfers_to[3], 1u);
  MembershipBatch later(&state_, 10 + kReaderGraceNs, 1);
  transfers.AddTo(&later);
  EXPECT_TRUE(later.transfers_to.empty());
}

}  // namespace member_reports_test
}  // namespace hotbed
