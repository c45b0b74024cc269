#include "common/tables/table_spec.h"

#include <algorithm>
#include <cmath>

#include "common/tables/vocabulary_row.h"
#include "row_math/optimizer.h"
#include "row_math/position.h"

namespace hotbed {

const std::vector<std::string> kOptimizerWords = {"sgd",
                                                  "adagrad",
                                                  "rowwise-adagrad",
                                                  "adam",
                                                  "momentum-sgd",
                                                  "adamw",
                                                  "partial-rowwise-adam",
                                                  "lamb",
                                                  "partial-rowwise-lamb",
                                                  "lars",
                                                  "ftrl",
                                                  "rmsprop",
                                                  "none",
                                                  "rowwise-rmsprop",
                                                  "lion",
                                                  "adadelta",
                                                  "amsgrad",
                                                  "rowwise-adagrad-counter"};
const std::vector<std::string> kWeightTypeWords = {"fp32", "fp16", "bf16"};
const std::vector<std::string> kDurabilityWords = {"checkpoint", "log", "replicated"};
const std::vector<std::string> kNanPolicyWords = {"reject", "skip", "allow"};
const std::vector<std::string> kStateTypeWords = {"fp32", "bf16"};
const std::vector<std::string> kDecayModeWords = {"l2", "decoupled"};
const std::vector<std::string> kCounterModeWords = {"decay",       "tail-increase", "tail-decrease",
                                                    "counter-sgd", "adagradw",      "cowclip"};
const std::vector<std::string> kBoundsModeWords = {"error", "zero", "modulo"};
const std::vector<std::string> kGradientReductionWords = {"sum", "mean"};
const std::vector<std::string> kRowStatisticsWords = {"row", "slice"};
const std::vector<std::string> kConsistencyWords = {"async", "bounded", "sync"};
const std::vector<std::string> kEvictByWords = {"lru", "lfu", "norm", "score"};
const std::vector<std::string> kAdmitByWords = {"exact", "bloom"};

const std::vector<std::string> kComposeFormWords = {"none", "quotient-remainder", "block",
                                                    "frequency"};
const std::vector<std::string> kCombineWords = {"multiply", "add", "concatenate"};

uint64_t TableSpec::state_bytes_per_row() const {
  uint64_t bytes = 0;
  for (uint32_t slice = 0; slice < column_slices; ++slice) {
    bytes += StateBytes(optimizer, SliceColumns(dim, column_slices, slice).columns());
  }
  return bytes;
}

UpdateScalars ResolvePush(const TableSpec& spec, bool has_learning_rate, float learning_rate,
                          uint64_t step) {
  OptimizerParams params = spec.optimizer;
  Schedule schedule = spec.schedule;
  for (const TableChange& change : spec.changes) {
    if (change.at_step > step) continue;
    if (change.has_learning_rate) params.learning_rate = change.learning_rate;
    if (change.has_clip_value) params.clip_value = change.clip_value;
    if (change.has_clip_row_norm) params.clip_row_norm = change.clip_row_norm;
    if (change.has_schedule) schedule = change.schedule;
  }
  const float rate =
      has_learning_rate ? learning_rate : schedule.RateAt(params.learning_rate, step);
  return ResolveScalars(params, rate, step);
}

InitializerParams FirstValuesOf(const TableSpec& spec) {
  if (spec.initializer.kind != InitializerKind::kScaled) return spec.initializer;
  const float reach = 1.0f / std::sqrt(static_cast<float>(spec.dim));
  return {InitializerKind::kUniform, -reach, reach};
}

InitializerParams ReadInitializer(const TableSpec& spec) {
  if (!spec.life.admission.zeros) return spec.initializer;
  return {InitializerKind::kZero, 0.0f, 0.0f};
}

LifeParams LifeOf(const TableSpec& spec) {
  LifeParams life = spec.life;
  for (const TableChange& change : spec.changes) {
    if (change.has_life) life = change.life;
  }
  life.admission = spec.life.admission;
  return life;
}

uint64_t RowsMaxOf(const TableSpec& spec) {
  const LifeParams life = LifeOf(spec);
  if (life.bytes_max == 0) return life.rows_max;
  const uint64_t row_bytes = spec.weight_bytes_per_row() + spec.state_bytes_per_row();
  const uint64_t rows = std::max<uint64_t>(1, life.bytes_max / row_bytes);
  return life.rows_max == 0 ? rows : std::min(rows, life.rows_max);
}

MemoryShare MemoryShareOf(const TableSpec& spec) {
  MemoryShare share = {spec.memory_share_min, spec.memory_share_max};
  for (const TableChange& change : spec.changes) {
    if (change.has_memory_share_min) share.min = change.memory_share_min;
    if (change.has_memory_share_max) share.max = change.memory_share_max;
  }
  return share;
}

void MakeVocabulary(uint64_t numbers, TableSpec* spec) {
  const TableSpec defaults;
  spec->vocabulary = numbers;
  spec->hashed = true;
  if (!spec->has_padding_id) spec->padding_id = kNoKey;
  spec->has_padding_id = true;
  if (spec->dim == 0) spec->dim = kVocabularyDim;
  if (spec->rows == 0) spec->rows = numbers;
  if (spec->optimizer.kind == defaults.optimizer.kind) spec->optimizer.kind = OptimizerKind::kNone;
  if (spec->initializer.kind == InitializerKind::kScaled) {
    spec->initializer.kind = InitializerKind::kZero;
  }
}

void MakeCanonical(TableSpec* spec) {
  if (spec->vocabulary != 0) MakeVocabulary(spec->vocabulary, spec);
  if (!spec->has_padding_id) spec->padding_id = 0;
  const uint64_t from_end = ~spec->padding_id;  // 0 for -1
  if (!spec->hashed && spec->padding_id >> 63 != 0 && from_end < spec->rows) {
    spec->padding_id = spec->rows - 1 - from_end;
  }
  if (spec->consistency == Consistency::kBounded && spec->staleness == 0) {
    spec->consistency = Consistency::kSync;
  }
  AdmissionParams& admission = spec->life.admission;
  if (admission.Filters() && admission.ids == 0) {
    admission.ids = spec->rows > 0 ? spec->rows : kAdmitIdsDefault;
  }
}

uint64_t DefaultTableSeed(const std::string& name) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (const unsigned char c : name) hash = (hash ^ c) * 0x100000001b3ull;
  return Mix64(hash);
}

}  // namespace hotbed
