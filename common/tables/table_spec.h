// The description of a table: fixed when the table is created, and read by every layer. Afterwards
// only `changes` grows (TableChange). docs/tables.md has every option with its formula.
#ifndef HOTBED_COMMON_TABLES_TABLE_SPEC_H_
#define HOTBED_COMMON_TABLES_TABLE_SPEC_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/ids.h"
#include "common/schedule.h"
#include "row_math/touches.h"
#include "row_math/types.h"

namespace hotbed {

// The failures that an acknowledged push survives (docs/durability.md). kReplicated:
// TableSpec::replicas servers hold the push, each in its log.
enum class Durability : uint8_t { kCheckpoint = 0, kLog = 1, kReplicated = 2 };

// The meaning of an id outside 0..rows-1 of a bounded table: an error of the whole call; a row of
// zeros that is counted and takes no gradient; or the id modulo rows.
enum class BoundsMode : uint8_t { kError = 0, kZero = 1, kModulo = 2 };

// How the gradients of several trainers for one row and step are combined.
enum class GradientReduction : uint8_t { kSum = 0, kMean = 1 };

// The meaning of "the row" for optimizers and formats that need whole-row statistics: with kRow
// such a table cannot be cut by columns; with kSlice each slice counts as a row of its own
// (docs/decisions.md, "Identity and placement").
enum class RowStatistics : uint8_t { kRow = 0, kSlice = 1 };

// kAsync: pushes are applied as they arrive. kBounded: likewise, and a trainer that is more than
// `staleness` steps ahead of the slowest one waits. kSync: the pushes of a step are applied
// together when all trainers have ended the step.
enum class Consistency : uint8_t { kAsync = 0, kBounded = 1, kSync = 2 };

// The row that goes first when a table has more rows than its limit.
enum class EvictBy : uint8_t {
  kLru = 0,    // the one whose last touch is longest ago
  kLfu = 1,    // the one with the fewest touches; of several, the one touched longest ago
  kNorm = 2,   // the one with the smallest Euclidean norm of weights, in its first slice
  kScore = 3,  // the one with the lowest score of shows and clicks
};

// The score of a row: (shows - clicks) * show + clicks * click (row_math/touches.h).
struct ScoreParams {
  float show = 0.1f;   // weight of a show without a click
  float click = 1.0f;  // weight of a click
  float least = 0.0f;  // rows with a lower score are deleted; 0: none

  friend bool operator==(const ScoreParams& a, const ScoreParams& b) = default;
};

// How rows of a hashed table come and go. All but the defaults needs OptimizerParams::touches.
struct LifeParams {
  uint64_t ttl_s = 0;      // a row goes when it was not touched for so long; 0: it stays
  uint64_t ttl_steps = 0;  // the same in training steps, of the table's last push
  uint64_t rows_max = 0;   // the most rows of the table; 0: no limit
  uint64_t bytes_max = 0;  // the most bytes of weights and state of its rows; 0: no limit
  EvictBy evict_by = EvictBy::kLru;
  ScoreParams score;
  AdmissionParams admission;

  bool Expires() const { return ttl_s != 0 || ttl_steps != 0 || score.least > 0; }
  bool Limits() const { return rows_max != 0 || bytes_max != 0; }
  bool TakesRows() const { return Expires() || Limits(); }

  friend bool operator==(const LifeParams& a, const LifeParams& b) = default;
};

// New values of options that may change, for pushes of step `at_step` and later.
struct TableChange {
  uint64_t at_step = 0;
  bool has_learning_rate = false;
  float learning_rate = 0.0f;
  bool has_clip_value = false;
  float clip_value = 0.0f;
  bool has_clip_row_norm = false;
  float clip_row_norm = 0.0f;
  bool has_schedule = false;
  Schedule schedule;
  // At once, whatever the step (MemoryShareOf).
  bool has_memory_share_min = false;
  float memory_share_min = 0.0f;
  bool has_memory_share_max = false;
  float memory_share_max = 1.0f;
  // All policies but admission, which stays as it is. At once, too (LifeOf).
  bool has_life = false;
  LifeParams life;

  friend bool operator==(const TableChange& a, const TableChange& b) = default;
};

constexpr uint32_t kDimMax = kDimLimit;
constexpr uint64_t kShardBytesMax = 256ull << 20;  // of weights and optimizer state
constexpr uint32_t kShardsPerTableMax = 1024;
constexpr uint32_t kShardsPerTableMin = 8;  // for tables above 1 MiB
constexpr uint32_t kColumnSlicesMax = 256;
constexpr uint32_t kTableChangesMax = 256;
constexpr uint32_t kReplicasMax = 3;
constexpr uint64_t kAdmitIdsDefault = 1'000'000;  // AdmissionParams::ids, if no rows are expected
constexpr uint64_t kTrainingStepMax = (1ull << 44) - 1;  // seq = step << 20 | part

// The checkpoint whose rows a table begins with (docs/checkpoints.md). Each member of a shard reads
// them from there before the shard serves for the first time, and never again.
struct RestoredFrom {
  std::string checkpoint;  // absolute path of its folder, which every server reaches; empty: none
  std::string table;       // the name in the checkpoint
  bool sessions = false;   // the sessions of the checkpoint go on, or else begin anew

  friend bool operator==(const RestoredFrom& a, const RestoredFrom& b) = default;
};

// How a composed table makes a row of its parts (common/tables/composition.h).
enum class ComposeForm : uint8_t { kNone = 0, kQuotientRemainder = 1, kBlock = 2, kFrequency = 3 };
// How kQuotientRemainder joins a row of each part.
enum class Combine : uint8_t { kMultiply = 0, kAdd = 1, kConcatenate = 2 };

// kNone: a plain table. With `table` empty: a composed table as people ask for it and see it, which
// the cluster stores as its parts only. With `table`: one of those parts, which has all of it.
struct Composition {
  ComposeForm form = ComposeForm::kNone;
  Combine combine = Combine::kMultiply;
  bool pool_first = false;  // kQuotientRemainder: bags are pooled in each part, then joined
  // kQuotientRemainder: the remainder is id mod buckets. 0, until the table is made: the least
  // whole number whose square is at least rows.
  uint64_t buckets = 0;
  // kBlock and kFrequency: elements per row of each block of ids.
  std::vector<uint32_t> block_dims;

  // The rest is set in parts: the composed table.
  std::string table;
  uint32_t part = 0;  // place among its parts
  uint64_t rows = 0;
  uint32_t dim = 0;
  bool has_padding_id = false;
  uint64_t padding_id = 0;
  BoundsMode bounds_mode = BoundsMode::kError;

  friend bool operator==(const Composition& a, const Composition& b) = default;
};

struct TableSpec {
  TableId id = 0;  // assigned by the coordinator
  std::string name;
  bool hashed = false;
  uint64_t rows = 0;  // bounded: ids are 0..rows-1; hashed: the expected number, for placement only
  // Not 0: the table is a vocabulary, which gives keys the numbers 1 to this one
  // (common/tables/vocabulary_row.h).
  uint64_t vocabulary = 0;
  uint32_t dim = 0;  // elements per row, 1..kDimMax
  WeightType weight_type = WeightType::kFp32;
  OptimizerParams optimizer;
  InitializerParams initializer;  // kScaled until the coordinator has made the table
  uint64_t seed = 0;  // of first values; default: DefaultTableSeed(name), set at creation
  Durability durability = Durability::kLog;
  // Members of each shard, including the primary, on servers that share no failure domain: 2 or 3
  // with kReplicated, otherwise 1.
  uint32_t replicas = 1;
  // In addition to the primary and the backups, every server has a read replica of each shard.
  bool data_parallel = false;
  NanPolicy nan_policy = NanPolicy::kReject;
  uint32_t column_slices = 1;  // of equal width, the first dim % column_slices one wider
  RowStatistics row_statistics = RowStatistics::kRow;
  bool has_padding_id = false;  // reads as zeros, takes no gradient
  uint64_t padding_id = 0;
  BoundsMode bounds_mode = BoundsMode::kError;
  GradientReduction gradient_reduction = GradientReduction::kSum;
  Consistency consistency = Consistency::kAsync;
  uint32_t staleness = 0;  // steps, kBounded; 0 makes it kSync
  float clip_slice_norm =
      0.0f;           // norm of a column slice's gradient in one push, by the client; 0: off
  Schedule schedule;  // of the learning rate, for pushes that carry none
  // Parts, 0 to 1, of the memory for rows of each server: what the table keeps there whoever else
  // asks, once it has used it, and what it never exceeds.
  float memory_share_min = 0.0f;
  float memory_share_max = 1.0f;
  LifeParams life;
  RestoredFrom restored_from;
  Composition composition;
  std::vector<TableChange> changes;  // in order of at_step

  uint64_t weight_bytes_per_row() const { return uint64_t{BytesPerWeight(weight_type)} * dim; }
  // Over all column slices, each of which has state of its own.
  uint64_t state_bytes_per_row() const;
};

// Columns of a row, half-open.
struct ColumnRange {
  uint32_t first = 0;
  uint32_t limit = 0;
  uint32_t columns() const { return limit - first; }
};

// Slice `slice` of `slices` of a row of `dim` columns: equal widths, the first dim % slices ones
// wider by one. A table of several slices numbers its shards slice by slice: all of slice 0 in
// position order, then all of slice 1, each slice cut at the same positions.
constexpr ColumnRange SliceColumns(uint32_t dim, uint32_t slices, uint32_t slice) {
  const uint32_t width = dim / slices;
  const uint32_t wider = dim % slices;
  const uint32_t first = slice * width + (slice < wider ? slice : wider);
  return {first, first + width + (slice < wider ? 1 : 0)};
}

// Whether the pushes of a step are staged and applied together. kBounded with staleness 0 is the
// same as kSync.
inline bool IsSynchronous(const TableSpec& spec) {
  return spec.consistency == Consistency::kSync ||
         (spec.consistency == Consistency::kBounded && spec.staleness == 0);
}

// The words that people read and type; the index is the enum's value.
extern const std::vector<std::string> kOptimizerWords;   // sgd adagrad rowwise-adagrad adam ...
extern const std::vector<std::string> kWeightTypeWords;  // fp32 fp16 bf16
extern const std::vector<std::string> kDurabilityWords;  // checkpoint log replicated
extern const std::vector<std::string> kNanPolicyWords;   // reject skip allow
extern const std::vector<std::string> kStateTypeWords;   // fp32 bf16
extern const std::vector<std::string> kDecayModeWords;   // l2 decoupled
extern const std::vector<std::string> kCounterModeWords;
extern const std::vector<std::string> kBoundsModeWords;         // error zero modulo
extern const std::vector<std::string> kGradientReductionWords;  // sum mean
extern const std::vector<std::string> kRowStatisticsWords;      // row slice
extern const std::vector<std::string> kConsistencyWords;        // async bounded sync
extern const std::vector<std::string> kEvictByWords;            // lru lfu norm score
extern const std::vector<std::string> kAdmitByWords;            // exact bloom

extern const std::vector<std::string> kComposeFormWords;  // none quotient-remainder block frequency
extern const std::vector<std::string> kCombineWords;      // multiply add concatenate

// OK, or InvalidArgument naming the table, the field (as here, after optimizer., initializer.,
// schedule. or changes[i].), its value and the allowed range.
absl::Status ValidateTableSpec(const TableSpec& spec);

// The first values of a valid table: where none are asked for, uniform in +-1 / sqrt(dim). Rows of
// zeros would never learn where a model multiplies them with each other.
InitializerParams FirstValuesOf(const TableSpec& spec);

// The values that rows read as until they are admitted.
InitializerParams ReadInitializer(const TableSpec& spec);

// The policies that are in force after all changes.
LifeParams LifeOf(const TableSpec& spec);

// The most rows of the table, by both of its limits in force; 0: none.
uint64_t RowsMaxOf(const TableSpec& spec);

// The shares of memory that are in force after all changes.
struct MemoryShare {
  float min = 0.0f;
  float max = 1.0f;
};
MemoryShare MemoryShareOf(const TableSpec& spec);

// Makes the spec that of a vocabulary of so many numbers: sets the options that a vocabulary needs
// where none was asked for. ValidateTableSpec refuses others.
void MakeVocabulary(uint64_t numbers, TableSpec* spec);

// Replaces equivalent settings by the one that is stored: staleness 0 becomes kSync, the padding id
// of a table without one becomes 0, a negative one of a bounded table (-rows to -1, as a 64-bit
// pattern) counts from its end, as in torch.nn, and a filter of touches is made for a number of
// ids.
void MakeCanonical(TableSpec* spec);

// Adds a change to a valid table. A change at the step of the last one is merged into it and wins
// where both name an option; any other change must have a later step. InvalidArgument names the
// field, its value and the allowed range, and leaves `spec` as it was.
absl::Status AddTableChange(const TableChange& change, TableSpec* spec);

// For people, on one line: "learning_rate=0.01 clip_value=off schedule=cosine ...".
std::string ChangeText(const TableChange& change);

// The scalars with which a push of `step` is applied: from the table's options as of that step, its
// schedule, and the learning rate of the push if it carries one. Computed once, on the primary, and
// logged.
UpdateScalars ResolvePush(const TableSpec& spec, bool has_learning_rate, float learning_rate,
                          uint64_t step);

// The default seed of a table: FNV-1a 64 of its name, mixed. Part of the format.
uint64_t DefaultTableSeed(const std::string& name);

}  // namespace hotbed

#endif  // HOTBED_COMMON_TABLES_TABLE_SPEC_H_
