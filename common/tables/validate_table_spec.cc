// ValidateTableSpec: each rule once, in the order of TableSpec's fields.
#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "common/tables/composition.h"
#include "common/tables/table_spec.h"
#include "common/tables/touch_filter_shape.h"
#include "common/tables/vocabulary_row.h"

namespace hotbed {
namespace {

constexpr size_t kNameBytesMax = 200;
constexpr size_t kPathBytesMax = 4096;
constexpr uint64_t kRowsMax = uint64_t{1} << 62;
constexpr char kNotNegative[] = "finite and >= 0";

const std::vector<std::string>& InitializerWords() {
  static const auto* const words = new std::vector<std::string>{
      "scaled", "constant", "uniform", "normal", "truncated-normal", "zero"};
  return *words;
}

// Keeps the first violation.
class Rules {
 public:
  explicit Rules(const TableSpec& spec) : spec_(spec) {}

  template <typename Value>
  void Require(bool holds, absl::string_view field, const Value& value, absl::string_view allowed) {
    if (holds || !status_.ok()) return;
    status_ = absl::InvalidArgumentError(
        absl::StrCat("table \"", spec_.name, "\": ", field, " is ", value, ", allowed: ", allowed));
  }
  template <typename Enum>
  void Known(absl::string_view field, Enum value, const std::vector<std::string>& words) {
    const size_t index = static_cast<size_t>(value);
    Require(index < words.size(), field, index,
            absl::StrCat("0..", words.size() - 1, " (", absl::StrJoin(words, ", "), ")"));
  }
  void NotNegative(absl::string_view field, float value) {
    Require(std::isfinite(value) && value >= 0, field, value, kNotNegative);
  }
  void Positive(absl::string_view field, float value) {
    Require(std::isfinite(value) && value > 0, field, value, "finite and > 0");
  }
  void BelowOne(absl::string_view field, float value) {
    Require(value >= 0 && value < 1, field, value, "[0, 1)");
  }
  // Adds the `status` of a part of the spec; its message names the field without `prefix`.
  void Part(absl::string_view prefix, const absl::Status& status) {
    if (status.ok() || !status_.ok()) return;
    status_ = absl::InvalidArgumentError(
        absl::StrCat("table \"", spec_.name, "\": ", prefix, status.message()));
  }

  const absl::Status& status() const { return status_; }

 private:
  const TableSpec& spec_;
  absl::Status status_;
};

void CheckName(const std::string& name, Rules* rules) {
  bool valid = !name.empty() && name.size() <= kNameBytesMax &&
               (absl::ascii_isalnum(name[0]) || name[0] == '_');
  for (const unsigned char c : name) {
    valid = valid && (absl::ascii_isalnum(c) || c == '_' || c == '-' || c == '.' || c == '/');
  }
  rules->Require(valid, "name", absl::StrCat("of ", name.size(), " bytes"),
                 absl::StrCat("1..", kNameBytesMax,
                              " letters, digits, '_', '-', '.', '/'; the first a letter, digit or "
                              "'_'"));
}

void CheckRestoredFrom(const RestoredFrom& from, Rules* rules) {
  if (from == RestoredFrom()) return;
  const std::string& path = from.checkpoint;
  const bool somewhere = absl::StartsWith(path, "/") || absl::StartsWith(path, "s3://") ||
                         absl::StartsWith(path, "server:");
  rules->Require(
      somewhere && path.size() <= kPathBytesMax, "restored_from.checkpoint",
      absl::StrCat("\"", path, "\""),
      absl::StrCat("an absolute path, s3://BUCKET/PREFIX or server:NAME/CHECKPOINT of at most ",
                   kPathBytesMax, " bytes"));
  rules->Require(!from.table.empty() && from.table.size() <= kNameBytesMax, "restored_from.table",
                 absl::StrCat("of ", from.table.size(), " bytes"),
                 absl::StrCat("1..", kNameBytesMax));
}

void CheckWords(const TableSpec& spec, Rules* rules) {
  rules->Known("weight_type", spec.weight_type, kWeightTypeWords);
  rules->Known("optimizer.kind", spec.optimizer.kind, kOptimizerWords);
  rules->Known("optimizer.decay_mode", spec.optimizer.decay_mode, kDecayModeWords);
  rules->Known("optimizer.counter_mode", spec.optimizer.counter.mode, kCounterModeWords);
  rules->Known("optimizer.state_type", spec.optimizer.state_type, kStateTypeWords);
  rules->Known("initializer.kind", spec.initializer.kind, InitializerWords());
  rules->Known("durability", spec.durability, kDurabilityWords);
  const bool replicated = spec.durability == Durability::kReplicated;
  rules->Require(
      replicated ? spec.replicas >= 2 && spec.replicas <= kReplicasMax : spec.replicas == 1,
      "replicas", spec.replicas,
      replicated ? absl::StrCat("2..", kReplicasMax, " (durability replicated)")
                 : "1 (durability replicated has more)");
  rules->Known("nan_policy", spec.nan_policy, kNanPolicyWords);
  rules->Known("row_statistics", spec.row_statistics, kRowStatisticsWords);
  rules->Known("bounds_mode", spec.bounds_mode, kBoundsModeWords);
  rules->Known("gradient_reduction", spec.gradient_reduction, kGradientReductionWords);
  rules->Known("consistency", spec.consistency, kConsistencyWords);
  rules->Known("life.evict_by", spec.life.evict_by, kEvictByWords);
  rules->Known("life.admit_by", spec.life.admission.by, kAdmitByWords);
}

// FTRL divides by the learning rate. Elsewhere a rate of 0 only stops the training.
void CheckLearningRate(absl::string_view field, OptimizerKind kind, float rate, Rules* rules) {
  if (kind == OptimizerKind::kFtrl) return rules->Positive(field, rate);
  rules->NotNegative(field, rate);
}

void CheckNumbers(const OptimizerParams& o, Rules* rules) {
  CheckLearningRate("optimizer.learning_rate", o.kind, o.learning_rate, rules);
  rules->Positive("optimizer.epsilon", o.epsilon);
  rules->BelowOne("optimizer.beta1", o.beta1);
  rules->BelowOne("optimizer.beta2", o.beta2);
  rules->NotNegative("optimizer.weight_decay", o.weight_decay);
  rules->NotNegative("optimizer.initial_accumulator", o.initial_accumulator);
  rules->BelowOne("optimizer.momentum", o.momentum);
  if (o.kind == OptimizerKind::kLars) {
    rules->Positive("optimizer.trust_coefficient", o.trust_coefficient);
  }
  rules->NotNegative("optimizer.trust_coefficient", o.trust_coefficient);
  rules->NotNegative("optimizer.l1", o.l1);
  rules->NotNegative("optimizer.l2", o.l2);
  rules->NotNegative("optimizer.ftrl_beta", o.ftrl_beta);
  rules->NotNegative("optimizer.clip_value", o.clip_value);
  rules->NotNegative("optimizer.clip_row_norm", o.clip_row_norm);
  rules->NotNegative("optimizer.max_norm", o.max_norm);
  constexpr float kNormTypeMax = 100;
  const float p = o.max_norm_type;
  rules->Require(p == 0 || (p >= 1 && p <= kNormTypeMax), "optimizer.max_norm_type", p,
                 absl::StrCat("1..", kNormTypeMax, ", or 0 for the largest element"));
  rules->Require(p == 2 || p == 0 || o.max_norm > 0, "optimizer.max_norm_type", p,
                 "2 or 0 without max_norm, whose norm it is");
}

// The words of the kinds for which `holds`, as a list.
template <typename Holds>
std::string KindsFor(Holds holds) {
  std::vector<std::string> words;
  for (size_t kind = 0; kind < kOptimizerWords.size(); ++kind) {
    if (holds(static_cast<OptimizerKind>(kind))) words.push_back(kOptimizerWords[kind]);
  }
  return absl::StrJoin(words, ", ");
}
bool ChoosesDecay(OptimizerKind kind) { return TraitsOf(kind).decay == DecayWay::kChoice; }
bool AlwaysDecoupled(OptimizerKind kind) { return TraitsOf(kind).decay == DecayWay::kDecoupled; }

void CheckDecay(const OptimizerParams& o, Rules* rules) {
  const bool decoupled = o.decay_mode == DecayMode::kDecoupled;
  rules->Require(!decoupled || ChoosesDecay(o.kind) || AlwaysDecoupled(o.kind),
                 "optimizer.decay_mode", "decoupled",
                 absl::StrCat("l2 for this optimizer; decoupled is for ", KindsFor(ChoosesDecay),
                              ", and what ", KindsFor(AlwaysDecoupled), " are"));
  const auto can_be_lazy = [](OptimizerKind kind) {
    return ChoosesDecay(kind) && kind != OptimizerKind::kSgd && !CountsUpdates(kind);
  };
  const bool lazy = AlwaysDecoupled(o.kind) || o.kind == OptimizerKind::kSgd ||
                    (decoupled && can_be_lazy(o.kind));
  rules->Require(
      !o.lazy_decay || lazy, "optimizer.lazy_decay", "true",
      absl::StrCat("false, or a decoupled decay to catch up with: sgd, ", KindsFor(AlwaysDecoupled),
                   ", or decay_mode decoupled with ", KindsFor(can_be_lazy)));
  rules->BelowOne("optimizer.lazy_decay_least", o.lazy_decay_least);
  rules->Require(o.lazy_decay || o.lazy_decay_least == 0, "optimizer.lazy_decay_least",
                 o.lazy_decay_least, "0 without lazy_decay, whose bound it is");
}

void CheckCounter(const OptimizerParams& o, Rules* rules) {
  const CounterParams& c = o.counter;
  rules->NotNegative("optimizer.counter_half_life", c.half_life);
  rules->NotNegative("optimizer.counter_threshold", c.threshold);
  // A message of another optimizer may leave them out.
  const bool counts = CountsUpdates(o.kind);
  if (counts || c.most != 0) rules->Positive("optimizer.counter_max", c.most);
  if (counts || c.power != 0) rules->Positive("optimizer.counter_power", c.power);
  rules->NotNegative("optimizer.clip_coefficient", c.clip_coefficient);
  rules->NotNegative("optimizer.clip_least", c.clip_least);
  const std::string& word = kCounterModeWords[static_cast<size_t>(c.mode)];
  rules->Require(c.mode == CounterMode::kDecay || counts, "optimizer.counter_mode", word,
                 absl::StrCat("decay, or ", KindsFor(CountsUpdates), " as the optimizer"));
  if (c.mode != CounterMode::kAdagradW) return;
  rules->Require(o.decay_mode == DecayMode::kDecoupled, "optimizer.decay_mode", "l2",
                 "decoupled with counter_mode adagradw");
  rules->Require(c.half_life == 0, "optimizer.counter_half_life", c.half_life,
                 "0 with counter_mode adagradw, which counts every update fully");
}

void CheckAverage(const TableSpec& spec, Rules* rules) {
  const AverageParams& a = spec.optimizer.average;
  rules->Require(a.rate >= 0 && a.rate <= 1, "optimizer.average_rate", a.rate, "0..1");
  if (a.rate == 0) return;
  rules->Require(a.every >= 1, "optimizer.average_every", a.every, ">= 1 step");
  rules->Require(spec.optimizer.kind != OptimizerKind::kNone, "optimizer.average_rate", a.rate,
                 "0 for none, whose rows never change");
  rules->Require(spec.dim % 2 == 0, "dim", spec.dim,
                 "even with average_rate, which makes the second half of a row an average");
  rules->Require(spec.column_slices == 1, "column_slices", spec.column_slices,
                 "1 with average_rate, because an average lies in the row of its weights");
}

// An option that the table's optimizer would silently ignore is refused.
void CheckCombinations(const TableSpec& spec, Rules* rules) {
  const OptimizerParams& o = spec.optimizer;
  CheckDecay(o, rules);
  CheckCounter(o, rules);
  CheckAverage(spec, rules);
  const bool decays = TraitsOf(o.kind).decay != DecayWay::kNone;
  rules->Require(decays || o.weight_decay == 0, "optimizer.weight_decay", o.weight_decay,
                 "0 for ftrl, whose l2 shrinks weights, and for none, whose rows never change");
  rules->Require(!o.row_bias_correction || IsAdamKind(o.kind), "optimizer.row_bias_correction",
                 "true",
                 absl::StrCat("false, or an optimizer that corrects a bias: ",
                              KindsFor([](OptimizerKind kind) { return IsAdamKind(kind); })));
  rules->Require(!o.stochastic_rounding || spec.weight_type != WeightType::kFp32,
                 "optimizer.stochastic_rounding", "true",
                 "false with weight_type fp32, which rounds nothing");
}

void CheckInitializer(const InitializerParams& i, Rules* rules) {
  rules->Require(std::isfinite(i.a), "initializer.a", i.a, "finite");
  rules->Require(std::isfinite(i.b), "initializer.b", i.b, "finite");
  const bool normal =
      i.kind == InitializerKind::kNormal || i.kind == InitializerKind::kTruncatedNormal;
  rules->Require(!normal || i.b >= 0, "initializer.b (standard deviation)", i.b, ">= 0");
  rules->Require(i.kind != InitializerKind::kUniform || i.a <= i.b, "initializer.a (low end)", i.a,
                 absl::StrCat("at most initializer.b = ", i.b));
}

// An optimizer that needs statistics of the whole row allows cutting by columns only if the table
// declares each slice to be a row of its own.
void CheckColumnSlices(const TableSpec& spec, Rules* rules) {
  const uint32_t most = std::min(spec.dim, kColumnSlicesMax);
  rules->Require(spec.column_slices >= 1 && spec.column_slices <= most, "column_slices",
                 spec.column_slices,
                 absl::StrCat("1..", most, " (at most dim and ", kColumnSlicesMax, ")"));
  if (spec.column_slices == 1 || spec.row_statistics == RowStatistics::kSlice) return;
  OptimizerParams params = spec.optimizer;
  for (const TableChange& change : spec.changes) {
    if (change.has_clip_row_norm && change.clip_row_norm > 0) {
      params.clip_row_norm = change.clip_row_norm;
    }
  }
  const std::string why = params.clip_row_norm > 0 ? "optimizer.clip_row_norm"
                          : params.max_norm > 0    ? "optimizer.max_norm"
                                                : kOptimizerWords[static_cast<size_t>(params.kind)];
  rules->Require(!NeedsRowStatistics(params), "column_slices", spec.column_slices,
                 absl::StrCat("1, because ", why,
                              " needs statistics of whole rows; or set row_statistics=slice, which "
                              "makes each slice a row of its own to it"));
}

void CheckIds(const TableSpec& spec, Rules* rules) {
  if (!spec.hashed) {
    const bool from_end = spec.padding_id >> 63 != 0 && ~spec.padding_id < spec.rows;
    const auto shown = static_cast<int64_t>(spec.padding_id);
    rules->Require(!spec.has_padding_id || spec.padding_id < spec.rows || from_end, "padding_id",
                   shown,
                   absl::StrCat("an id of the table, 0..", spec.rows - 1, ", or from its end, -",
                                spec.rows, "..-1"));
  } else if (spec.bounds_mode != BoundsMode::kError &&
             static_cast<size_t>(spec.bounds_mode) < kBoundsModeWords.size()) {
    rules->Require(false, "bounds_mode", kBoundsModeWords[static_cast<size_t>(spec.bounds_mode)],
                   "error: no id is outside of a hashed table");
  }
}

// Numbers are given by one shard, in the order of its log, and are exact.
void CheckVocabulary(const TableSpec& spec, Rules* rules) {
  if (spec.vocabulary == 0) return;
  const auto require = [rules](bool holds, absl::string_view field, const auto& value,
                               absl::string_view allowed) {
    rules->Require(holds, field, value, absl::StrCat(allowed, " with vocabulary"));
  };
  rules->Require(spec.vocabulary <= kVocabularyMax, "vocabulary", spec.vocabulary,
                 absl::StrCat("1..", kVocabularyMax));
  require(spec.hashed, "hashed", "false", "true");
  require(spec.rows == spec.vocabulary, "rows", spec.rows,
          absl::StrCat(spec.vocabulary, ", or left out,"));
  require(spec.dim == kVocabularyDim, "dim", spec.dim,
          absl::StrCat(kVocabularyDim, ", number and count,"));
  require(spec.weight_type == WeightType::kFp32, "weight_type",
          kWeightTypeWords[static_cast<size_t>(spec.weight_type)], "fp32");
  require(spec.optimizer.kind == OptimizerKind::kNone, "optimizer.kind",
          kOptimizerWords[static_cast<size_t>(spec.optimizer.kind)], "none");
  require(spec.initializer.kind == InitializerKind::kZero, "initializer", "another one", "zero");
  require(spec.column_slices == 1, "column_slices", spec.column_slices, "1");
  require(spec.consistency == Consistency::kAsync, "consistency",
          kConsistencyWords[static_cast<size_t>(spec.consistency)], "async");
  require(!spec.optimizer.touches, "optimizer.touches", "true", "false: numbers stay given");
  require(spec.has_padding_id && spec.padding_id == kNoKey, "padding_id", spec.padding_id,
          "-1, which is no key");
}

void CheckShows(const TableSpec& spec, Rules* rules) {
  const ShowParams& shows = spec.optimizer.shows;
  rules->Require(!shows.kept || spec.optimizer.touches, "optimizer.shows", "true",
                 "false without touches, whose time they fade by");
  rules->Require(shows.decay > 0 && shows.decay <= 1, "optimizer.show_decay", shows.decay,
                 "(0, 1]");
  rules->Require(shows.kept || shows.decay == 1, "optimizer.show_decay", shows.decay,
                 "1 without shows");
  rules->Require(shows.period_s >= 1, "optimizer.show_period_s", shows.period_s, ">= 1");
}

void CheckScore(const LifeParams& life, bool shows, Rules* rules) {
  const ScoreParams& score = life.score;
  rules->NotNegative("life.score_show", score.show);
  rules->NotNegative("life.score_click", score.click);
  rules->NotNegative("life.score_least", score.least);
  rules->Require(score.least == 0 || shows, "life.score_least", score.least,
                 "0 without shows: rows have no score");
  rules->Require(life.evict_by != EvictBy::kScore || shows, "life.evict_by", "score",
                 "lru, lfu or norm without shows: rows have no score");
}

// Admission by a counting Bloom filter, which has to be large enough and not too large.
void CheckFilter(const TableSpec& spec, Rules* rules) {
  const AdmissionParams& admission = spec.life.admission;
  const bool bloom = admission.by == AdmitBy::kBloom;
  rules->Require(!bloom || admission.after > 1, "life.admit_by", "bloom",
                 "exact with admit_after 0 and 1, because nothing is counted");
  rules->Require(!bloom || admission.after <= kFilterAfterMax, "life.admit_after", admission.after,
                 absl::StrCat("2..", kFilterAfterMax, " with admit_by bloom"));
  rules->Require(bloom || admission.ids == 0, "life.admit_ids", admission.ids,
                 "0 with admit_by exact, which has no filter");
  rules->Require(bloom || admission.false_positives == AdmissionParams().false_positives,
                 "life.admit_false_positives", admission.false_positives,
                 "left out with admit_by exact, which makes no mistakes");
  rules->Require(admission.false_positives >= kFalsePositivesMin &&
                     admission.false_positives <= kFalsePositivesMax,
                 "life.admit_false_positives", admission.false_positives,
                 absl::StrCat("[", kFalsePositivesMin, ", ", kFalsePositivesMax, "]"));
  if (!bloom || !rules->status().ok()) return;
  rules->Require(
      TouchFilterShapeOf(spec).blocks_per_bucket > 0, "life.admit_ids", admission.ids,
      absl::StrCat("so many that a filter of at most ",
                   TouchFilterShape{kFilterBlocksPerBucketMax, 1, 4}.Bytes(kBuckets) >> 30,
                   " GiB keeps admit_false_positives at ", admission.false_positives));
}

// Policies are refused where nothing would carry them out.
void CheckLife(const LifeParams& life, const TableSpec& spec, Rules* rules) {
  const bool touches = spec.optimizer.touches;
  rules->Require(!touches || spec.hashed, "optimizer.touches", "true",
                 "false for a bounded table, whose rows are all there from the start");
  rules->Require(!touches || spec.column_slices == 1, "column_slices", spec.column_slices,
                 "1 with touches, because the slices of a row would come and go by themselves");
  CheckScore(life, spec.optimizer.shows.kept, rules);
  const auto needs_touches = [&](bool asked, absl::string_view field, const auto& value,
                                 absl::string_view off) {
    rules->Require(!asked || touches, field, value,
                   absl::StrCat(off,
                                " without touches: rows keep nothing to decide it by; set "
                                "touches on a hashed table"));
  };
  needs_touches(life.ttl_s != 0, "life.ttl_s", life.ttl_s, "0");
  needs_touches(life.ttl_steps != 0, "life.ttl_steps", life.ttl_steps, "0");
  needs_touches(life.rows_max != 0, "life.rows_max", life.rows_max, "0");
  needs_touches(life.bytes_max != 0, "life.bytes_max", life.bytes_max, "0");
  const AdmissionParams& admission = life.admission;
  needs_touches(admission.after > 1, "life.admit_after", admission.after, "0 or 1");
  needs_touches(admission.probability != 1, "life.admit_probability", admission.probability, "1");
  needs_touches(admission.zeros, "life.admit_zeros", "true", "false");
  rules->Require(admission.probability > 0 && admission.probability <= 1, "life.admit_probability",
                 admission.probability, "(0, 1]");
  rules->Require(admission.after <= 1 || admission.probability == 1, "life.admit_probability",
                 admission.probability, "1 with admit_after: a table admits in one way");
  CheckFilter(spec, rules);
  rules->Require(life.evict_by == EvictBy::kLru || life.Limits(), "life.evict_by",
                 kEvictByWords[static_cast<size_t>(life.evict_by)],
                 "lru without rows_max and bytes_max, because nothing is evicted; set it, too");
}

void CheckTraining(const TableSpec& spec, Rules* rules) {
  rules->Require(spec.staleness == 0 || spec.consistency == Consistency::kBounded, "staleness",
                 spec.staleness, "0 unless consistency is bounded");
  rules->NotNegative("clip_slice_norm", spec.clip_slice_norm);
  rules->Part("", ValidateSchedule(spec.schedule));
}

void CheckMemoryShare(const std::string& prefix, MemoryShare share, Rules* rules) {
  rules->Require(share.min >= 0 && share.min <= 1, absl::StrCat(prefix, "memory_share_min"),
                 share.min, "[0, 1]");
  rules->Require(share.max > 0 && share.max <= 1, absl::StrCat(prefix, "memory_share_max"),
                 share.max, "(0, 1]");
}

void CheckChange(const TableSpec& spec, size_t index, Rules* rules) {
  const TableChange& change = spec.changes[index];
  const std::string prefix = absl::StrCat("changes[", index, "].");
  const uint64_t after = index == 0 ? 0 : spec.changes[index - 1].at_step;
  rules->Require(change.at_step > after && change.at_step <= kTrainingStepMax,
                 absl::StrCat(prefix, "at_step"), change.at_step,
                 absl::StrCat(after + 1, "..", kTrainingStepMax,
                              index == 0 ? "" : ", above the change before"));
  rules->Require(change.has_learning_rate || change.has_clip_value || change.has_clip_row_norm ||
                     change.has_schedule || change.has_memory_share_min ||
                     change.has_memory_share_max || change.has_life,
                 prefix.substr(0, prefix.size() - 1), "empty",
                 "a learning_rate, clip_value, clip_row_norm, schedule, memory_share or policy");
  if (change.has_life) {
    rules->Known("life.evict_by", change.life.evict_by, kEvictByWords);
    const bool known = static_cast<size_t>(change.life.evict_by) < kEvictByWords.size();
    if (known) CheckLife(change.life, spec, rules);
  }
  if (change.has_learning_rate) {
    CheckLearningRate(absl::StrCat(prefix, "learning_rate"), spec.optimizer.kind,
                      change.learning_rate, rules);
  }
  if (change.has_clip_value) {
    rules->NotNegative(absl::StrCat(prefix, "clip_value"), change.clip_value);
  }
  if (change.has_clip_row_norm) {
    rules->NotNegative(absl::StrCat(prefix, "clip_row_norm"), change.clip_row_norm);
  }
  if (change.has_schedule) rules->Part(prefix, ValidateSchedule(change.schedule));
  CheckMemoryShare(prefix, {change.memory_share_min, change.memory_share_max}, rules);
}

}  // namespace

absl::Status ValidateTableSpec(const TableSpec& spec) {
  Rules rules(spec);
  CheckName(spec.name, &rules);
  rules.Require(spec.dim >= 1 && spec.dim <= kDimMax, "dim", spec.dim,
                absl::StrCat("1..", kDimMax));
  rules.Require(spec.rows <= kRowsMax && (spec.hashed || spec.rows > 0), "rows", spec.rows,
                absl::StrCat(spec.hashed ? "0.." : "1..", kRowsMax));
  CheckWords(spec, &rules);
  // The rules below index word lists and compute with values, which this check makes safe.
  HOTBED_RETURN_IF_ERROR(rules.status());
  CheckNumbers(spec.optimizer, &rules);
  CheckCombinations(spec, &rules);
  CheckInitializer(spec.initializer, &rules);
  CheckIds(spec, &rules);
  CheckVocabulary(spec, &rules);
  CheckShows(spec, &rules);
  CheckLife(spec.life, spec, &rules);
  CheckTraining(spec, &rules);
  CheckMemoryShare("", {spec.memory_share_min, spec.memory_share_max}, &rules);
  CheckRestoredFrom(spec.restored_from, &rules);
  rules.Require(spec.changes.size() <= kTableChangesMax, "changes", spec.changes.size(),
                absl::StrCat("at most ", kTableChangesMax));
  HOTBED_RETURN_IF_ERROR(rules.status());
  for (size_t i = 0; i < spec.changes.size(); ++i) CheckChange(spec, i, &rules);
  const MemoryShare share = MemoryShareOf(spec);
  rules.Require(share.min <= share.max, "memory_share_min", share.min,
                absl::StrCat("at most memory_share_max = ", share.max));
  CheckColumnSlices(spec, &rules);
  rules.Part("", ValidateComposition(spec));
  return rules.status();
}

}  // namespace hotbed
