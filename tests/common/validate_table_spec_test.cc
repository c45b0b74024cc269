// Every field of a table's description: a value out of range is refused, naming the field, its
// value and the range. A field that is added without cases first breaks the build, then fails here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/tables/table_spec.h"

namespace hotbed {
namespace validate_table_spec_test {

using ::testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

TableSpec Valid() {
  TableSpec spec;
  spec.name = "users";
  spec.rows = 100;
  spec.dim = 16;
  return spec;
}

std::vector<std::string> Under(const std::string& prefix, std::vector<std::string> names) {
  for (std::string& name : names) name.insert(0, prefix);
  return names;
}

// Structured bindings must name every member: a new one breaks the build here.
std::vector<std::string> FieldsOf(const OptimizerParams& params) {
  [[maybe_unused]] const auto& [kind, learning_rate, epsilon, beta1, beta2, weight_decay,
                                initial_accumulator, momentum, trust_coefficient, l1, l2, ftrl_beta,
                                clip_value, clip_row_norm, max_norm, max_norm_type, decay_mode,
                                lazy_decay, lazy_decay_least, row_bias_correction,
                                stochastic_rounding, touches, shows, state_type, counter, average] =
      params;
  [[maybe_unused]] const auto& [kept, decay, period_s] = shows;
  [[maybe_unused]] const auto& [mode, half_life, from_step, threshold, most, power,
                                clip_coefficient, clip_least] = counter;
  [[maybe_unused]] const auto& [rate, every, average_from_step] = average;
  return {"kind",
          "learning_rate",
          "epsilon",
          "beta1",
          "beta2",
          "weight_decay",
          "momentum",
          "initial_accumulator",
          "trust_coefficient",
          "l1",
          "l2",
          "ftrl_beta",
          "clip_value",
          "clip_row_norm",
          "max_norm",
          "max_norm_type",
          "decay_mode",
          "lazy_decay_least",
          "counter_mode",
          "counter_half_life",
          "counter_from_step",
          "counter_threshold",
          "counter_max",
          "counter_power",
          "clip_coefficient",
          "clip_least",
          "average_rate",
          "average_every",
          "average_from_step",
          "lazy_decay",
          "row_bias_correction",
          "touches",
          "shows",
          "show_decay",
          "show_period_s",
          "state_type",
          "stochastic_rounding"};
}

std::vector<std::string> FieldsOf(const Schedule& schedule) {
  [[maybe_unused]] const auto& [kind, warmup_steps, warmup_from, total_steps, min_factor, step_size,
                                gamma] = schedule;
  return {"kind", "warmup_steps", "warmup_from", "total_steps", "min_factor", "step_size", "gamma"};
}

std::vector<std::string> FieldsOf(const InitializerParams& initializer) {
  [[maybe_unused]] const auto& [kind, a, b] = initializer;
  return {"kind", "a", "b"};
}

std::vector<std::string> FieldsOf(const TableChange& change) {
  [[maybe_unused]] const auto& [at_step, has_learning_rate, learning_rate, has_clip_value,
                                clip_value, has_clip_row_norm, clip_row_norm, has_schedule,
                                schedule, has_memory_share_min, memory_share_min,
                                has_memory_share_max, memory_share_max, has_life, life] = change;
  std::vector<std::string> names = {"at_step",       "learning_rate",    "clip_value",
                                    "clip_row_norm", "memory_share_min", "memory_share_max"};
  for (const std::string& name : Under("schedule.", FieldsOf(schedule))) names.push_back(name);
  return names;
}

std::vector<std::string> FieldsOf(const TableSpec& spec) {
  [[maybe_unused]] const auto& [id, name, hashed, rows, vocabulary, dim, weight_type, optimizer,
                                initializer, seed, durability, replicas, data_parallel, nan_policy,
                                column_slices, row_statistics, has_padding_id, padding_id,
                                bounds_mode, gradient_reduction, consistency, staleness,
                                clip_slice_norm, schedule, memory_share_min, memory_share_max, life,
                                restored_from, composition, changes] = spec;
  std::vector<std::string> names = {"id",
                                    "name",
                                    "hashed",
                                    "rows",
                                    "vocabulary",
                                    "dim",
                                    "weight_type",
                                    "seed",
                                    "durability",
                                    "replicas",
                                    "data_parallel",
                                    "nan_policy",
                                    "bounds_mode",
                                    "column_slices",
                                    "row_statistics",
                                    "padding_id",
                                    "has_padding_id",
                                    "gradient_reduction",
                                    "consistency",
                                    "staleness",
                                    "clip_slice_norm",
                                    "memory_share_min",
                                    "memory_share_max",
                                    "changes"};
  const auto add = [&names](const std::string& prefix, std::vector<std::string> more) {
    for (std::string& one : Under(prefix, std::move(more))) names.push_back(std::move(one));
  };
  add("optimizer.", FieldsOf(optimizer));
  add("initializer.", FieldsOf(initializer));
  add("schedule.", FieldsOf(schedule));
  [[maybe_unused]] const auto& [checkpoint, table, sessions] = restored_from;
  add("restored_from.", {"checkpoint", "table", "sessions"});
  [[maybe_unused]] const auto& [ttl_s, ttl_steps, rows_max, bytes_max, evict_by, score, admission] =
      life;
  [[maybe_unused]] const auto& [show, click, least] = score;
  [[maybe_unused]] const auto& [after, probability, zeros, by, admit_ids, false_positives] =
      admission;
  add("life.", {"ttl_s", "ttl_steps", "rows_max", "bytes_max", "evict_by", "score_show",
                "score_click", "score_least", "admit_after", "admit_probability", "admit_zeros",
                "admit_by", "admit_ids", "admit_false_positives"});
  add("changes[0].", FieldsOf(TableChange()));
  // The fields of composition: composition_test.cc.
  return names;
}

// Fields that accept any value; the comments name the code that decides about them.
const std::set<std::string>& Unlimited() {
  static const auto* const fields = new std::set<std::string>{
      "id",              // the coordinator's: planner/coordinator/operations/table_operations.cc
      "hashed",          // both
      "seed",            // all of 64 bits
      "data_parallel",   // both
      "has_padding_id",  // both; the id itself has a range
      "restored_from.sessions",  // both
      "optimizer.counter_from_step",
      "optimizer.average_from_step",
      "schedule.warmup_steps",
      "changes[0].schedule.warmup_steps",
  };
  return *fields;
}

struct Case {
  std::string field;
  std::string value;    // as in the message
  std::string allowed;  // part of what the message allows
  std::function<void(TableSpec*)> spoil;
};

template <typename Enum>
Enum Unknown() {
  return static_cast<Enum>(99);
}

AdmissionParams* Filtered(TableSpec* spec) {
  spec->hashed = spec->optimizer.touches = true;
  spec->life.admission.after = 3;
  spec->life.admission.by = AdmitBy::kBloom;
  return &spec->life.admission;
}

std::vector<Case> LifeCases() {
  return {
      {"optimizer.touches", "true", "false for a bounded table",
       [](TableSpec* s) { s->optimizer.touches = true; }},
      {"life.ttl_s", "5", "0 without touches", [](TableSpec* s) { s->life.ttl_s = 5; }},
      {"life.ttl_steps", "5", "0 without touches", [](TableSpec* s) { s->life.ttl_steps = 5; }},
      {"life.rows_max", "5", "0 without touches", [](TableSpec* s) { s->life.rows_max = 5; }},
      {"life.bytes_max", "5", "0 without touches", [](TableSpec* s) { s->life.bytes_max = 5; }},
      {"life.evict_by", "99", "lru, lfu, norm",
       [](TableSpec* s) { s->life.evict_by = Unknown<EvictBy>(); }},
      {"life.evict_by", "lfu", "lru without rows_max",
       [](TableSpec* s) { s->life.evict_by = EvictBy::kLfu; }},
      {"life.evict_by", "score", "lru, lfu or norm without shows",
       [](TableSpec* s) { s->life.evict_by = EvictBy::kScore; }},
      {"life.score_show", "-1", "finite and >= 0", [](TableSpec* s) { s->life.score.show = -1; }},
      {"life.score_click", "nan", "finite and >= 0",
       [](TableSpec* s) { s->life.score.click = kNan; }},
      {"life.score_least", "0.5", "0 without shows",
       [](TableSpec* s) { s->life.score.least = 0.5f; }},
      {"life.rows_max", "5", "0 without touches",
       [](TableSpec* s) {
         s->changes = {{.at_step = 4, .has_life = true, .life = {.rows_max = 5}}};
       }},
      {"life.evict_by", "99", "lru, lfu, norm",
       [](TableSpec* s) {
         s->changes = {{.at_step = 4, .has_life = true, .life = {.evict_by = Unknown<EvictBy>()}}};
       }},
      {"optimizer.shows", "true", "false without touches",
       [](TableSpec* s) { s->optimizer.shows.kept = true; }},
      {"optimizer.show_decay", "1.5", "(0, 1]",
       [](TableSpec* s) { s->optimizer.shows.decay = 1.5f; }},
      {"optimizer.show_decay", "0.5", "1 without shows",
       [](TableSpec* s) { s->optimizer.shows.decay = 0.5f; }},
      {"optimizer.show_period_s", "0", ">= 1",
       [](TableSpec* s) { s->optimizer.shows.period_s = 0; }},
      {"vocabulary", "4294967296", "1..4294967295",
       [](TableSpec* s) { s->vocabulary = uint64_t{1} << 32; }},
      {"hashed", "false", "true with vocabulary", [](TableSpec* s) { s->vocabulary = 9; }},
  };
}

std::vector<Case> AdmissionCases() {
  return {
      {"life.admit_after", "2", "0 or 1 without touches",
       [](TableSpec* s) { s->life.admission.after = 2; }},
      {"life.admit_probability", "0.5", "1 without touches",
       [](TableSpec* s) { s->life.admission.probability = 0.5f; }},
      {"life.admit_probability", "2", "(0, 1]",
       [](TableSpec* s) {
         s->hashed = s->optimizer.touches = true;
         s->life.admission.probability = 2;
       }},
      {"life.admit_by", "bloom", "exact with admit_after 0 and 1",
       [](TableSpec* s) { s->life.admission.by = AdmitBy::kBloom; }},
      {"life.admit_by", "99", "exact, bloom",
       [](TableSpec* s) { s->life.admission.by = Unknown<AdmitBy>(); }},
      {"life.admit_after", "256", "2..255 with admit_by bloom",
       [](TableSpec* s) { Filtered(s)->after = 256; }},
      {"life.admit_ids", "5", "0 with admit_by exact",
       [](TableSpec* s) { s->life.admission.ids = 5; }},
      {"life.admit_ids", "1099511627776", "so many that a filter of at most 4 GiB",
       [](TableSpec* s) { Filtered(s)->ids = uint64_t{1} << 40; }},
      {"life.admit_false_positives", "0.5", "left out with admit_by exact",
       [](TableSpec* s) { s->life.admission.false_positives = 0.5f; }},
      {"life.admit_false_positives", "0.75", "[1e-06, 0.5]",
       [](TableSpec* s) { Filtered(s)->false_positives = 0.75f; }},
      {"life.admit_zeros", "true", "false without touches",
       [](TableSpec* s) { s->life.admission.zeros = true; }},
      {"column_slices", "2", "1 with touches",
       [](TableSpec* s) {
         s->hashed = s->optimizer.touches = true;
         s->optimizer.kind = OptimizerKind::kSgd;
         s->column_slices = 2;
       }},
  };
}

std::vector<Case> BasicCases() {
  return {
      {"name", "of 0 bytes", "1..200", [](TableSpec* s) { s->name = ""; }},
      {"name", "of 3 bytes", "letters", [](TableSpec* s) { s->name = "a b"; }},
      {"name", "of 2 bytes", "first", [](TableSpec* s) { s->name = "-a"; }},
      {"name", "of 201 bytes", "1..200", [](TableSpec* s) { s->name = std::string(201, 'a'); }},
      {"dim", "0", "1..8192", [](TableSpec* s) { s->dim = 0; }},
      {"dim", "8193", "1..8192", [](TableSpec* s) { s->dim = 8193; }},
      {"rows", "0", "1..", [](TableSpec* s) { s->rows = 0; }},
      {"rows", "18446744073709551615", "4611686018427387904",
       [](TableSpec* s) { s->rows = ~uint64_t{0}; }},
      {"rows", "18446744073709551615", "0..4611686018427387904",
       [](TableSpec* s) {
         s->hashed = true;
         s->rows = ~uint64_t{0};
       }},
      {"weight_type", "99", "fp32, fp16, bf16",
       [](TableSpec* s) { s->weight_type = Unknown<WeightType>(); }},
      {"durability", "99", "checkpoint, log, replicated",
       [](TableSpec* s) { s->durability = Unknown<Durability>(); }},
      {"replicas", "2", "1 (durability replicated has more)",
       [](TableSpec* s) { s->replicas = 2; }},
      {"replicas", "1", "2..3", [](TableSpec* s) { s->durability = Durability::kReplicated; }},
      {"replicas", "4", "2..3",
       [](TableSpec* s) {
         s->durability = Durability::kReplicated;
         s->replicas = 4;
       }},
      {"nan_policy", "99", "reject, skip, allow",
       [](TableSpec* s) { s->nan_policy = Unknown<NanPolicy>(); }},
      {"initializer.kind", "99", "uniform",
       [](TableSpec* s) { s->initializer.kind = Unknown<InitializerKind>(); }},
      {"initializer.a", "nan", "finite", [](TableSpec* s) { s->initializer.a = kNan; }},
      {"initializer.a (low end)", "1", "at most initializer.b = 0.5",
       [](TableSpec* s) {
         s->initializer = {InitializerKind::kUniform, 1.0f, 0.5f};
       }},
      {"initializer.b", "inf", "finite", [](TableSpec* s) { s->initializer.b = kInf; }},
      {"initializer.b (standard deviation)", "-1", ">= 0",
       [](TableSpec* s) {
         s->initializer = {InitializerKind::kNormal, 0.0f, -1.0f};
       }},
      {"column_slices", "0", "1..16", [](TableSpec* s) { s->column_slices = 0; }},
      {"column_slices", "17", "1..16", [](TableSpec* s) { s->column_slices = 17; }},
      {"column_slices", "257", "1..256",
       [](TableSpec* s) {
         s->dim = 1000;
         s->column_slices = 257;
       }},
      {"column_slices", "2", "row_statistics=slice", [](TableSpec* s) { s->column_slices = 2; }},
      {"column_slices", "2", "row_statistics=slice",
       [](TableSpec* s) {
         s->optimizer.kind = OptimizerKind::kSgd;
         s->optimizer.max_norm = 1;
         s->column_slices = 2;
       }},
      {"column_slices", "2", "row_statistics=slice",
       [](TableSpec* s) {
         s->optimizer.kind = OptimizerKind::kSgd;
         s->column_slices = 2;
         s->changes.push_back({.at_step = 5, .has_clip_row_norm = true, .clip_row_norm = 1});
       }},
      {"row_statistics", "99", "row, slice",
       [](TableSpec* s) { s->row_statistics = Unknown<RowStatistics>(); }},
  };
}

std::vector<Case> TrainingCases() {
  return {
      {"padding_id", "100", "0..99",
       [](TableSpec* s) {
         s->has_padding_id = true;
         s->padding_id = 100;
       }},
      {"bounds_mode", "99", "error, zero, modulo",
       [](TableSpec* s) { s->bounds_mode = Unknown<BoundsMode>(); }},
      {"bounds_mode", "modulo", "error",
       [](TableSpec* s) {
         s->hashed = true;
         s->bounds_mode = BoundsMode::kModulo;
       }},
      {"bounds_mode", "zero", "error",
       [](TableSpec* s) {
         s->hashed = true;
         s->bounds_mode = BoundsMode::kZero;
       }},
      {"gradient_reduction", "99", "sum, mean",
       [](TableSpec* s) { s->gradient_reduction = Unknown<GradientReduction>(); }},
      {"consistency", "99", "async, bounded, sync",
       [](TableSpec* s) { s->consistency = Unknown<Consistency>(); }},
      {"staleness", "3", "consistency is bounded", [](TableSpec* s) { s->staleness = 3; }},
      {"staleness", "3", "consistency is bounded",
       [](TableSpec* s) {
         s->consistency = Consistency::kSync;
         s->staleness = 3;
       }},
      {"clip_slice_norm", "-1", ">= 0", [](TableSpec* s) { s->clip_slice_norm = -1; }},
      {"clip_slice_norm", "nan", "finite", [](TableSpec* s) { s->clip_slice_norm = kNan; }},
      {"changes", "257", "at most 256",
       [](TableSpec* s) {
         for (uint64_t step = 1; step <= 257; ++step) {
           s->changes.push_back({.at_step = step, .has_clip_value = true, .clip_value = 1});
         }
       }},
      {"changes[0]", "empty", "learning_rate", [](TableSpec* s) { s->changes = {{.at_step = 4}}; }},
      {"changes[0].at_step", "0", "1..",
       [](TableSpec* s) { s->changes = {{.at_step = 0, .has_clip_value = true}}; }},
      {"changes[0].at_step", "17592186044416", "1..17592186044415",
       [](TableSpec* s) { s->changes = {{.at_step = 1ull << 44, .has_clip_value = true}}; }},
      {"changes[1].at_step", "4", "5..",
       [](TableSpec* s) {
         s->changes = {{.at_step = 4, .has_clip_value = true},
                       {.at_step = 4, .has_clip_value = true}};
       }},
      {"changes[0].learning_rate", "-1", ">= 0",
       [](TableSpec* s) {
         s->changes = {{.at_step = 4, .has_learning_rate = true, .learning_rate = -1}};
       }},
      {"changes[0].learning_rate", "0", "> 0",
       [](TableSpec* s) {
         s->optimizer.kind = OptimizerKind::kFtrl;
         s->changes = {{.at_step = 4, .has_learning_rate = true, .learning_rate = 0}};
       }},
      {"changes[0].clip_value", "nan", "finite",
       [](TableSpec* s) {
         s->changes = {{.at_step = 4, .has_clip_value = true, .clip_value = kNan}};
       }},
      {"changes[0].clip_row_norm", "-1", ">= 0",
       [](TableSpec* s) {
         s->changes = {{.at_step = 4, .has_clip_row_norm = true, .clip_row_norm = -1}};
       }},
  };
}

std::vector<Case> AverageCases() {
  return {
      {"optimizer.average_rate", "1.5", "0..1",
       [](TableSpec* s) { s->optimizer.average.rate = 1.5f; }},
      {"optimizer.average_rate", "nan", "0..1",
       [](TableSpec* s) { s->optimizer.average.rate = kNan; }},
      {"column_slices", "2", "1 with average_rate",
       [](TableSpec* s) {
         s->row_statistics = RowStatistics::kSlice;
         s->optimizer.average.rate = 0.5f;
         s->column_slices = 2;
       }},
      {"dim", "15", "even with average_rate",
       [](TableSpec* s) {
         s->dim = 15;
         s->optimizer.average.rate = 0.5f;
       }},
      {"optimizer.average_rate", "0.5", "0 for none",
       [](TableSpec* s) {
         s->optimizer.kind = OptimizerKind::kNone;
         s->optimizer.average.rate = 0.5f;
       }},
      {"optimizer.average_every", "0", ">= 1 step",
       [](TableSpec* s) {
         s->optimizer.average = {0.5f, 0};
       }},
  };
}

std::vector<Case> MemoryCases() {
  return {
      {"memory_share_min", "-0.1", "[0, 1]", [](TableSpec* s) { s->memory_share_min = -0.1f; }},
      {"memory_share_min", "nan", "[0, 1]", [](TableSpec* s) { s->memory_share_min = kNan; }},
      {"memory_share_max", "0", "(0, 1]", [](TableSpec* s) { s->memory_share_max = 0; }},
      {"restored_from.checkpoint", "\"saved/one\"", "an absolute path",
       [](TableSpec* s) {
         s->restored_from = {"saved/one", "user"};
       }},
      {"restored_from.table", "of 0 bytes", "1..200",
       [](TableSpec* s) {
         s->restored_from = {"/saved/one", ""};
       }},
      {"memory_share_max", "1.5", "(0, 1]", [](TableSpec* s) { s->memory_share_max = 1.5f; }},
      {"memory_share_min", "0.5", "at most memory_share_max = 0.25",
       [](TableSpec* s) {
         s->memory_share_min = 0.5f;
         s->memory_share_max = 0.25f;
       }},
      {"memory_share_min", "0.5", "at most memory_share_max = 0.25",
       [](TableSpec* s) {
         s->memory_share_min = 0.5f;
         s->changes = {{.at_step = 4, .has_memory_share_max = true, .memory_share_max = 0.25f}};
       }},
      {"changes[0].memory_share_min", "2", "[0, 1]",
       [](TableSpec* s) {
         s->changes = {{.at_step = 4, .has_memory_share_min = true, .memory_share_min = 2}};
       }},
      {"changes[0].memory_share_max", "0", "(0, 1]",
       [](TableSpec* s) {
         s->changes = {{.at_step = 4, .has_memory_share_max = true, .memory_share_max = 0}};
       }},
  };
}

void AddFloats(const std::string& field, const std::function<float*(TableSpec*)>& at,
               const std::vector<std::pair<float, std::string>>& bad, std::vector<Case>* cases) {
  for (const auto& [value, allowed] : bad) {
    cases->push_back({field, absl::StrCat(value), allowed,
                      [at, value = value](TableSpec* spec) { *at(spec) = value; }});
  }
}

std::vector<Case> OptimizerNumberCases() {
  std::vector<Case> cases;
  const std::map<std::string, float OptimizerParams::*> not_negative = {
      {"learning_rate", &OptimizerParams::learning_rate},
      {"weight_decay", &OptimizerParams::weight_decay},
      {"initial_accumulator", &OptimizerParams::initial_accumulator},
      {"trust_coefficient", &OptimizerParams::trust_coefficient},
      {"l1", &OptimizerParams::l1},
      {"l2", &OptimizerParams::l2},
      {"ftrl_beta", &OptimizerParams::ftrl_beta},
      {"clip_value", &OptimizerParams::clip_value},
      {"clip_row_norm", &OptimizerParams::clip_row_norm},
      {"max_norm", &OptimizerParams::max_norm}};
  for (const auto& [name, member] : not_negative) {
    AddFloats(
        "optimizer." + name, [m = member](TableSpec* s) { return &(s->optimizer.*m); },
        {{-0.5f, "finite and >= 0"}, {kNan, "finite"}, {kInf, "finite"}}, &cases);
  }
  for (const auto& [name, member] : std::map<std::string, float CounterParams::*>{
           {"counter_half_life", &CounterParams::half_life},
           {"counter_threshold", &CounterParams::threshold},
           {"clip_coefficient", &CounterParams::clip_coefficient},
           {"clip_least", &CounterParams::clip_least}}) {
    AddFloats(
        "optimizer." + name, [m = member](TableSpec* s) { return &(s->optimizer.counter.*m); },
        {{-0.5f, "finite and >= 0"}, {kNan, "finite"}, {kInf, "finite"}}, &cases);
  }
  for (const auto& [name, member] : std::map<std::string, float CounterParams::*>{
           {"counter_max", &CounterParams::most}, {"counter_power", &CounterParams::power}}) {
    const auto counted = [m = member](TableSpec* s) {
      s->optimizer.kind = OptimizerKind::kRowwiseAdagradCounter;
      return &(s->optimizer.counter.*m);
    };
    AddFloats("optimizer." + name, counted, {{0.0f, "> 0"}, {kNan, "> 0"}}, &cases);
  }
  const auto norm_type = [](TableSpec* s) {
    s->optimizer.max_norm = 1;
    return &s->optimizer.max_norm_type;
  };
  AddFloats("optimizer.max_norm_type", norm_type,
            {{0.5f, "1..100, or 0"}, {101.0f, "1..100"}, {-1.0f, "1..100"}, {kNan, "1..100"}},
            &cases);
  AddFloats(
      "optimizer.max_norm_type", [](TableSpec* s) { return &s->optimizer.max_norm_type; },
      {{1.0f, "2 or 0 without max_norm"}}, &cases);
  const auto least = [](TableSpec* s) {
    s->optimizer.kind = OptimizerKind::kSgd;
    s->optimizer.lazy_decay = true;
    return &s->optimizer.lazy_decay_least;
  };
  AddFloats("optimizer.lazy_decay_least", least,
            {{1.0f, "[0, 1)"}, {-0.5f, "[0, 1)"}, {kNan, "[0, 1)"}}, &cases);
  AddFloats(
      "optimizer.lazy_decay_least", [](TableSpec* s) { return &s->optimizer.lazy_decay_least; },
      {{0.5f, "0 without lazy_decay"}}, &cases);
  AddFloats(
      "optimizer.epsilon", [](TableSpec* s) { return &s->optimizer.epsilon; },
      {{0.0f, "> 0"}, {kNan, "> 0"}}, &cases);
  for (const auto& [name, member] :
       std::map<std::string, float OptimizerParams::*>{{"beta1", &OptimizerParams::beta1},
                                                       {"beta2", &OptimizerParams::beta2},
                                                       {"momentum", &OptimizerParams::momentum}}) {
    AddFloats(
        "optimizer." + name, [m = member](TableSpec* s) { return &(s->optimizer.*m); },
        {{1.0f, "[0, 1)"}, {-0.5f, "[0, 1)"}, {kNan, "[0, 1)"}}, &cases);
  }
  return cases;
}

std::vector<Case> OptimizerCases() {
  std::vector<Case> cases = {
      {"optimizer.kind", "99", "rowwise-adagrad",
       [](TableSpec* s) { s->optimizer.kind = Unknown<OptimizerKind>(); }},
      {"optimizer.learning_rate", "0", "> 0",
       [](TableSpec* s) {
         s->optimizer.kind = OptimizerKind::kFtrl;
         s->optimizer.learning_rate = 0;
       }},
      {"optimizer.trust_coefficient", "0", "> 0",
       [](TableSpec* s) {
         s->optimizer.kind = OptimizerKind::kLars;
         s->optimizer.trust_coefficient = 0;
       }},
      {"optimizer.decay_mode", "99", "l2, decoupled",
       [](TableSpec* s) { s->optimizer.decay_mode = Unknown<DecayMode>(); }},
      {"optimizer.decay_mode", "decoupled", "adamw",
       [](TableSpec* s) {
         s->optimizer.kind = OptimizerKind::kLamb;
         s->optimizer.decay_mode = DecayMode::kDecoupled;
       }},
      {"optimizer.weight_decay", "0.5", "0 for ftrl",
       [](TableSpec* s) {
         s->optimizer.kind = OptimizerKind::kFtrl;
         s->optimizer.weight_decay = 0.5f;
       }},
      {"optimizer.weight_decay", "0.5", "for none",
       [](TableSpec* s) {
         s->optimizer.kind = OptimizerKind::kNone;
         s->optimizer.weight_decay = 0.5f;
       }},
      {"optimizer.lazy_decay", "true", "decoupled",
       [](TableSpec* s) { s->optimizer.lazy_decay = true; }},
      {"optimizer.lazy_decay", "true", "decoupled",
       [](TableSpec* s) {
         s->optimizer.kind = OptimizerKind::kLamb;
         s->optimizer.lazy_decay = true;
       }},
      {"optimizer.lazy_decay", "true", "decoupled",
       [](TableSpec* s) {
         s->optimizer.kind = OptimizerKind::kRowwiseAdagradCounter;
         s->optimizer.decay_mode = DecayMode::kDecoupled;
         s->optimizer.lazy_decay = true;
       }},
      {"optimizer.counter_mode", "99", "decay, tail-increase",
       [](TableSpec* s) { s->optimizer.counter.mode = Unknown<CounterMode>(); }},
      {"optimizer.counter_mode", "cowclip", "rowwise-adagrad-counter as the optimizer",
       [](TableSpec* s) { s->optimizer.counter.mode = CounterMode::kCowClip; }},
      {"optimizer.decay_mode", "l2", "decoupled with counter_mode adagradw",
       [](TableSpec* s) {
         s->optimizer.kind = OptimizerKind::kRowwiseAdagradCounter;
         s->optimizer.counter.mode = CounterMode::kAdagradW;
       }},
      {"optimizer.counter_half_life", "3", "0 with counter_mode adagradw",
       [](TableSpec* s) {
         s->optimizer.kind = OptimizerKind::kRowwiseAdagradCounter;
         s->optimizer.decay_mode = DecayMode::kDecoupled;
         s->optimizer.counter.mode = CounterMode::kAdagradW;
         s->optimizer.counter.half_life = 3;
       }},
      {"optimizer.row_bias_correction", "true", "adam",
       [](TableSpec* s) { s->optimizer.row_bias_correction = true; }},
      {"optimizer.stochastic_rounding", "true", "fp32",
       [](TableSpec* s) { s->optimizer.stochastic_rounding = true; }},
      {"optimizer.state_type", "99", "fp32, bf16",
       [](TableSpec* s) { s->optimizer.state_type = Unknown<StateType>(); }},
  };
  for (Case& one : OptimizerNumberCases()) cases.push_back(std::move(one));
  return cases;
}

// The schedule of a table and that of a change have the same rules under two names.
std::vector<Case> ScheduleCases() {
  const std::vector<std::tuple<std::string, std::string, std::string, Schedule>> bad = {
      {"kind", "99", "0..3", {.kind = Unknown<ScheduleKind>()}},
      {"warmup_from", "-1", ">= 0", {.warmup_from = -1}},
      {"warmup_from", "nan", "finite", {.warmup_from = kNan}},
      {"total_steps",
       "7",
       "above warmup_steps = 7",
       {.kind = ScheduleKind::kCosine, .warmup_steps = 7, .total_steps = 7}},
      {"min_factor", "1.5", "[0, 1]", {.min_factor = 1.5f}},
      {"min_factor", "nan", "[0, 1]", {.min_factor = kNan}},
      {"step_size", "0", "1 or more", {.kind = ScheduleKind::kStep}},
      {"gamma", "0", "(0, 1]", {.gamma = 0}},
      {"gamma", "1.5", "(0, 1]", {.gamma = 1.5f}},
  };
  std::vector<Case> cases;
  for (const auto& [name, value, allowed, schedule] : bad) {
    const Schedule wrong = schedule;
    cases.push_back(
        {"schedule." + name, value, allowed, [wrong](TableSpec* spec) { spec->schedule = wrong; }});
    cases.push_back({"changes[0].schedule." + name, value, allowed, [wrong](TableSpec* spec) {
                       spec->changes = {{.at_step = 3, .has_schedule = true, .schedule = wrong}};
                     }});
  }
  return cases;
}

std::vector<Case> AllCases() {
  std::vector<Case> all;
  for (const std::vector<Case>& some :
       {BasicCases(), LifeCases(), AdmissionCases(), TrainingCases(), AverageCases(), MemoryCases(),
        OptimizerCases(), ScheduleCases()}) {
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

TEST(ValidateTableSpec, EveryRefusalNamesTableFieldValueAndRange) {
  ASSERT_TRUE(ValidateTableSpec(Valid()).ok()) << ValidateTableSpec(Valid());
  for (const Case& one : AllCases()) {
    SCOPED_TRACE(absl::StrCat(one.field, " ", one.value));
    TableSpec spec = Valid();
    one.spoil(&spec);
    const absl::Status status = ValidateTableSpec(spec);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    const std::string message(status.message());
    EXPECT_THAT(message, HasSubstr(absl::StrCat("table \"", spec.name, "\": ", one.field, " is ",
                                                one.value, ", allowed: ")));
    const size_t allowed = message.find(", allowed: ");
    ASSERT_NE(allowed, std::string::npos);
    EXPECT_THAT(message.substr(allowed), HasSubstr(one.allowed));
  }
}

TEST(ValidateTableSpec, NoFieldIsWithoutACase) {
  std::set<std::string> covered = Unlimited();
  for (const Case& one : AllCases()) covered.insert(one.field);
  for (const std::string& field : FieldsOf(TableSpec())) {
    EXPECT_TRUE(covered.contains(field)) << field << ": give it cases, or say why it has no limit";
  }
}

TEST(ValidateTableSpec, AcceptsTheEdgesOfEachRange) {
  const std::function<void(TableSpec*)> edges[] = {
      [](TableSpec* s) { s->optimizer.learning_rate = 0; },
      [](TableSpec* s) { s->optimizer.beta1 = s->optimizer.beta2 = s->optimizer.momentum = 0; },
      [](TableSpec* s) { s->optimizer.trust_coefficient = 0; },  // not LARS
      [](TableSpec* s) {
        s->optimizer.kind = OptimizerKind::kSgd;
        s->optimizer.lazy_decay = true;
      },
      [](TableSpec* s) {
        s->optimizer.kind = OptimizerKind::kAdamW;
        s->optimizer.lazy_decay = s->optimizer.row_bias_correction = true;
      },
      [](TableSpec* s) {
        s->optimizer.decay_mode = DecayMode::kDecoupled;
        s->optimizer.lazy_decay = true;
      },
      [](TableSpec* s) {
        s->optimizer.kind = OptimizerKind::kPartialRowwiseAdam;
        s->optimizer.decay_mode = DecayMode::kDecoupled;
        s->optimizer.lazy_decay = true;
      },
      [](TableSpec* s) {
        s->weight_type = WeightType::kBf16;
        s->optimizer.stochastic_rounding = true;
      },
      [](TableSpec* s) {
        s->optimizer.kind = OptimizerKind::kSgd;
        s->column_slices = 16;
      },
      [](TableSpec* s) {
        s->row_statistics = RowStatistics::kSlice;
        s->column_slices = 16;
      },
      [](TableSpec* s) {
        s->has_padding_id = true;
        s->padding_id = 99;
      },
      [](TableSpec* s) {
        s->hashed = s->has_padding_id = true;
        s->padding_id = ~uint64_t{0};
      },
      [](TableSpec* s) { s->bounds_mode = BoundsMode::kModulo; },
      [](TableSpec* s) { s->consistency = Consistency::kBounded; },  // staleness 0: sync
      [](TableSpec* s) {
        s->consistency = Consistency::kBounded;
        s->staleness = 1;
      },
      [](TableSpec* s) { s->schedule.gamma = s->schedule.min_factor = 1; },
      [](TableSpec* s) {
        for (uint64_t step = 1; step <= kTableChangesMax; ++step) {
          s->changes.push_back({.at_step = step, .has_clip_value = true, .clip_value = 0});
        }
      },
  };
  for (size_t i = 0; i < std::size(edges); ++i) {
    TableSpec spec = Valid();
    edges[i](&spec);
    EXPECT_TRUE(ValidateTableSpec(spec).ok()) << i << ": " << ValidateTableSpec(spec);
  }
}

}  // namespace validate_table_spec_test
}  // namespace hotbed
