#include "proto/convert.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

// The enums have the same values on both sides, so a cast converts them; the last value of each is
// checked below.
static_assert(static_cast<int>(RowType::kInt8) == v1::ROW_INT8);
static_assert(static_cast<int>(WeightType::kBf16) == v1::WEIGHT_BF16);
static_assert(static_cast<int>(kLastOptimizerKind) == v1::OPTIMIZER_ROWWISE_ADAGRAD_COUNTER);
static_assert(static_cast<int>(CounterMode::kCowClip) == v1::COUNTER_COWCLIP);
static_assert(static_cast<int>(kLastInitializerKind) == v1::INITIALIZER_ZERO);
static_assert(static_cast<int>(NanPolicy::kAllow) == v1::NAN_ALLOW);
static_assert(static_cast<int>(Durability::kLog) == v1::DURABILITY_LOG);
static_assert(static_cast<int>(Durability::kReplicated) == v1::DURABILITY_REPLICATED);
static_assert(static_cast<int>(StateType::kBf16) == v1::STATE_BF16);
static_assert(static_cast<int>(DecayMode::kDecoupled) == v1::DECAY_DECOUPLED);
static_assert(static_cast<int>(BoundsMode::kModulo) == v1::BOUNDS_MODULO);
static_assert(static_cast<int>(GradientReduction::kMean) == v1::REDUCTION_MEAN);
static_assert(static_cast<int>(RowStatistics::kSlice) == v1::STATISTICS_SLICE);
static_assert(static_cast<int>(Consistency::kSync) == v1::CONSISTENCY_SYNC);
static_assert(static_cast<int>(ScheduleKind::kStep) == v1::SCHEDULE_STEP);

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

void OptimizerToProto(const OptimizerParams& params, v1::Optimizer* message) {
  message->set_kind(static_cast<v1::OptimizerKind>(params.kind));
  message->set_learning_rate(params.learning_rate);
  message->set_epsilon(params.epsilon);
  message->set_beta1(params.beta1);
  message->set_beta2(params.beta2);
  message->set_weight_decay(params.weight_decay);
  message->set_initial_accumulator(params.initial_accumulator);
  message->set_momentum(params.momentum);
  message->set_trust_coefficient(params.trust_coefficient);
  message->set_l1(params.l1);
  message->set_l2(params.l2);
  message->set_ftrl_beta(params.ftrl_beta);
  message->set_clip_value(params.clip_value);
  message->set_clip_row_norm(params.clip_row_norm);
  message->set_max_norm(params.max_norm);
  message->set_decay_mode(static_cast<v1::DecayMode>(params.decay_mode));
  message->set_lazy_decay(params.lazy_decay);
  message->set_row_bias_correction(params.row_bias_correction);
  message->set_stochastic_rounding(params.stochastic_rounding);
  message->set_state_type(static_cast<v1::StateType>(params.state_type));
  message->set_max_norm_type(params.max_norm_type);
  message->set_lazy_decay_least(params.lazy_decay_least);
  const CounterParams& counter = params.counter;
  message->set_counter_mode(static_cast<v1::CounterMode>(counter.mode));
  message->set_counter_half_life(counter.half_life);
  message->set_counter_from_step(counter.from_step);
  message->set_counter_threshold(counter.threshold);
  message->set_counter_max(counter.most);
  message->set_counter_power(counter.power);
  message->set_clip_coefficient(counter.clip_coefficient);
  message->set_clip_least(counter.clip_least);
  message->set_average_rate(params.average.rate);
  message->set_average_every(params.average.every);
  message->set_average_from_step(params.average.from_step);
  message->set_touches(params.touches);
  if (!params.shows.kept) return;
  message->mutable_shows()->set_decay(params.shows.decay);
  message->mutable_shows()->set_period_s(params.shows.period_s);
}

absl::Status OptimizerFromProto(const v1::Optimizer& message, OptimizerParams* params) {
  HOTBED_RETURN_IF_ERROR(ConvertEnum("optimizer.kind", message.kind(), v1::OptimizerKind_IsValid,
                                     v1::OptimizerKind_MAX, &params->kind));
  params->learning_rate = message.learning_rate();
  params->epsilon = message.epsilon();
  params->beta1 = message.beta1();
  params->beta2 = message.beta2();
  params->weight_decay = message.weight_decay();
  params->initial_accumulator = message.initial_accumulator();
  params->momentum = message.momentum();
  params->trust_coefficient = message.trust_coefficient();
  params->l1 = message.l1();
  params->l2 = message.l2();
  params->ftrl_beta = message.ftrl_beta();
  params->clip_value = message.clip_value();
  params->clip_row_norm = message.clip_row_norm();
  params->max_norm = message.max_norm();
  HOTBED_RETURN_IF_ERROR(ConvertEnum("optimizer.decay_mode", message.decay_mode(),
                                     v1::DecayMode_IsValid, v1::DecayMode_MAX,
                                     &params->decay_mode));
  params->lazy_decay = message.lazy_decay();
  params->row_bias_correction = message.row_bias_correction();
  params->stochastic_rounding = message.stochastic_rounding();
  params->max_norm_type = message.max_norm_type();
  params->lazy_decay_least = message.lazy_decay_least();
  CounterParams& counter = params->counter;
  HOTBED_RETURN_IF_ERROR(ConvertEnum("optimizer.counter_mode", message.counter_mode(),
                                     v1::CounterMode_IsValid, v1::CounterMode_MAX, &counter.mode));
  counter.half_life = message.counter_half_life();
  counter.from_step = message.counter_from_step();
  counter.threshold = message.counter_threshold();
  counter.most = message.counter_max();
  counter.power = message.counter_power();
  counter.clip_coefficient = message.clip_coefficient();
  counter.clip_least = message.clip_least();
  params->touches = message.touches();
  params->shows = {};
  if (message.has_shows()) {
    params->shows = {true, message.shows().decay(), message.shows().period_s()};
  }
  params->average = {message.average_rate(), message.average_every(), message.average_from_step()};
  return ConvertEnum("optimizer.state_type", message.state_type(), v1::StateType_IsValid,
                     v1::StateType_MAX, &params->state_type);
}

void ScheduleToProto(const Schedule& schedule, v1::Schedule* message) {
  message->set_kind(static_cast<v1::ScheduleKind>(schedule.kind));
  message->set_warmup_steps(schedule.warmup_steps);
  message->set_warmup_from(schedule.warmup_from);
  message->set_total_steps(schedule.total_steps);
  message->set_min_factor(schedule.min_factor);
  message->set_step_size(schedule.step_size);
  message->set_gamma(schedule.gamma);
}

absl::Status ScheduleFromProto(const v1::Schedule& message, Schedule* schedule) {
  schedule->warmup_steps = message.warmup_steps();
  schedule->warmup_from = message.warmup_from();
  schedule->total_steps = message.total_steps();
  schedule->min_factor = message.min_factor();
  schedule->step_size = message.step_size();
  schedule->gamma = message.gamma();
  return ConvertEnum("schedule.kind", message.kind(), v1::ScheduleKind_IsValid,
                     v1::ScheduleKind_MAX, &schedule->kind);
}

void CompositionToProto(const Composition& composition, v1::Composition* message) {
  message->set_form(static_cast<v1::ComposeForm>(composition.form));
  message->set_combine(static_cast<v1::Combine>(composition.combine));
  message->set_pool_first(composition.pool_first);
  message->set_buckets(composition.buckets);
  message->mutable_block_dims()->Assign(composition.block_dims.begin(),
                                        composition.block_dims.end());
  message->set_table(composition.table);
  message->set_part(composition.part);
  message->set_rows(composition.rows);
  message->set_dim(composition.dim);
  if (composition.has_padding_id) message->set_padding_id(composition.padding_id);
  message->set_bounds_mode(static_cast<v1::BoundsMode>(composition.bounds_mode));
}

absl::Status CompositionFromProto(const v1::Composition& message, Composition* composition) {
  HOTBED_RETURN_IF_ERROR(ConvertEnum("compose", message.form(), v1::ComposeForm_IsValid,
                                     v1::ComposeForm_MAX, &composition->form));
  HOTBED_RETURN_IF_ERROR(ConvertEnum("combine", message.combine(), v1::Combine_IsValid,
                                     v1::Combine_MAX, &composition->combine));
  composition->pool_first = message.pool_first();
  composition->buckets = message.buckets();
  composition->block_dims.assign(message.block_dims().begin(), message.block_dims().end());
  composition->table = message.table();
  composition->part = message.part();
  composition->rows = message.rows();
  composition->dim = message.dim();
  composition->has_padding_id = message.has_padding_id();
  composition->padding_id = message.padding_id();
  return ConvertEnum("composition.bounds_mode", message.bounds_mode(), v1::BoundsMode_IsValid,
                     v1::BoundsMode_MAX, &composition->bounds_mode);
}

// Options of training: the meaning of the ids of a batch, and when pushes are applied.
absl::Status TrainingFromProto(const v1::TableSpec& message, TableSpec* spec) {
  spec->column_slices = std::max(message.column_slices(), 1u);
  HOTBED_RETURN_IF_ERROR(ConvertEnum("row_statistics", message.row_statistics(),
                                     v1::RowStatistics_IsValid, v1::RowStatistics_MAX,
                                     &spec->row_statistics));
  spec->has_padding_id = message.has_padding_id();
  spec->padding_id = message.padding_id();
  HOTBED_RETURN_IF_ERROR(ConvertEnum("bounds_mode", message.bounds_mode(), v1::BoundsMode_IsValid,
                                     v1::BoundsMode_MAX, &spec->bounds_mode));
  HOTBED_RETURN_IF_ERROR(ConvertEnum("gradient_reduction", message.gradient_reduction(),
                                     v1::GradientReduction_IsValid, v1::GradientReduction_MAX,
                                     &spec->gradient_reduction));
  HOTBED_RETURN_IF_ERROR(ConvertEnum("consistency", message.consistency(), v1::Consistency_IsValid,
                                     v1::Consistency_MAX, &spec->consistency));
  spec->staleness = message.staleness();
  spec->clip_slice_norm = message.clip_slice_norm();
  if (message.has_schedule()) {  // else the constant schedule
    HOTBED_RETURN_IF_ERROR(ScheduleFromProto(message.schedule(), &spec->schedule));
  }
  for (const v1::TableChange& change : message.changes()) {
    HOTBED_ASSIGN_OR_RETURN(spec->changes.emplace_back(), FromProto(change));
  }
  return absl::OkStatus();
}

void TrainingToProto(const TableSpec& spec, v1::TableSpec* message) {
  message->set_column_slices(spec.column_slices);
  message->set_row_statistics(static_cast<v1::RowStatistics>(spec.row_statistics));
  if (spec.has_padding_id) message->set_padding_id(spec.padding_id);
  message->set_bounds_mode(static_cast<v1::BoundsMode>(spec.bounds_mode));
  message->set_gradient_reduction(static_cast<v1::GradientReduction>(spec.gradient_reduction));
  message->set_consistency(static_cast<v1::Consistency>(spec.consistency));
  message->set_staleness(spec.staleness);
  message->set_clip_slice_norm(spec.clip_slice_norm);
  ScheduleToProto(spec.schedule, message->mutable_schedule());
  for (const TableChange& change : spec.changes) *message->add_changes() = ToProto(change);
}

}  // namespace

v1::TableChange ToProto(const TableChange& change) {
  v1::TableChange message;
  message.set_at_step(change.at_step);
  if (change.has_learning_rate) message.set_learning_rate(change.learning_rate);
  if (change.has_clip_value) message.set_clip_value(change.clip_value);
  if (change.has_clip_row_norm) message.set_clip_row_norm(change.clip_row_norm);
  if (change.has_schedule) ScheduleToProto(change.schedule, message.mutable_schedule());
  if (change.has_memory_share_min) message.set_memory_share_min(change.memory_share_min);
  if (change.has_memory_share_max) message.set_memory_share_max(change.memory_share_max);
  if (change.has_life) *message.mutable_life() = ToProto(change.life);
  return message;
}

absl::StatusOr<TableChange> FromProto(const v1::TableChange& message) {
  TableChange change;
  change.at_step = message.at_step();
  change.has_learning_rate = message.has_learning_rate();
  change.learning_rate = message.learning_rate();
  change.has_clip_value = message.has_clip_value();
  change.clip_value = message.clip_value();
  change.has_clip_row_norm = message.has_clip_row_norm();
  change.clip_row_norm = message.clip_row_norm();
  change.has_memory_share_min = message.has_memory_share_min();
  change.memory_share_min = message.memory_share_min();
  change.has_memory_share_max = message.has_memory_share_max();
  if (change.has_memory_share_max) change.memory_share_max = message.memory_share_max();
  change.has_life = message.has_life();
  if (change.has_life) {
    HOTBED_ASSIGN_OR_RETURN(change.life, FromProto(message.life()));
  }
  change.has_schedule = message.has_schedule();
  if (change.has_schedule) {
    HOTBED_RETURN_IF_ERROR(ScheduleFromProto(message.schedule(), &change.schedule));
  }
  return change;
}

v1::RowLife ToProto(const LifeParams& life) {
  v1::RowLife message;
  message.set_ttl_s(life.ttl_s);
  message.set_ttl_steps(life.ttl_steps);
  message.set_rows_max(life.rows_max);
  message.set_bytes_max(life.bytes_max);
  message.set_evict_by(static_cast<v1::EvictBy>(life.evict_by));
  if (life.score.show != ScoreParams().show) message.set_score_show(life.score.show);
  if (life.score.click != ScoreParams().click) message.set_score_click(life.score.click);
  message.set_score_least(life.score.least);
  message.set_admit_after(life.admission.after);
  message.set_admit_probability(life.admission.probability);
  message.set_admit_zeros(life.admission.zeros);
  message.set_admit_by(static_cast<v1::AdmitBy>(life.admission.by));
  message.set_admit_ids(life.admission.ids);
  message.set_admit_false_positives(life.admission.false_positives);
  return message;
}

absl::StatusOr<LifeParams> FromProto(const v1::RowLife& message) {
  LifeParams life;
  life.ttl_s = message.ttl_s();
  life.ttl_steps = message.ttl_steps();
  life.rows_max = message.rows_max();
  life.bytes_max = message.bytes_max();
  if (message.has_score_show()) life.score.show = message.score_show();
  if (message.has_score_click()) life.score.click = message.score_click();
  life.score.least = message.score_least();
  life.admission.after = message.admit_after();
  if (message.has_admit_probability()) life.admission.probability = message.admit_probability();
  life.admission.zeros = message.admit_zeros();
  HOTBED_RETURN_IF_ERROR(ConvertEnum("life.admit_by", message.admit_by(), v1::AdmitBy_IsValid,
                                     v1::AdmitBy_MAX, &life.admission.by));
  life.admission.ids = message.admit_ids();
  if (message.has_admit_false_positives()) {
    life.admission.false_positives = message.admit_false_positives();
  }
  HOTBED_RETURN_IF_ERROR(ConvertEnum("life.evict_by", message.evict_by(), v1::EvictBy_IsValid,
                                     v1::EvictBy_MAX, &life.evict_by));
  return life;
}

v1::TableSpec ToProto(const TableSpec& spec) {
  v1::TableSpec message;
  message.set_id(spec.id);
  message.set_name(spec.name);
  message.set_hashed(spec.hashed);
  message.set_rows(spec.rows);
  message.set_dim(spec.dim);
  message.set_weight_type(static_cast<v1::WeightType>(spec.weight_type));
  OptimizerToProto(spec.optimizer, message.mutable_optimizer());
  v1::Initializer& initializer = *message.mutable_initializer();
  initializer.set_kind(static_cast<v1::InitializerKind>(spec.initializer.kind));
  initializer.set_a(spec.initializer.a);
  initializer.set_b(spec.initializer.b);
  message.set_seed(spec.seed);
  message.set_durability(static_cast<v1::Durability>(spec.durability));
  message.set_replicas(spec.replicas);
  message.set_data_parallel(spec.data_parallel);
  message.set_nan_policy(static_cast<v1::NanPolicy>(spec.nan_policy));
  message.set_memory_share_min(spec.memory_share_min);
  message.set_memory_share_max(spec.memory_share_max);
  if (const RestoredFrom& from = spec.restored_from; !from.checkpoint.empty()) {
    message.mutable_restored_from()->set_checkpoint(from.checkpoint);
    message.mutable_restored_from()->set_table(from.table);
    message.mutable_restored_from()->set_sessions(from.sessions);
  }
  if (spec.composition.form != ComposeForm::kNone) {
    CompositionToProto(spec.composition, message.mutable_composition());
  }
  TrainingToProto(spec, &message);
  if (!(spec.life == LifeParams())) *message.mutable_life() = ToProto(spec.life);
  message.set_vocabulary(spec.vocabulary);
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
  HOTBED_RETURN_IF_ERROR(OptimizerFromProto(message.optimizer(), &spec.optimizer));
  const v1::Initializer& initializer = message.initializer();
  HOTBED_RETURN_IF_ERROR(ConvertEnum("initializer.kind", initializer.kind(),
                                     v1::InitializerKind_IsValid, v1::InitializerKind_MAX,
                                     &spec.initializer.kind));
  spec.initializer.a = initializer.a();
  spec.initializer.b = initializer.b();
  spec.seed = message.seed();
  HOTBED_RETURN_IF_ERROR(ConvertEnum("durability", message.durability(), v1::Durability_IsValid,
                                     v1::Durability_MAX, &spec.durability));
  spec.replicas = message.replicas() == 0 ? 1 : message.replicas();
  spec.data_parallel = message.data_parallel();
  spec.vocabulary = message.vocabulary();
  HOTBED_RETURN_IF_ERROR(ConvertEnum("nan_policy", message.nan_policy(), v1::NanPolicy_IsValid,
                                     v1::NanPolicy_MAX, &spec.nan_policy));
  spec.memory_share_min = message.memory_share_min();
  if (message.memory_share_max() != 0) spec.memory_share_max = message.memory_share_max();
  if (message.has_restored_from()) {
    spec.restored_from = {message.restored_from().checkpoint(), message.restored_from().table(),
                          message.restored_from().sessions()};
  }
  if (message.has_composition()) {
    HOTBED_RETURN_IF_ERROR(CompositionFromProto(message.composition(), &spec.composition));
  }
  HOTBED_RETURN_IF_ERROR(TrainingFromProto(message, &spec));
  if (message.has_life()) {
    HOTBED_ASSIGN_OR_RETURN(spec.life, FromProto(message.life()));
  }
  return spec;
}

void LogEndToProto(const LogEnd& end, v1::LogEnd* message) {
  message->set_epoch(end.epoch);
  message->set_lsn(end.lsn);
}

LogEnd FromProto(const v1::LogEnd& message) { return {message.epoch(), message.lsn()}; }

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
  message->mutable_readers()->Assign(record.readers.begin(), record.readers.end());
  message->set_active(record.active);
  MembersToProto(record.base, message->mutable_base());
  for (const PassedOver& one : record.passed_over) {
    v1::PassedOver* const passed = message->add_passed_over();
    passed->set_server(one.server);
    LogEndToProto(one.chosen, passed->mutable_chosen());
  }
  for (const ShardLane& one : record.lanes) {
    v1::ShardLane* const lane = message->add_lanes();
    lane->set_index(one.index);
    lane->set_tag(one.tag);
    lane->set_tag_before(one.tag_before);
    lane->set_first(one.first);
    lane->set_limit(one.limit);
  }
  if (record.merge.base.lsn == 0) return;
  message->mutable_merge()->set_with(record.merge.with.packed());
  LogEndToProto(record.merge.end, message->mutable_merge()->mutable_end());
  LogEndToProto(record.merge.end_with, message->mutable_merge()->mutable_end_with());
  LogEndToProto(record.merge.base, message->mutable_merge()->mutable_base());
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
  record.readers.assign(message.readers().begin(), message.readers().end());
  record.active = message.active();
  record.base = MembersFromProto(message.base());
  for (const v1::PassedOver& one : message.passed_over()) {
    record.passed_over.push_back({one.server(), FromProto(one.chosen())});
  }
  for (const v1::ShardLane& one : message.lanes()) {
    record.lanes.push_back({one.index(), one.tag(), one.tag_before(), one.first(), one.limit()});
  }
  if (message.has_merge()) {
    record.merge = {ShardId::FromPacked(message.merge().with()), FromProto(message.merge().end()),
                    FromProto(message.merge().end_with()), FromProto(message.merge().base())};
  }
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
