#include "proto/convert.h"

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

// The enums have the same values on both sides, so that a cast converts them; the last value of
// each holds that in place.
static_assert(static_cast<int>(RowType::kInt8) == v1::ROW_INT8);
static_assert(static_cast<int>(WeightType::kBf16) == v1::WEIGHT_BF16);
static_assert(static_cast<int>(OptimizerKind::kAdam) == v1::OPTIMIZER_ADAM);
static_assert(static_cast<int>(InitializerKind::kTruncatedNormal) ==
              v1::INITIALIZER_TRUNCATED_NORMAL);
static_assert(static_cast<int>(NanPolicy::kAllow) == v1::NAN_ALLOW);
static_assert(static_cast<int>(Durability::kLog) == v1::DURABILITY_LOG);

absl::Status UnknownValue(absl::string_view field, int value, int last) {
  return absl::InvalidArgumentError(absl::StrCat(field, " has the unknown value ", value,
                                                 ", known: 0..", last,
                                                 "; the sender may be newer than this program"));
}

template <typename Value, typename Wire>
absl::Status ConvertEnum(absl::string_view field, Wire wire, bool (*is_valid)(int), int last,
                         Value* value) {
  if (!is_valid(wire)) return UnknownValue(field, wire, last);
  *value = static_cast<Value>(wire);
  return absl::OkStatus();
}

void MemberToProto(const Member& member, v1::Member* message) {
  message->set_server(member.server);
  message->set_incarnation(member.incarnation);
}

template <typename Messages>
void MembersToProto(const std::vector<Member>& members, Messages* messages) {
  messages->Clear();
  for (const Member& member : members) MemberToProto(member, messages->Add());
}

Member MemberFromProto(const v1::Member& message) {
  return {message.server(), message.incarnation()};
}

template <typename Messages>
std::vector<Member> MembersFromProto(const Messages& messages) {
  std::vector<Member> members;
  members.reserve(messages.size());
  for (const v1::Member& message : messages) members.push_back(MemberFromProto(message));
  return members;
}

}  // namespace

v1::TableSpec ToProto(const TableSpec& spec) {
  v1::TableSpec message;
  message.set_id(spec.id);
  message.set_name(spec.name);
  message.set_hashed(spec.hashed);
  message.set_rows(spec.rows);
  message.set_dim(spec.dim);
  message.set_weight_type(static_cast<v1::WeightType>(spec.weight_type));
  v1::Optimizer& optimizer = *message.mutable_optimizer();
  optimizer.set_kind(static_cast<v1::OptimizerKind>(spec.optimizer.kind));
  optimizer.set_learning_rate(spec.optimizer.learning_rate);
  optimizer.set_epsilon(spec.optimizer.epsilon);
  optimizer.set_beta1(spec.optimizer.beta1);
  optimizer.set_beta2(spec.optimizer.beta2);
  optimizer.set_weight_decay(spec.optimizer.weight_decay);
  optimizer.set_initial_accumulator(spec.optimizer.initial_accumulator);
  v1::Initializer& initializer = *message.mutable_initializer();
  initializer.set_kind(static_cast<v1::InitializerKind>(spec.initializer.kind));
  initializer.set_a(spec.initializer.a);
  initializer.set_b(spec.initializer.b);
  message.set_seed(spec.seed);
  message.set_durability(static_cast<v1::Durability>(spec.durability));
  message.set_nan_policy(static_cast<v1::NanPolicy>(spec.nan_policy));
  return message;
}

absl::StatusOr<TableSpec> FromProto(const v1::TableSpec& message) {
  TableSpec spec;
  spec.id = message.id();
  spec.name = message.name();
  spec.hashed = message.hashed();
  spec.rows = message.rows();
  spec.dim = message.dim();
  HOTBED_RETURN_IF_ERROR(ConvertEnum("weight_type", message.weight_type(), v1::WeightType_IsValid,
                                     v1::WeightType_MAX, &spec.weight_type));
  const v1::Optimizer& optimizer = message.optimizer();
  HOTBED_RETURN_IF_ERROR(ConvertEnum("optimizer.kind", optimizer.kind(), v1::OptimizerKind_IsValid,
                                     v1::OptimizerKind_MAX, &spec.optimizer.kind));
  spec.optimizer.learning_rate = optimizer.learning_rate();
  spec.optimizer.epsilon = optimizer.epsilon();
  spec.optimizer.beta1 = optimizer.beta1();
  spec.optimizer.beta2 = optimizer.beta2();
  spec.optimizer.weight_decay = optimizer.weight_decay();
  spec.optimizer.initial_accumulator = optimizer.initial_accumulator();
  const v1::Initializer& initializer = message.initializer();
  HOTBED_RETURN_IF_ERROR(ConvertEnum("initializer.kind", initializer.kind(),
                                     v1::InitializerKind_IsValid, v1::InitializerKind_MAX,
                                     &spec.initializer.kind));
  spec.initializer.a = initializer.a();
  spec.initializer.b = initializer.b();
  spec.seed = message.seed();
  HOTBED_RETURN_IF_ERROR(ConvertEnum("durability", message.durability(), v1::Durability_IsValid,
                                     v1::Durability_MAX, &spec.durability));
  HOTBED_RETURN_IF_ERROR(ConvertEnum("nan_policy", message.nan_policy(), v1::NanPolicy_IsValid,
                                     v1::NanPolicy_MAX, &spec.nan_policy));
  return spec;
}

void ToProto(const ShardRecord& record, v1::ShardRecord* message) {
  message->set_shard(record.shard.packed());
  message->set_range_first(record.range.first);
  message->set_range_limit(record.range.limit);
  message->set_column_first(record.range.column_first);
  message->set_column_limit(record.range.column_limit);
  message->set_epoch(record.epoch);
  message->set_revision(record.revision);
  MemberToProto(record.primary, message->mutable_primary());
  MembersToProto(record.members, message->mutable_members());
  MembersToProto(record.learners, message->mutable_learners());
  message->set_active(record.active);
  MembersToProto(record.base, message->mutable_base());
}

v1::ShardRecord ToProto(const ShardRecord& record) {
  v1::ShardRecord message;
  ToProto(record, &message);
  return message;
}

absl::StatusOr<ShardRecord> FromProto(const v1::ShardRecord& message) {
  ShardRecord record;
  record.shard = ShardId::FromPacked(message.shard());
  record.range = {message.range_first(), message.range_limit(), message.column_first(),
                  message.column_limit()};
  if (record.range.first >= record.range.limit ||
      record.range.column_first >= record.range.column_limit) {
    return absl::InvalidArgumentError(
        absl::StrCat("record of ", record.shard.ToString(), " has an empty range: [",
                     record.range.first, ", ", record.range.limit, ") x columns [",
                     record.range.column_first, ", ", record.range.column_limit, ")"));
  }
  record.epoch = message.epoch();
  record.revision = message.revision();
  record.primary = MemberFromProto(message.primary());
  record.members = MembersFromProto(message.members());
  record.learners = MembersFromProto(message.learners());
  record.active = message.active();
  record.base = MembersFromProto(message.base());
  return record;
}

v1::RowType ToProto(RowType type) { return static_cast<v1::RowType>(type); }

absl::StatusOr<RowType> FromProto(v1::RowType type) {
  RowType value = RowType::kFp32;
  HOTBED_RETURN_IF_ERROR(
      ConvertEnum("row_type", type, v1::RowType_IsValid, v1::RowType_MAX, &value));
  return value;
}

absl::StatusOr<RowType> GradientTypeFromProto(v1::RowType type) {
  RowType value = RowType::kFp32;
  HOTBED_RETURN_IF_ERROR(
      ConvertEnum("gradient_type", type, v1::RowType_IsValid, v1::RowType_MAX, &value));
  if (value == RowType::kInt8) {
    return absl::InvalidArgumentError(
        "gradient_type is int8; gradients travel as fp32, fp16 or bf16");
  }
  return value;
}

}  // namespace hotbed
