#include "common/table_spec.h"

#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
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
                                                  "none"};
const std::vector<std::string> kWeightTypeWords = {"fp32", "fp16", "bf16"};
const std::vector<std::string> kDurabilityWords = {"checkpoint", "log"};
const std::vector<std::string> kNanPolicyWords = {"reject", "skip", "allow"};
const std::vector<std::string> kStateTypeWords = {"fp32", "bf16"};
const std::vector<std::string> kDecayModeWords = {"l2", "decoupled"};
const std::vector<std::string> kBoundsModeWords = {"error", "zero", "modulo"};
const std::vector<std::string> kGradientReductionWords = {"sum", "mean"};
const std::vector<std::string> kRowStatisticsWords = {"row", "slice"};
const std::vector<std::string> kConsistencyWords = {"async", "bounded", "sync"};

namespace {

constexpr size_t kNameBytesMax = 200;
constexpr uint64_t kRowsMax = uint64_t{1} << 62;

absl::Status Bad(const TableSpec& spec, absl::string_view field, absl::string_view value,
                 absl::string_view allowed) {
  return absl::InvalidArgumentError(
      absl::StrCat("table \"", spec.name, "\": ", field, " is ", value, ", allowed: ", allowed));
}

absl::Status CheckName(const TableSpec& spec) {
  const std::string& name = spec.name;
  bool valid = !name.empty() && name.size() <= kNameBytesMax &&
               (absl::ascii_isalnum(name[0]) || name[0] == '_');
  for (const unsigned char c : name) {
    valid = valid && (absl::ascii_isalnum(c) || c == '_' || c == '-' || c == '.' || c == '/');
  }
  if (valid) return absl::OkStatus();
  return Bad(
      spec, "name", absl::StrCat("of ", name.size(), " bytes"),
      absl::StrCat("1..", kNameBytesMax,
                   " letters, digits, '_', '-', '.', '/'; the first a letter, digit or '_'"));
}

absl::Status CheckEnums(const TableSpec& spec) {
  const auto in = [](auto value, auto last) {
    return static_cast<int>(value) <= static_cast<int>(last);
  };
  const auto bad = [&](absl::string_view field, auto value, auto last) {
    return Bad(spec, field, absl::StrCat(static_cast<int>(value)),
               absl::StrCat("0..", static_cast<int>(last)));
  };
  if (!in(spec.weight_type, WeightType::kBf16)) {
    return bad("weight_type", spec.weight_type, WeightType::kBf16);
  }
  if (!in(spec.optimizer.kind, kLastOptimizerKind)) {
    return bad("optimizer.kind", spec.optimizer.kind, kLastOptimizerKind);
  }
  if (!in(spec.initializer.kind, InitializerKind::kTruncatedNormal)) {
    return bad("initializer.kind", spec.initializer.kind, InitializerKind::kTruncatedNormal);
  }
  if (!in(spec.durability, Durability::kLog)) {
    return bad("durability", spec.durability, Durability::kLog);
  }
  if (!in(spec.nan_policy, NanPolicy::kAllow)) {
    return bad("nan_policy", spec.nan_policy, NanPolicy::kAllow);
  }
  return absl::OkStatus();
}

absl::Status CheckOptimizer(const TableSpec& spec) {
  const OptimizerParams& o = spec.optimizer;
  const auto not_negative = [&](absl::string_view field, float value) {
    if (std::isfinite(value) && value >= 0) return absl::OkStatus();
    return Bad(spec, field, absl::StrCat(value), "finite and >= 0");
  };
  HOTBED_RETURN_IF_ERROR(not_negative("optimizer.learning_rate", o.learning_rate));
  HOTBED_RETURN_IF_ERROR(not_negative("optimizer.weight_decay", o.weight_decay));
  HOTBED_RETURN_IF_ERROR(not_negative("optimizer.initial_accumulator", o.initial_accumulator));
  if (!(std::isfinite(o.epsilon) && o.epsilon > 0)) {
    return Bad(spec, "optimizer.epsilon", absl::StrCat(o.epsilon), "finite and > 0");
  }
  if (!(o.beta1 >= 0 && o.beta1 < 1)) {
    return Bad(spec, "optimizer.beta1", absl::StrCat(o.beta1), "[0, 1)");
  }
  if (!(o.beta2 >= 0 && o.beta2 < 1)) {
    return Bad(spec, "optimizer.beta2", absl::StrCat(o.beta2), "[0, 1)");
  }
  return absl::OkStatus();
}

absl::Status CheckInitializer(const TableSpec& spec) {
  const InitializerParams& i = spec.initializer;
  if (!std::isfinite(i.a)) return Bad(spec, "initializer.a", absl::StrCat(i.a), "finite");
  if (!std::isfinite(i.b)) return Bad(spec, "initializer.b", absl::StrCat(i.b), "finite");
  const bool normal =
      i.kind == InitializerKind::kNormal || i.kind == InitializerKind::kTruncatedNormal;
  if (normal && i.b < 0) {
    return Bad(spec, "initializer.b (standard deviation)", absl::StrCat(i.b), ">= 0");
  }
  if (i.kind == InitializerKind::kUniform && i.a > i.b) {
    return Bad(spec, "initializer.a (low end)", absl::StrCat(i.a),
               absl::StrCat("at most initializer.b = ", i.b));
  }
  return absl::OkStatus();
}

// DECISIONS P5: what needs the whole row is cut by columns only where the table says that a slice
// is what it means by a row.
absl::Status CheckColumnSlices(const TableSpec& spec) {
  const uint32_t most = spec.dim < kColumnSlicesMax ? spec.dim : kColumnSlicesMax;
  if (spec.column_slices < 1 || spec.column_slices > most) {
    return Bad(spec, "column_slices", absl::StrCat(spec.column_slices),
               absl::StrCat("1..", most, " (at most dim and ", kColumnSlicesMax, ")"));
  }
  if (spec.column_slices == 1 || spec.row_statistics == RowStatistics::kSlice) {
    return absl::OkStatus();
  }
  OptimizerParams params = spec.optimizer;
  for (const TableChange& change : spec.changes) {
    if (change.has_clip_row_norm && change.clip_row_norm > 0) {
      params.clip_row_norm = change.clip_row_norm;
    }
  }
  if (!NeedsRowStatistics(params)) return absl::OkStatus();
  const std::string why = params.clip_row_norm > 0 ? "optimizer.clip_row_norm"
                          : params.max_norm > 0    ? "optimizer.max_norm"
                                                : kOptimizerWords[static_cast<size_t>(params.kind)];
  return Bad(spec, "column_slices", absl::StrCat(spec.column_slices),
             absl::StrCat("1, because ", why,
                          " needs statistics of whole rows; or set row_statistics=slice, which "
                          "makes each slice a row of its own to it"));
}

}  // namespace

uint64_t TableSpec::state_bytes_per_row() const {
  uint64_t bytes = 0;
  for (uint32_t slice = 0; slice < column_slices; ++slice) {
    bytes += StateBytes(optimizer, SliceColumns(dim, column_slices, slice).columns());
  }
  return bytes;
}

absl::Status ValidateTableSpec(const TableSpec& spec) {
  HOTBED_RETURN_IF_ERROR(CheckName(spec));
  if (spec.dim < 1 || spec.dim > kDimMax) {
    return Bad(spec, "dim", absl::StrCat(spec.dim), absl::StrCat("1..", kDimMax));
  }
  if (spec.rows > kRowsMax || (!spec.hashed && spec.rows == 0)) {
    return Bad(spec, "rows", absl::StrCat(spec.rows),
               absl::StrCat(spec.hashed ? "0.." : "1..", kRowsMax));
  }
  HOTBED_RETURN_IF_ERROR(CheckEnums(spec));
  HOTBED_RETURN_IF_ERROR(CheckOptimizer(spec));
  HOTBED_RETURN_IF_ERROR(CheckColumnSlices(spec));
  return CheckInitializer(spec);
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

uint64_t DefaultTableSeed(const std::string& name) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (const unsigned char c : name) hash = (hash ^ c) * 0x100000001b3ull;
  return Mix64(hash);
}

}  // namespace hotbed
