// What a table is: the value that its creation fixes and every layer reads. Immutable after
// creation.
#ifndef HOTBED_COMMON_TABLE_SPEC_H_
#define HOTBED_COMMON_TABLE_SPEC_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/ids.h"
#include "row_math/types.h"

namespace hotbed {

enum class Durability : uint8_t { kCheckpoint = 0, kLog = 1 };

constexpr uint32_t kDimMax = 8192;
constexpr uint64_t kShardBytesMax = 256ull << 20;  // DECISIONS P1
constexpr uint32_t kShardsPerTableMax = 1024;
constexpr uint32_t kShardsPerTableMin = 8;  // of a table above 1 MiB

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
  NanPolicy nan_policy = NanPolicy::kReject;

  uint64_t weight_bytes_per_row() const { return uint64_t{BytesPerWeight(weight_type)} * dim; }
  uint64_t state_bytes_per_row() const { return 4ull * StateElements(optimizer.kind, dim); }
};

// The words that people read and type; the index is the enum's value.
extern const std::vector<std::string> kOptimizerWords;   // sgd adagrad rowwise-adagrad adam
extern const std::vector<std::string> kWeightTypeWords;  // fp32 fp16 bf16
extern const std::vector<std::string> kDurabilityWords;  // checkpoint log
extern const std::vector<std::string> kNanPolicyWords;   // reject skip allow

// OK, or InvalidArgument naming the field, its value and the allowed range.
absl::Status ValidateTableSpec(const TableSpec& spec);

// The default seed of a table: FNV-1a 64 of its name, mixed. Part of the format.
uint64_t DefaultTableSeed(const std::string& name);

}  // namespace hotbed

#endif  // HOTBED_COMMON_TABLE_SPEC_H_
