#include "proto/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "google/protobuf/message.h"
#include "proto/status_text.h"

namespace hotbed {
namespace convert_test {

using testing::HasSubstr;

TEST(Convert, TableSpecGoesThereAndBack) {
  TableSpec spec;
  spec.id = 7;
  spec.name = "users";
  spec.hashed = true;
  spec.rows = uint64_t{1} << 40;
  spec.dim = 64;
  spec.weight_type = WeightType::kBf16;
  spec.optimizer = {OptimizerKind::kAdam, 0.1f, 1e-5f, 0.8f, 0.99f, 0.01f, 0.2f};
  spec.initializer = {InitializerKind::kTruncatedNormal, 0.5f, 2.0f};
  spec.seed = ~uint64_t{0};
  spec.durability = Durability::kCheckpoint;
  spec.nan_policy = NanPolicy::kSkip;
  const absl::StatusOr<TableSpec> back = FromProto(ToProto(spec));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(ToProto(*back).SerializeAsString(), ToProto(spec).SerializeAsString());
  EXPECT_EQ(back->id, 7u);
  EXPECT_EQ(back->name, "users");
  EXPECT_TRUE(back->hashed);
  EXPECT_EQ(back->rows, uint64_t{1} << 40);
  EXPECT_EQ(back->dim, 64u);
  EXPECT_EQ(back->weight_type, WeightType::kBf16);
  EXPECT_EQ(back->optimizer.kind, OptimizerKind::kAdam);
  EXPECT_EQ(back->optimizer.learning_rate, 0.1f);
  EXPECT_EQ(back->optimizer.epsilon, 1e-5f);
  EXPECT_EQ(back->optimizer.beta1, 0.8f);
  EXPECT_EQ(back->optimizer.beta2, 0.99f);
  EXPECT_EQ(back->optimizer.weight_decay, 0.01f);
  EXPECT_EQ(back->optimizer.initial_accumulator, 0.2f);
  EXPECT_EQ(back->initializer.kind, InitializerKind::kTruncatedNormal);
  EXPECT_EQ(back->initializer.a, 0.5f);
  EXPECT_EQ(back->initializer.b, 2.0f);
  EXPECT_EQ(back->seed, ~uint64_t{0});
  EXPECT_EQ(back->durability, Durability::kCheckpoint);
  EXPECT_EQ(back->nan_policy, NanPolicy::kSkip);
}

// Every field has a value that is not its default, so that a forgotten field shows.
void FillAll(google::protobuf::Message* message, int* number) {
  using google::protobuf::FieldDescriptor;
  const google::protobuf::Reflection& reflection = *message->GetReflection();
  const google::protobuf::Descriptor& type = *message->GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor* field = type.field(i);
    ++*number;
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE:
        FillAll(field->is_repeated() ? reflection.AddMessage(message, field)
                                     : reflection.MutableMessage(message, field),
                number);
        break;
      case FieldDescriptor::CPPTYPE_ENUM:
        reflection.SetEnumValue(message, field, field->enum_type()->value_count() - 1);
        break;
      case FieldDescriptor::CPPTYPE_BOOL:
        reflection.SetBool(message, field, true);
        break;
      case FieldDescriptor::CPPTYPE_FLOAT:
        reflection.SetFloat(message, field, static_cast<float>(*number) + 0.5f);
        break;
      case FieldDescriptor::CPPTYPE_UINT32:
        field->is_repeated() ? reflection.AddUInt32(message, field, 1000 + *number)
                             : reflection.SetUInt32(message, field, 1000 + *number);
        break;
      case FieldDescriptor::CPPTYPE_UINT64:
        reflection.SetUInt64(message, field, (uint64_t{1} << 40) + *number);
        break;
      case FieldDescriptor::CPPTYPE_STRING:
        reflection.SetString(message, field, "text");
        break;
      default:
        FAIL() << field->full_name() << " is of a type that this test does not fill";
    }
  }
}

TEST(Convert, NoFieldOfATableIsLeftOut) {
  v1::TableSpec message;
  int number = 0;
  FillAll(&message, &number);
  const absl::StatusOr<TableSpec> spec = FromProto(message);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(ToProto(*spec).DebugString(), message.DebugString());
  EXPECT_GT(number, 50) << "the filling works";
}

TEST(Convert, ASenderThatKnowsNoScheduleMeansTheConstantOne) {
  v1::TableSpec message = ToProto(TableSpec());
  message.clear_schedule();
  message.clear_column_slices();
  const absl::StatusOr<TableSpec> spec = FromProto(message);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->schedule, Schedule());
  EXPECT_EQ(spec->column_slices, 1u);
}

TEST(Convert, UnknownEnumValuesAreRefusedByName) {
  v1::TableSpec message = ToProto(TableSpec());
  message.mutable_optimizer()->set_kind(static_cast<v1::OptimizerKind>(99));
  EXPECT_THAT(std::string(FromProto(message).status().message()),
              HasSubstr("optimizer.kind has the unknown value 99, known: 0..17"));
  EXPECT_FALSE(FromProto(static_cast<v1::RowType>(-1)).ok());
  EXPECT_EQ(*FromProto(v1::ROW_INT8), RowType::kInt8);
  EXPECT_EQ(*GradientTypeFromProto(v1::ROW_BF16), RowType::kBf16);
  EXPECT_THAT(std::string(GradientTypeFromProto(v1::ROW_INT8).status().message()),
              HasSubstr("int8"));
}

TEST(Convert, ShardRecordGoesThereAndBack) {
  ShardRecord record;
  record.shard = {7, 3};
  record.range = {10, 20, 0, 64};
  record.epoch = 5;
  record.revision = 99;
  record.primary = {1, 2};
  record.members = {{1, 2}, {3, 4}};
  record.learners = {{5, 6}};
  record.active = true;
  record.base = {{7, 8}};
  record.passed_over = {{9, {4, 100}}};
  const absl::StatusOr<ShardRecord> back = FromProto(ToProto(record));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->shard, record.shard);
  EXPECT_EQ(back->range.first, 10u);
  EXPECT_EQ(back->range.limit, 20u);
  EXPECT_EQ(back->range.column_limit, 64u);
  EXPECT_EQ(back->epoch, 5u);
  EXPECT_EQ(back->revision, 99u);
  EXPECT_EQ(back->primary, record.primary);
  EXPECT_EQ(back->members, record.members);
  EXPECT_EQ(back->learners, record.learners);
  EXPECT_TRUE(back->active);
  EXPECT_EQ(back->base, record.base);
  EXPECT_EQ(back->passed_over, record.passed_over);

  record.range.limit = 10;
  EXPECT_THAT(std::string(FromProto(ToProto(record)).status().message()),
              HasSubstr("shard 7/3 has an empty range"));
}

TEST(StatusText, EveryCodeHasAMeaning) {
  for (int code = v1::Code_MIN; code <= v1::Code_MAX; ++code) {
    const v1::Code c = static_cast<v1::Code>(code);
    EXPECT_NE(CodeName(c), "UNKNOWN_CODE");
    EXPECT_EQ(ToStatus(c, "x").ok(), c == v1::OK);
  }
  EXPECT_EQ(CodeName(static_cast<v1::Code>(77)), "UNKNOWN_CODE");
  EXPECT_EQ(StatusCodeOf(static_cast<v1::Code>(77)), absl::StatusCode::kUnknown);
  EXPECT_EQ(ToStatus(v1::OUT_OF_RANGE, "id 9").message(), "OUT_OF_RANGE: id 9");
}

}  // namespace convert_test
}  // namespace hotbed
