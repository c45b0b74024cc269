#include "cli/tables/table_option.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <type_traits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "cli/base/row_id.h"
#include "cli/tables/table_text.h"
#include "common/status_macros.h"
#include "common/tables/vocabulary_row.h"
#include "config/config.h"

namespace hotbed {
namespace {

absl::Status NotA(absl::string_view text, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("'", text, "' is not ", what));
}

// --- a member of the spec or of one of its parts

template <typename T>
T& At(TableSpec& spec, T TableSpec::*member) {
  return spec.*member;
}
template <typename T>
T& At(TableSpec& spec, T OptimizerParams::*member) {
  return spec.optimizer.*member;
}
template <typename T>
T& At(TableSpec& spec, T CounterParams::*member) {
  return spec.optimizer.counter.*member;
}
template <typename T>
T& At(TableSpec& spec, T AverageParams::*member) {
  return spec.optimizer.average.*member;
}
template <typename T>
T& At(TableSpec& spec, T Composition::*member) {
  return spec.composition.*member;
}
template <typename T>
T& At(TableSpec& spec, T LifeParams::*member) {
  return spec.life.*member;
}
template <typename T>
T& At(TableSpec& spec, T AdmissionParams::*member) {
  return spec.life.admission.*member;
}
template <typename T>
T& At(TableSpec& spec, T ScoreParams::*member) {
  return spec.life.score.*member;
}
template <typename T>
T& At(TableSpec& spec, T ShowParams::*member) {
  return spec.optimizer.shows.*member;
}
template <typename T>
T& At(TableSpec& spec, T Schedule::*member) {
  return spec.schedule.*member;
}
template <typename Member>
const auto& At(const TableSpec& spec, Member member) {
  return At(const_cast<TableSpec&>(spec), member);  // NOLINT: read only
}

// --- parsing and printing by type

absl::Status Parse(const TableOption&, absl::string_view text, bool* value) {
  if (absl::SimpleAtob(text, value)) return absl::OkStatus();
  return NotA(text, "true or false");
}
absl::Status Parse(const TableOption&, absl::string_view text, float* value) {
  if (absl::SimpleAtof(text, value)) return absl::OkStatus();
  return NotA(text, "a number");
}
// `least` and `most` are for the message; ValidateTableSpec checks the range.
template <typename Integer>
absl::Status ParseInteger(absl::string_view text, Integer* value, uint64_t least = 0,
                          uint64_t most = std::numeric_limits<Integer>::max()) {
  if (absl::SimpleAtoi(text, value)) return absl::OkStatus();
  return NotA(text, absl::StrCat("a whole number from ", least, " to ", most));
}
absl::Status ParseWord(const TableOption& option, absl::string_view text, size_t* index) {
  const std::vector<std::string>& words = *option.words;
  const std::string word = Dashed(text);
  const auto found = std::find(words.begin(), words.end(), word);
  *index = found - words.begin();
  if (found != words.end()) return absl::OkStatus();
  const std::string nearest = NearestWord(word, words);
  return absl::InvalidArgumentError(
      absl::StrCat("'", text.substr(0, 80), "' is not one of ", absl::StrJoin(words, ", "),
                   nearest.empty() ? "" : absl::StrCat("; did you mean '", nearest, "'?")));
}
template <typename Enum>
absl::Status Parse(const TableOption& option, absl::string_view text, Enum* value) {
  size_t index = 0;
  HOTBED_RETURN_IF_ERROR(ParseWord(option, text, &index));
  *value = static_cast<Enum>(index);
  return absl::OkStatus();
}

std::string Print(bool value) { return value ? "true" : "false"; }
std::string Print(float value) { return FloatText(value); }
std::string Print(uint32_t value) { return absl::StrCat(value); }
std::string Print(uint64_t value) { return absl::StrCat(value); }

std::string WordOf(const std::vector<std::string>& words, size_t index) {
  return index < words.size() ? words[index] : absl::StrCat(index);
}

constexpr uint64_t kAny = std::numeric_limits<uint64_t>::max();

template <auto kMember>
using ValueAt = std::decay_t<decltype(At(std::declval<TableSpec&>(), kMember))>;
template <typename T>
constexpr bool kIsWhole = std::is_integral_v<T> && !std::is_same_v<T, bool>;

// kLeast and kMost are for the error of a text that is no whole number; ValidateTableSpec checks
// the range.
template <auto kMember, uint64_t kLeast = 0, uint64_t kMost = kAny>
absl::Status ParseAt(const TableOption& option, absl::string_view text, TableSpec* spec) {
  auto value = At(*spec, kMember);
  if constexpr (kIsWhole<ValueAt<kMember>>) {
    HOTBED_RETURN_IF_ERROR(ParseInteger(text, &value, kLeast, kMost));
  } else {
    HOTBED_RETURN_IF_ERROR(Parse(option, text, &value));
  }
  At(*spec, kMember) = value;
  return absl::OkStatus();
}
template <auto kMember>
std::string PrintAt(const TableSpec& spec) {
  return Print(At(spec, kMember));
}
template <auto kMember, const std::vector<std::string>* kWords>
std::string PrintWordAt(const TableSpec& spec) {
  return WordOf(*kWords, static_cast<size_t>(At(spec, kMember)));
}

// --- options that are more than one member

absl::Status ParseInit(const TableOption&, absl::string_view text, TableSpec* spec) {
  HOTBED_ASSIGN_OR_RETURN(spec->initializer, ParseInitializer(Dashed(text)));
  return absl::OkStatus();
}
std::string PrintInit(const TableSpec& spec) { return InitializerText(spec.initializer); }

absl::Status ParsePadding(const TableOption&, absl::string_view text, TableSpec* spec) {
  HOTBED_ASSIGN_OR_RETURN(spec->padding_id, ParseId(std::string(text)));
  spec->has_padding_id = true;
  return absl::OkStatus();
}
std::string PrintPadding(const TableSpec& spec) {
  return spec.has_padding_id ? absl::StrCat(spec.padding_id) : "";
}

absl::Status ParseVocabulary(const TableOption&, absl::string_view text, TableSpec* spec) {
  uint64_t numbers = 0;
  HOTBED_RETURN_IF_ERROR(ParseInteger(text, &numbers, 0, kVocabularyMax));
  if (numbers != 0) MakeVocabulary(numbers, spec);
  return absl::OkStatus();
}

absl::Status ParseBlockDims(const TableOption&, absl::string_view text, TableSpec* spec) {
  std::vector<uint32_t> dims;
  for (const absl::string_view one : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    HOTBED_RETURN_IF_ERROR(ParseInteger(one, &dims.emplace_back(), 1, kDimMax));
  }
  spec->composition.block_dims = std::move(dims);
  return absl::OkStatus();
}
std::string PrintBlockDims(const TableSpec& spec) {
  return absl::StrJoin(spec.composition.block_dims, ",");
}

absl::Status ParseConsistency(const TableOption& option, absl::string_view text, TableSpec* spec) {
  absl::string_view steps = text;
  if (!absl::ConsumePrefix(&steps, "bounded:")) {
    if (text == "bounded") return NotA(text, "enough: write bounded:S, S the steps ahead");
    spec->staleness = 0;
    return Parse(option, text, &spec->consistency);
  }
  HOTBED_RETURN_IF_ERROR(ParseInteger(steps, &spec->staleness));
  spec->consistency = spec->staleness == 0 ? Consistency::kSync : Consistency::kBounded;
  return absl::OkStatus();
}
std::string PrintConsistency(const TableSpec& spec) {
  const std::string word = WordOf(kConsistencyWords, static_cast<size_t>(spec.consistency));
  return spec.consistency == Consistency::kBounded ? absl::StrCat(word, ":", spec.staleness) : word;
}

// "replicated=3" sets durability and replicas; each may also be set by itself. Two counts that
// differ are refused.
absl::Status ParseDurability(const TableOption& option, absl::string_view text, TableSpec* spec) {
  absl::string_view replicas = text;
  if (!absl::ConsumePrefix(&replicas, "replicated=")) return Parse(option, text, &spec->durability);
  uint32_t count = 0;
  if (!absl::SimpleAtoi(replicas, &count) || count < 2 || count > kReplicasMax) {
    return NotA(text, absl::StrCat("replicated=N with N from 2 to ", kReplicasMax));
  }
  if (spec->replicas != 1 && spec->replicas != count) {
    return NotA(text,
                absl::StrCat("what goes with replicas ", spec->replicas, ": say one of the two"));
  }
  spec->durability = Durability::kReplicated;
  spec->replicas = count;
  return absl::OkStatus();
}
std::string PrintDurability(const TableSpec& spec) {
  const std::string word = WordOf(kDurabilityWords, static_cast<size_t>(spec.durability));
  const bool counted = spec.durability == Durability::kReplicated && spec.replicas > 1;
  return counted ? absl::StrCat(word, "=", spec.replicas) : word;
}

absl::Status ParseReplicas(const TableOption&, absl::string_view text, TableSpec* spec) {
  uint32_t count = 0;
  HOTBED_RETURN_IF_ERROR(ParseInteger(text, &count, 1, kReplicasMax));
  if (spec->replicas != 1 && spec->replicas != count) {
    return NotA(text, absl::StrCat("what goes with durability ", PrintDurability(*spec),
                                   ": say one of the two"));
  }
  spec->replicas = count;
  return absl::OkStatus();
}

// --- the list

constexpr char kRows[] = "Rows and ids";
constexpr char kComposed[] = "Composed tables";
constexpr char kOptimizer[] = "Optimizer";
constexpr char kLimits[] = "Clipping and limits";
constexpr char kSchedule[] = "Learning rate over the steps";
constexpr char kTraining[] = "Batches and consistency";
constexpr char kStorage[] = "Precision and storage";

constexpr char kLife[] = "Rows that come and go (hashed tables)";
constexpr char kLayout[] = "rows are stored in this layout";
constexpr char kStateMeaning[] = "it decides the meaning of the stored optimizer state";
constexpr char kIdMeaning[] = "rows that were trained would mean other ids";
constexpr char kPlaced[] = "shards are cut by it when the table is created";
constexpr char kFirstValues[] = "rows that nobody pushed to are computed from it";
constexpr char kUnderway[] = "steps in progress depend on it";
constexpr char kLived[] =
    "every replica admits rows by it when it applies a push, whenever it learns of a change";
constexpr char kFaded[] = "shows and clicks that rows keep have faded by it";
constexpr char kRule[] = "rows would be trained partly by one rule and partly by another";

// A flag, a whole number or a number, by the type of the member.
template <auto kMember, uint64_t kLeast = 0, uint64_t kMost = kAny>
constexpr TableOption Option(const char* name, const char* alias, const char* field,
                             const char* group, const char* about, const char* fixed) {
  using Value = ValueAt<kMember>;
  return {name,
          alias,
          field,
          group,
          kIsWhole<Value>               ? OptionShape::kInteger
          : std::is_same_v<Value, bool> ? OptionShape::kFlag
                                        : OptionShape::kNumber,
          nullptr,
          about,
          fixed,
          ParseAt<kMember, kLeast, kMost>,
          PrintAt<kMember>};
}
template <auto kMember, const std::vector<std::string>* kWords>
constexpr TableOption Word(const char* name, const char* alias, const char* field,
                           const char* group, const char* about, const char* fixed) {
  return {name,
          alias,
          field,
          group,
          OptionShape::kText,
          kWords,
          about,
          fixed,
          ParseAt<kMember>,
          PrintWordAt<kMember, kWords>};
}

using O = OptimizerParams;
using M = Composition;
using C = CounterParams;
using A = AverageParams;
using L = LifeParams;
using N = AdmissionParams;
using S = ShowParams;
using V = ScoreParams;

constexpr TableOption kOptions[] = {
    Option<&TableSpec::dim, 1, kDimMax>("dim", "", "dim", kRows, "Elements per row", kLayout),
    Option<&TableSpec::rows>(
        "rows", "", "rows", kRows,
        "Bounded: ids are 0..rows-1. With --hashed: the number expected, for placement", kPlaced),
    Option<&TableSpec::hashed>("hashed", "", "hashed", kRows,
                               "Any 64-bit id; a row exists once it was pushed", kPlaced),
    {"init", "initializer", "initializer", kRows, OptionShape::kText, nullptr,
     "First values: scaled (uniform in +-1/sqrt(dim)), zero, constant:V, uniform:LOW,HIGH, "
     "normal:MEAN,DEV, truncated-normal:MEAN,DEV",
     kFirstValues, ParseInit, PrintInit},
    Option<&TableSpec::seed>("seed", "", "seed", kRows,
                             "Seed of the first values; 0: from the name", kFirstValues),
    {"padding-id", "", "padding_id", kRows, OptionShape::kInteger, nullptr,
     "Reads as zeros, takes no gradient, counts in no mean", kIdMeaning, ParsePadding,
     PrintPadding},
    {"vocabulary", "", "vocabulary", kRows, OptionShape::kInteger, nullptr,
     "Make a vocabulary: keys get the numbers 1 to this one when they are first looked up",
     kIdMeaning, ParseVocabulary, PrintAt<&TableSpec::vocabulary>},
    Word<&TableSpec::bounds_mode, &kBoundsModeWords>(
        "bounds", "", "bounds_mode", kRows,
        "An id outside 0..rows-1: an error of the call, a row of zeros, or id modulo rows",
        kIdMeaning),
    Word<&M::form, &kComposeFormWords>(
        "compose", "", "compose", kComposed,
        "Rows are made of parts that take fewer parameters; see docs/composed.md", kLayout),
    Word<&M::combine, &kCombineWords>("combine", "", "combine", kComposed,
                                      "quotient-remainder: how the two rows are joined",
                                      kIdMeaning),
    Option<&M::pool_first>("pool-first", "", "pool_first", kComposed,
                           "quotient-remainder: pool bags in each part, then join", kIdMeaning),
    Option<&M::buckets>("buckets", "", "buckets", kComposed,
                        "quotient-remainder: the remainder is id mod this; 0: the root of rows",
                        kIdMeaning),
    {"block-dims", "", "block_dims", kComposed, OptionShape::kText, nullptr,
     "block and frequency: elements per row of each block of ids, as 32 or 64,16,4", kLayout,
     ParseBlockDims, PrintBlockDims},
    Word<&O::kind, &kOptimizerWords>("optimizer", "", "optimizer.kind", kOptimizer,
                                     "The rule by which a push changes a row", kStateMeaning),
    Option<&O::learning_rate>("learning-rate", "lr", "optimizer.learning_rate", kOptimizer,
                              "For pushes that carry none", nullptr),
    Option<&O::epsilon>("epsilon", "eps", "optimizer.epsilon", kOptimizer,
                        "Added to the root of the second moment or sum of squares", kRule),
    Option<&O::beta1>("beta1", "", "optimizer.beta1", kOptimizer,
                      "Decay of the first moment: Adam and LAMB kinds, lion", kStateMeaning),
    Option<&O::beta2>(
        "beta2", "", "optimizer.beta2", kOptimizer,
        "Decay of the second moment: Adam and LAMB kinds, RMSProp kinds, lion, adadelta",
        kStateMeaning),
    Option<&O::momentum>("momentum", "", "optimizer.momentum", kOptimizer, "momentum-sgd and lars",
                         kStateMeaning),
    Option<&O::trust_coefficient>("trust-coefficient", "", "optimizer.trust_coefficient",
                                  kOptimizer, "lars: factor of the ratio of norms", kRule),
    Option<&O::initial_accumulator>("initial-accumulator", "", "optimizer.initial_accumulator",
                                    kOptimizer, "First sum of squares: Adagrad kinds, ftrl",
                                    kStateMeaning),
    Option<&O::l1>("l1", "", "optimizer.l1", kOptimizer, "ftrl: sparsity of the weights", kRule),
    Option<&O::l2>("l2", "", "optimizer.l2", kOptimizer, "ftrl: shrinking of the weights", kRule),
    Option<&O::ftrl_beta>("ftrl-beta", "", "optimizer.ftrl_beta", kOptimizer,
                          "ftrl: added to the root of the sum of squares", kRule),
    Option<&O::weight_decay>("weight-decay", "", "optimizer.weight_decay", kOptimizer,
                             "Pulls weights to zero, by --decay-mode", kRule),
    Word<&O::decay_mode, &kDecayModeWords>(
        "decay-mode", "", "optimizer.decay_mode", kOptimizer,
        "Decay added to the gradient, or taken off the weights separately", kRule),
    Option<&O::lazy_decay>("lazy-decay", "", "optimizer.lazy_decay", kOptimizer,
                           "Apply the decay of skipped steps when a row is next updated", kLayout),
    Option<&O::lazy_decay_least>("lazy-decay-least", "", "optimizer.lazy_decay_least", kOptimizer,
                                 "Skipped steps shrink a row to no less than this factor", kRule),
    Option<&O::row_bias_correction>(
        "row-bias-correction", "", "optimizer.row_bias_correction", kOptimizer,
        "Adam and LAMB kinds: count the row's own updates, not the step", kLayout),
    Word<&C::mode, &kCounterModeWords>(
        "counter-mode", "", "optimizer.counter_mode", kOptimizer,
        "rowwise-adagrad-counter: what a row's number of updates changes", kRule),
    Option<&C::half_life>("counter-half-life", "", "optimizer.counter_half_life", kOptimizer,
                          "Steps after which an update counts half; 0: it always counts fully",
                          kStateMeaning),
    Option<&C::from_step>("counter-from-step", "", "optimizer.counter_from_step", kOptimizer,
                          "Counts change steps above this one only; not cowclip", kRule),
    Option<&C::threshold>("counter-threshold", "", "optimizer.counter_threshold", kOptimizer,
                          "tail and SGD modes: only rows with a higher count", kRule),
    Option<&C::most>("counter-max", "", "optimizer.counter_max", kOptimizer,
                     "tail modes: the count of a frequent row", kRule),
    Option<&C::power>("counter-power", "", "optimizer.counter_power", kOptimizer,
                      "tail modes: exponent; counter-sgd: factor of the count", kRule),
    Option<&C::clip_coefficient>("clip-coefficient", "", "optimizer.clip_coefficient", kOptimizer,
                                 "cowclip: limit of a gradient per count and norm of its row",
                                 kRule),
    Option<&C::clip_least>("clip-least", "", "optimizer.clip_least", kOptimizer,
                           "cowclip: the least limit per count", kRule),
    Option<&A::rate>("average-rate", "", "optimizer.average_rate", kOptimizer,
                     "The second half of a row follows the first as a moving average; 0: off",
                     kLayout),
    Option<&A::every>("average-every", "", "optimizer.average_every", kOptimizer,
                      "Steps from one move of the averages to the next", kRule),
    Option<&A::from_step>("average-from-step", "", "optimizer.average_from_step", kOptimizer,
                          "The first step after which averages move", kRule),
    Option<&O::clip_value>("clip-value", "", "optimizer.clip_value", kLimits,
                           "Limit each element of a row's gradient to [-V, V]; 0: off", nullptr),
    Option<&O::clip_row_norm>("clip-row-norm", "", "optimizer.clip_row_norm", kLimits,
                              "Limit the norm of a row's gradient, after --clip-value; 0: off",
                              nullptr),
    Option<&TableSpec::clip_slice_norm>(
        "clip-slice-norm", "", "clip_slice_norm", kLimits,
        "Limit the norm of a column slice's gradient, over all rows of a push; 0: off", kRule),
    Option<&O::max_norm>("max-norm", "", "optimizer.max_norm", kLimits,
                         "Limit the norm of a row's weights after the step; 0: off", kRule),
    Option<&O::max_norm_type>("max-norm-type", "", "optimizer.max_norm_type", kLimits,
                              "p of that norm, 2: Euclidean; 0: the largest element", kRule),
    Word<&Schedule::kind, &kScheduleWords>("schedule", "", "schedule.kind", kSchedule,
                                           "Course of the learning rate after the warm-up",
                                           nullptr),
    Option<&Schedule::warmup_steps>("warmup-steps", "", "schedule.warmup_steps", kSchedule,
                                    "Steps from --warmup-from to the learning rate", nullptr),
    Option<&Schedule::warmup_from>("warmup-from", "", "schedule.warmup_from", kSchedule,
                                   "Learning rate at which the warm-up begins", nullptr),
    Option<&Schedule::total_steps>("total-steps", "", "schedule.total_steps", kSchedule,
                                   "cosine: the step at which it reaches its minimum", nullptr),
    Option<&Schedule::min_factor>("min-factor", "", "schedule.min_factor", kSchedule,
                                  "cosine: factor of the learning rate at the end", nullptr),
    Option<&Schedule::step_size>("step-size", "", "schedule.step_size", kSchedule,
                                 "step: number of steps between two decreases", nullptr),
    Option<&Schedule::gamma>("gamma", "", "schedule.gamma", kSchedule,
                             "step: factor of each decrease", nullptr),
    Word<&TableSpec::gradient_reduction, &kGradientReductionWords>(
        "reduction", "", "gradient_reduction", kTraining,
        "How gradients of several trainers for one row and step are combined", kUnderway),
    {"consistency", "", "consistency", kTraining, OptionShape::kText, &kConsistencyWords,
     "async, bounded:S (a trainer more than S steps ahead waits), or sync (as bounded:0)",
     kUnderway, ParseConsistency, PrintConsistency},
    Word<&TableSpec::nan_policy, &kNanPolicyWords>(
        "nan", "", "nan_policy", kTraining, "Treatment of NaN and infinite gradients", kUnderway),
    Option<&O::touches>("touches", "", "optimizer.touches", kLife,
                        "Each row keeps the number of its touches, and step and time of the last",
                        kLayout),
    Option<&S::kept>("shows", "", "optimizer.shows", kLife,
                     "Each row keeps shows and clicks, as pushes say them; with --touches",
                     kLayout),
    Option<&S::decay>("show-decay", "", "optimizer.show_decay", kLife,
                      "Part of the shows and clicks that is left after each period; 1: all",
                      kFaded),
    Option<&S::period_s, 1>("show-period-s", "", "optimizer.show_period_s", kLife,
                            "Seconds from one decay of shows and clicks to the next", kFaded),
    Option<&L::ttl_s>("ttl-s", "", "life.ttl_s", kLife,
                      "Delete rows that were not touched for so many seconds; 0: never", nullptr),
    Option<&L::ttl_steps>("ttl-steps", "", "life.ttl_steps", kLife,
                          "Delete rows that were not touched for so many steps; 0: never", nullptr),
    Option<&L::rows_max>("rows-max", "", "life.rows_max", kLife,
                         "The most rows; beyond, rows are evicted; 0: no limit", nullptr),
    Option<&L::bytes_max>("bytes-max", "", "life.bytes_max", kLife,
                          "The most bytes of weights and optimizer state; 0: no limit", nullptr),
    Word<&L::evict_by, &kEvictByWords>(
        "evict-by", "", "life.evict_by", kLife,
        "The rows that go first: touched longest ago, most rarely, of the smallest norm, or of the "
        "lowest score",
        nullptr),
    Option<&V::show>("score-show", "", "life.score_show", kLife,
                     "Score: the weight of a show without a click", nullptr),
    Option<&V::click>("score-click", "", "life.score_click", kLife, "Score: the weight of a click",
                      nullptr),
    Option<&V::least>("score-least", "", "life.score_least", kLife,
                      "Delete rows of a lower score; 0: none", nullptr),
    Option<&N::after>("admit-after", "", "life.admit_after", kLife,
                      "Touches that a row needs before gradients change it; 0 and 1: the first",
                      kLived),
    Option<&N::probability>("admit-probability", "", "life.admit_probability", kLife,
                            "Chance of each touch, 0 to 1, to make a row that is not there",
                            kLived),
    Option<&N::zeros>("admit-zeros", "", "life.admit_zeros", kLife,
                      "Rows that are not admitted read as zeros, not as their first value", kLived),
    Word<&N::by, &kAdmitByWords>(
        "admit-by", "", "life.admit_by", kLife,
        "exact: candidates take rows; bloom: their touches are counted in a filter", kLived),
    Option<&N::ids>("admit-ids", "", "life.admit_ids", kLife,
                    "bloom: ids for which the filter is made; 0: as --rows, or 1,000,000", kLived),
    Option<&N::false_positives>("admit-false-positives", "", "life.admit_false_positives", kLife,
                                "bloom: the part of so many ids that may be admitted too early",
                                kLived),
    Option<&TableSpec::memory_share_min>(
        "memory-share-min", "", "memory_share_min", kStorage,
        "Part, 0 to 1, of each server's memory for rows that the table keeps once it used it",
        nullptr),
    Option<&TableSpec::memory_share_max>(
        "memory-share-max", "", "memory_share_max", kStorage,
        "Part of each server's memory for rows that the table never exceeds", nullptr),
    Word<&TableSpec::weight_type, &kWeightTypeWords>("weight-type", "", "weight_type", kStorage,
                                                     "Format of stored weights", kLayout),
    Word<&O::state_type, &kStateTypeWords>("state-type", "", "optimizer.state_type", kStorage,
                                           "Format of stored vectors of optimizer state", kLayout),
    Option<&O::stochastic_rounding>("stochastic-rounding", "", "optimizer.stochastic_rounding",
                                    kStorage, "Unbiased rounding of fp16 and bf16 weights", kRule),
    Option<&TableSpec::column_slices, 1, kColumnSlicesMax>(
        "column-slices", "", "column_slices", kStorage,
        "Number of ranges of columns into which rows are cut", kPlaced),
    Word<&TableSpec::row_statistics, &kRowStatisticsWords>(
        "row-statistics", "", "row_statistics", kStorage,
        "With column slices: what optimizers with row statistics treat as a row", kRule),
    {"durability", "", "durability", kStorage, OptionShape::kText, &kDurabilityWords,
     "What an acknowledged push survives: checkpoint, log, or replicated=N on N servers, 2 or 3",
     "the log is kept by it", ParseDurability, PrintDurability},
    {"replicas", "", "replicas", kStorage, OptionShape::kInteger, nullptr,
     "Replicas of each shard, with --durability replicated; replicated=N sets both",
     "shards are placed by it", ParseReplicas, PrintAt<&TableSpec::replicas>},
    Option<&TableSpec::data_parallel>(
        "data-parallel", "", "data_parallel", kStorage,
        "Every server has a read replica of every shard; pushes go to the "
        "primary",
        kPlaced),
};

}  // namespace

std::string Dashed(absl::string_view word) { return absl::StrReplaceAll(word, {{"_", "-"}}); }

absl::Span<const TableOption> TableOptionList() { return kOptions; }

const TableOption* FindTableOption(absl::string_view name) {
  if (name.empty()) return nullptr;  // most options have an empty alias
  const std::string dashed = Dashed(name);
  for (const TableOption& option : kOptions) {
    if (dashed == option.name || dashed == option.alias || dashed == Dashed(option.field)) {
      return &option;
    }
    const absl::string_view field = option.field;
    const size_t dot = field.find('.');
    if (dot != field.npos && dashed == Dashed(field.substr(dot + 1)) && dashed != "kind") {
      return &option;
    }
  }
  return nullptr;
}

absl::Status SetTableOption(const TableOption& option, absl::string_view text, TableSpec* spec) {
  return option.parse(option, text, spec);
}

void TakeChange(const TableOption& option, const TableSpec& spec, TableChange* change) {
  const absl::string_view name = option.name;
  if (absl::string_view(option.group) == kSchedule) {
    change->has_schedule = true;
    change->schedule = spec.schedule;
  } else if (name == "learning-rate") {
    change->has_learning_rate = true;
    change->learning_rate = spec.optimizer.learning_rate;
  } else if (name == "clip-value") {
    change->has_clip_value = true;
    change->clip_value = spec.optimizer.clip_value;
  } else if (name == "clip-row-norm") {
    change->has_clip_row_norm = true;
    change->clip_row_norm = spec.optimizer.clip_row_norm;
  } else if (name == "memory-share-min") {
    change->has_memory_share_min = true;
    change->memory_share_min = spec.memory_share_min;
  } else if (name == "memory-share-max") {
    change->has_memory_share_max = true;
    change->memory_share_max = spec.memory_share_max;
  } else if (absl::string_view(option.group) == kLife) {
    change->has_life = true;
    change->life = spec.life;
  }
}

std::string FloatText(float value) {
  for (int digits = 6; digits < 9; ++digits) {
    std::string text = absl::StrFormat("%.*g", digits, value);
    float back = 0;
    if (absl::SimpleAtof(text, &back) && back == value) return text;
  }
  return absl::StrFormat("%.9g", value);
}

}  // namespace hotbed
