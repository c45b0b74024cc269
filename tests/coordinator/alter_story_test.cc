// Stories of tables whose options change, and of equal tables that are asked for again.
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "common/tables/table_spec.h"
#include "proto/convert.h"
#include "tests/coordinator/core_story.h"

namespace hotbed {
namespace alter_story_test {

using AlterStory = CoreStory;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

v1::AlterTableRequest Rate(const std::string& table, uint64_t at_step, float rate) {
  v1::AlterTableRequest request;
  request.set_name(table);
  request.mutable_change()->set_at_step(at_step);
  request.mutable_change()->set_learning_rate(rate);
  return request;
}

TEST_F(AlterStory, AChangeIsStoredAndTold) {
  ASSERT_TRUE(rig_.Register("s1").ok());
  ASSERT_TRUE(rig_.Register("s2").ok());
  v1::CreateTableRequest one_shard = CoreRig::Table("t", 10);
  ASSERT_TRUE(rig_.Create(one_shard).ok());
  Activate(1, 1);
  const uint64_t before = Map().plan_revision();
  const auto altered = rig_.Call<v1::AlterTableReply>(Rate("t", 100, 0.5f));
  ASSERT_TRUE(altered.ok()) << altered.status();
  EXPECT_TRUE(altered->altered());
  ASSERT_EQ(altered->spec().changes_size(), 1);
  EXPECT_GT(altered->plan_revision(), before);
  EXPECT_EQ(altered->plan_revision(), Map().plan_revision());

  const v1::ClusterMap delta = Map(before);
  EXPECT_TRUE(delta.delta());
  ASSERT_EQ(delta.tables_size(), 1) << "clients learn it";
  EXPECT_EQ(delta.tables(0).changes(0).at_step(), 100u);
  EXPECT_EQ(delta.tables(0).changes(0).learning_rate(), 0.5f);
  EXPECT_EQ(delta.shards_size(), 0) << "and nothing else, for nothing else changed";
  const auto holder = rig_.Heartbeat(1, 1, before);
  const auto other = rig_.Heartbeat(2, 2, before);
  ASSERT_TRUE(holder.ok() && other.ok());
  const bool first = Map().shards(0).primary().server() == 1;
  const v1::ClusterMap& told = (first ? holder : other)->map();
  const v1::ClusterMap& not_told = (first ? other : holder)->map();
  EXPECT_TRUE(told.delta());
  ASSERT_EQ(told.tables_size(), 1) << "the server that holds the shard learns it";
  EXPECT_EQ(told.tables(0).changes_size(), 1);
  EXPECT_EQ(told.shards_size(), 0);
  EXPECT_EQ(not_told.tables_size(), 0);

  rig_.Start();  // another process, over the same store
  rig_.Pump();
  ASSERT_EQ(Map().tables_size(), 1);
  EXPECT_EQ(Map().tables(0).changes(0).at_step(), 100u);
  EXPECT_EQ(Map().shards_size(), 1);
}

// Two commands that read the same table: the second must not put back what the first has changed.
TEST_F(AlterStory, AChangeOfATableThatHasChangedSinceIsRefused) {
  ASSERT_TRUE(rig_.Register("s1").ok());
  ASSERT_TRUE(rig_.Create(CoreRig::Table("t", 10)).ok());
  v1::AlterTableRequest first = Rate("t", 100, 0.5f), second = Rate("t", 100, 0.25f);
  *first.mutable_read() = *second.mutable_read() = Map().tables(0);
  ASSERT_TRUE(rig_.Call<v1::AlterTableReply>(first).ok());
  EXPECT_STATUS(rig_.Call<v1::AlterTableReply>(second), kAborted, "was altered");
  EXPECT_EQ(Map().tables(0).changes(0).learning_rate(), 0.5f);
  *second.mutable_read() = Map().tables(0);
  ASSERT_TRUE(rig_.Call<v1::AlterTableReply>(second).ok());
  EXPECT_EQ(Map().tables(0).changes(0).learning_rate(), 0.25f);
}

TEST_F(AlterStory, ChangesFollowOneAnother) {
  ASSERT_TRUE(rig_.Register("s1").ok());
  ASSERT_TRUE(rig_.Create(CoreRig::Table("t", 10)).ok());
  ASSERT_TRUE(rig_.Call<v1::AlterTableReply>(Rate("t", 100, 0.5f)).ok());
  EXPECT_STATUS(rig_.Call<v1::AlterTableReply>(Rate("t", 99, 0.25f)), kInvalidArgument,
                "at_step is 99, allowed: 100");
  auto again = rig_.Call<v1::AlterTableReply>(Rate("t", 100, 0.25f));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(again->altered());
  ASSERT_EQ(again->spec().changes_size(), 1) << "replaced";
  EXPECT_EQ(again->spec().changes(0).learning_rate(), 0.25f);
  const uint64_t revision = rig_.store.revision;
  again = rig_.Call<v1::AlterTableReply>(Rate("t", 100, 0.25f));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_FALSE(again->altered()) << "it is so already";
  v1::AlterTableRequest dry = Rate("t", 200, 0.125f);
  dry.set_dry_run(true);
  const auto planned = rig_.Call<v1::AlterTableReply>(dry);
  ASSERT_TRUE(planned.ok()) << planned.status();
  EXPECT_FALSE(planned->altered());
  EXPECT_EQ(planned->spec().changes_size(), 2);
  EXPECT_EQ(rig_.store.revision, revision) << "nothing was written";
  EXPECT_EQ(Map().tables(0).changes_size(), 1);
}

TEST_F(AlterStory, WhatCannotBeIsRefused) {
  ASSERT_TRUE(rig_.Register("s1").ok());
  ASSERT_TRUE(rig_.Create(CoreRig::Table("t", 10)).ok());
  EXPECT_STATUS(rig_.Call<v1::AlterTableReply>(Rate("u", 1, 0.5f)), kNotFound, "\"u\"");
  EXPECT_STATUS(rig_.Call<v1::AlterTableReply>(Rate("t", 1, -0.5f)), kInvalidArgument,
                "learning_rate is -0.5");
  EXPECT_STATUS(rig_.Call<v1::AlterTableReply>(Rate("t", 0, 0.5f)), kInvalidArgument,
                "at_step is 0");
  v1::AlterTableRequest empty;
  empty.set_name("t");
  empty.mutable_change()->set_at_step(5);
  EXPECT_STATUS(rig_.Call<v1::AlterTableReply>(empty), kInvalidArgument, "empty");
  v1::AlterTableRequest unknown = Rate("t", 5, 0.5f);
  unknown.mutable_change()->mutable_schedule()->set_kind(static_cast<v1::ScheduleKind>(99));
  EXPECT_STATUS(rig_.Call<v1::AlterTableReply>(unknown), kInvalidArgument, "schedule.kind");
  EXPECT_EQ(Map().tables(0).changes_size(), 0);
}

TEST_F(AlterStory, ARivalsChangeIsNotLost) {
  ASSERT_TRUE(rig_.Register("s1").ok());
  ASSERT_TRUE(rig_.Create(CoreRig::Table("t", 10)).ok());
  v1::TableSpec rival = Map().tables(0);
  *rival.add_changes() = Rate("t", 50, 0.5f).change();
  rig_.store.Txn({}, {{Op::Kind::kPut, keys::Table(rival.id()), rival.SerializeAsString()}});
  const auto altered = rig_.Call<v1::AlterTableReply>(Rate("t", 60, 0.25f));
  ASSERT_TRUE(altered.ok()) << altered.status();
  EXPECT_EQ(altered->spec().changes_size(), 2);
}

TEST_F(AlterStory, AChangedTableIsStillTheTableThatWasCreated) {
  ASSERT_TRUE(rig_.Register("s1").ok());
  v1::CreateTableRequest request = CoreRig::Table("t", 10);
  request.set_if_not_exists(true);
  ASSERT_TRUE(rig_.Create(request).ok());
  ASSERT_TRUE(rig_.Call<v1::AlterTableReply>(Rate("t", 100, 0.5f)).ok());
  const auto again = rig_.Create(request);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_FALSE(again->created());
  *request.mutable_spec()->add_changes() = Rate("t", 100, 0.25f).change();
  EXPECT_STATUS(rig_.Create(request), kAlreadyExists, "changes");
}

TEST_F(AlterStory, BoundedByNoStepIsStoredAsSync) {
  ASSERT_TRUE(rig_.Register("s1").ok());
  v1::CreateTableRequest request = CoreRig::Table("t", 10);
  request.mutable_spec()->set_consistency(v1::CONSISTENCY_BOUNDED);
  const auto created = rig_.Create(request);
  ASSERT_TRUE(created.ok()) << created.status();
  EXPECT_EQ(created->spec().consistency(), v1::CONSISTENCY_SYNC);
}

// Another value of the field, near the one it has.
void Move(Message* message, const FieldDescriptor* field) {
  const google::protobuf::Reflection& r = *message->GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_ENUM:
      return r.SetEnumValue(message, field, r.GetEnumValue(*message, field) == 0 ? 1 : 0);
    case FieldDescriptor::CPPTYPE_BOOL:
      return r.SetBool(message, field, !r.GetBool(*message, field));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return r.SetFloat(message, field, r.GetFloat(*message, field) + 0.03125f);
    case FieldDescriptor::CPPTYPE_UINT32:
      return r.SetUInt32(message, field, r.GetUInt32(*message, field) + 1);
    case FieldDescriptor::CPPTYPE_UINT64:
      return r.SetUInt64(message, field, r.GetUInt64(*message, field) + 1);
    default:
      FAIL() << field->full_name();
  }
}

// A table that differs in this one field is not the table that is there. `refused` counts the
// fields that cannot differ alone.
void ExpectTold(CoreRig* rig, const v1::TableSpec& base, Message* at, v1::CreateTableRequest* asked,
                int* told, std::set<std::string>* refused) {
  for (int i = 0; i < at->GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* field = at->GetDescriptor()->field(i);
    if (field->name() == "name" || field->name() == "id" || field->is_repeated()) continue;
    if (field->name() == "restored_from")
      continue;  // where the rows came from, not what the table is
    if (field->name() == "composition") continue;  // of composed tables and their parts alone
    // Its presence alone says something.
    if (field->name() == "shows" && !at->GetReflection()->HasField(*at, field)) continue;
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      ExpectTold(rig, base, at->GetReflection()->MutableMessage(at, field), asked, told, refused);
      continue;
    }
    const std::string before = at->SerializeAsString();
    Move(at, field);
    const absl::Status status = rig->Create(*asked).status();
    if (status.code() == absl::StatusCode::kInvalidArgument) {
      refused->insert(field->name());
    } else {
      EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists) << field->full_name() << status;
      EXPECT_THAT(std::string(status.message()), testing::HasSubstr(field->name()));
      ++*told;
    }
    ASSERT_TRUE(at->ParseFromString(before));
  }
}

TEST_F(AlterStory, EveryFieldThatDiffersIsTold) {
  ASSERT_TRUE(rig_.Register("s1").ok());
  TableSpec spec;
  spec.name = "t";
  spec.rows = 1000;
  spec.dim = 16;
  spec.seed = 5;
  spec.weight_type = WeightType::kBf16;
  spec.optimizer.kind = OptimizerKind::kAdamW;
  spec.optimizer.beta2 = 0.5f;
  spec.optimizer.max_norm = 1;
  spec.optimizer.lazy_decay = true;
  spec.initializer = {InitializerKind::kNormal, -1, 1};
  spec.row_statistics = RowStatistics::kSlice;
  spec.has_padding_id = true;
  spec.consistency = Consistency::kBounded;
  spec.staleness = 4;
  v1::CreateTableRequest request;
  *request.mutable_spec() = ToProto(spec);
  request.set_if_not_exists(true);
  ASSERT_TRUE(rig_.Create(request).ok());
  ASSERT_FALSE(rig_.Create(request)->created()) << "the same is the same";
  int told = 0;
  std::set<std::string> refused;
  ExpectTold(&rig_, ToProto(spec), request.mutable_spec(), &request, &told, &refused);
  const std::set<std::string> of_hashed = {"touches",
                                           "ttl_s",
                                           "ttl_steps",
                                           "rows_max",
                                           "bytes_max",
                                           "evict_by",
                                           "admit_zeros",
                                           "admit_probability",
                                           "admit_by",
                                           "admit_ids",
                                           "admit_false_positives"};
  std::set<std::string> expected = {"consistency", "counter_mode", "replicas", "memory_share_max"};
  expected.insert(of_hashed.begin(), of_hashed.end());
  expected.insert({"score_least", "vocabulary"});
  EXPECT_EQ(refused, expected)
      << "not without staleness, of another optimizer or durability, above the whole, or of a "
         "bounded table";
  EXPECT_GE(told, 44);
}

TEST_F(AlterStory, EveryFieldOfALifeThatDiffersIsTold) {
  ASSERT_TRUE(rig_.Register("s1").ok());
  TableSpec spec;
  spec.name = "t";
  spec.hashed = true;
  spec.rows = 1000;
  spec.dim = 16;
  spec.optimizer.touches = true;
  spec.optimizer.shows = {.kept = true, .decay = 0.5f};
  spec.life = {.ttl_s = 60, .ttl_steps = 9, .rows_max = 1'000'000, .bytes_max = 1 << 30};
  spec.life.admission = {.after = 3, .by = AdmitBy::kBloom, .ids = 1000};
  v1::CreateTableRequest request;
  *request.mutable_spec() = ToProto(spec);
  request.set_if_not_exists(true);
  const auto created = rig_.Create(request);
  ASSERT_TRUE(created.ok()) << created.status();
  int told = 0;
  std::set<std::string> refused;
  ExpectTold(&rig_, ToProto(spec), request.mutable_spec()->mutable_life(), &request, &told,
             &refused);
  EXPECT_EQ(refused, (std::set<std::string>{"admit_probability", "admit_by"}))
      << "a table admits in one way";
  EXPECT_EQ(told, v1::RowLife::descriptor()->field_count() - 2);
  ExpectTold(&rig_, ToProto(spec), request.mutable_spec()->mutable_optimizer()->mutable_shows(),
             &request, &told, &refused);
  EXPECT_EQ(told, v1::RowLife::descriptor()->field_count());
}

TEST_F(AlterStory, AFilterOfTouchesIsMadeForANumberOfIdsAndNotTooLargeForAShard) {
  ASSERT_TRUE(rig_.Register("s1").ok());
  TableSpec spec;
  spec.name = "t";
  spec.hashed = true;
  spec.rows = 1000;
  spec.dim = 16;
  spec.optimizer.touches = true;
  spec.life.admission = {.after = 3, .by = AdmitBy::kBloom};
  v1::CreateTableRequest request;
  *request.mutable_spec() = ToProto(spec);
  const auto created = rig_.Create(request);
  ASSERT_TRUE(created.ok()) << created.status();
  EXPECT_EQ(created->spec().life().admit_ids(), 1000u) << "as the expected rows";
  spec.name = "u";
  spec.life.admission.ids = 100'000'000;
  *request.mutable_spec() = ToProto(spec);
  EXPECT_STATUS(rig_.Create(request), kInvalidArgument,
                "life.admit_ids is 100000000, which gives one of its 1 shards a filter of");
}

}  // namespace alter_story_test
}  // namespace hotbed
