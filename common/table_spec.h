// What a table is: the value that its creation fixes and every layer reads. After that only
// `changes` grows (TableChange). Every option with its formula: docs/tables.md.
#ifndef HOTBED_COMMON_TABLE_SPEC_H_
#define HOTBED_COMMON_TABLE_SPEC_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/ids.h"
#include "common/schedule.h"
#include "row_math/types.h"

namespace hotbed {

// What an acknowledged push survives (docs/durability.md). kReplicated: TableSpec::copies servers
// hold it, each of them in its log.
enum class Durability : uint8_t { kCheckpoint = 0, kLog = 1, kReplicated = 2 };

// What an id outside of a bounded table's 0..rows-1 is: an error of the whole call; a row of zeros
// that is counted and takes no gradient; or the id modulo rows.
enum class BoundsMode : uint8_t { kError = 0, kZero = 1, kModulo = 2 };

// How the gradients of several trainers for one row and step become one.
enum class GradientReduction : uint8_t { kSum = 0, kMean = 1 };

// What "the row" is to optimizers and formats that need whole-row statistics, in a table that is
// sliced by columns (DECISIONS P5): slicing is refused, or each slice is a row of its own.
enum class RowStatistics : uint8_t { kRow = 0, kSlice = 1 };

// Of training (DECISIONS S5): pushes are applied as they come; the same, and a trainer more than
// `staleness` steps ahead of the slowest waits; pushes of a step are applied together when all
// trainers have ended it.
enum class Consistency : uint8_t { kAsync = 0, kBounded = 1, kSync = 2 };

// A change of the options that may change, for pushes of step `at_step` and later.
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

  friend bool operator==(const TableChange& a, const TableChange& b) = default;
};

constexpr uint32_t kDimMax = kDimLimit;
constexpr uint64_t kShardBytesMax = 256ull << 20;  // DECISIONS P1
constexpr uint32_t kShardsPerTableMax = 1024;
constexpr uint32_t kShardsPerTableMin = 8;  // of a table above 1 MiB
constexpr uint32_t kColumnSlicesMax = 256;
constexpr uint32_t kTableChangesMax = 256;
constexpr uint32_t kCopiesMax = 3;
constexpr uint64_t kTrainingStepMax = (1ull << 44) - 1;  // DECISIONS S1: seq = step << 20 | part

struct TableSpec {
  TableId id = 0;  // assigned by the coordinator
  std::string name;
  bool hashed = false;
  uint64_t rows = 0;  // bounded: ids are 0..rows-1; hashed: the expected number, for placement only
  uint32_t dim = 0;   // elements of a row, 1..kDimMax
  WeightType weight_type = WeightType::kFp32;
  OptimizerParams optimizer;
  InitializerParams initializer;
  uint64_t seed = 0;  // DECISIONS N2: default is a hash of the name, resolved at creation
  Durability durability = Durability::kLog;
  // Of each shard, the primary's included, on servers that share no failure domain; 2 or 3 of
  // kReplicated, else 1.
  uint32_t copies = 1;
  // DECISIONS P6: beside the primary (and the backups) every server has a read copy.
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
      0.0f;           // a column slice's whole gradient of one push, by the client; 0: off
  Schedule schedule;  // of the learning rate, where the push carries none
  std::vector<TableChange> changes;  // in order of at_step

  uint64_t weight_bytes_per_row() const { return uint64_t{BytesPerWeight(weight_type)} * dim; }
  // Over all column slices: each has state of its own.
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

// Whether pushes of a step are staged and applied together: kBounded with staleness 0 is the same
// thing as kSync.
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
extern const std::vector<std::string> kBoundsModeWords;  // error zero modulo
extern const std::vector<std::string> kGradientReductionWords;  // sum mean
extern const std::vector<std::string> kRowStatisticsWords;      // row slice
extern const std::vector<std::string> kConsistencyWords;        // async bounded sync

// OK, or InvalidArgument naming the table, the field (as here, after optimizer., initializer.,
// schedule. or changes[i].), its value and the allowed range.
absl::Status ValidateTableSpec(const TableSpec& spec);

// Of two ways to say one thing the one that is stored: staleness 0 is kSync, no padding id is 0.
void MakeCanonical(TableSpec* spec);

// Gives a valid table one more change. Of the step of its last one it adds to that, and replaces
// what both name; else its step must be later. InvalidArgument names the field, its value and what
// is allowed; then `spec` stays as it was.
absl::Status AddTableChange(const TableChange& change, TableSpec* spec);

// For people, on one line: "learning_rate=0.01 clip_value=off schedule=cosine ...".
std::string ChangeText(const TableChange& change);

// What a push of `step` is applied with: the table's options as of that step, its schedule, and the
// learning rate of the push where it carries one. Computed once, on the primary, and logged.
UpdateScalars ResolvePush(const TableSpec& spec, bool has_learning_rate, float learning_rate,
                          uint64_t step);

// The default seed of a table: FNV-1a 64 of its name, mixed. Part of the format.
uint64_t DefaultTableSeed(const std::string& name);

}  // namespace hotbed

#endif  // HOTBED_COMMON_TABLE_SPEC_H_
