// The pushes of the checker, as a pure function of (seed, client, step), and the weights that the
// tables must hold in the end.
//
// Gradients are small integers, and the optimizer is SGD with learning rate 1 on zeros. So a weight
// is exactly minus the sum of its gradients, in any order, while the sum stays below 2^24. Each
// client owns six columns of every row. Two workloads share each push:
//   add       per occurrence of a row's id [1, step mod 61, step^2 mod 67, tag(row)]: a lost or
//             doubled push shows as a difference that names client, step and direction, and an
//             update that went to another row shows in the tags;
//   transfer  +k to one row and -k to another: in column 4 between the rows of a pair (2i, 2i+1),
//             mostly of one shard; in column 5 between rows far apart, mostly of two shards. While
//             the tables hold whole steps, each column adds up to 0.
// All functions are deterministic; the classes are thread-compatible.
#ifndef HOTBED_TESTS_CHECKER_WORKLOAD_H_
#define HOTBED_TESTS_CHECKER_WORKLOAD_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/tables/table_spec.h"

namespace hotbed::checker {

inline constexpr uint32_t kColumns = 6;  // of each client
inline constexpr uint32_t kAddColumns = 4;
inline constexpr uint32_t kPairColumn = 4;
inline constexpr uint32_t kFarColumn = 5;

// One table of the workload; `word` names the kind, the table is called check_WORD.
struct TableKind {
  std::string word;
  bool hashed = false;
  uint32_t replicas = 1;
  bool data_parallel = false;
};

// Parses "log,log-hashed,r2,r3-hashed,dp": durability log, 2 or 3 replicas, a read replica on every
// server; -hashed stands for hashed ids. InvalidArgument names the unknown word.
absl::StatusOr<std::vector<TableKind>> ParseTableKinds(const std::string& words);

struct WorkloadOptions {
  uint32_t clients = 3;
  uint64_t rows = 20000;  // of each table; even
  uint32_t dim = 64;      // at least kColumns * clients; more makes rows wider, so that they spill
  uint32_t ids_per_push = 32;       // of each table, with duplicates
  uint32_t transfers_per_push = 4;  // of each table; every second transfer is far
  uint64_t seed = 1;
  std::vector<TableKind> tables = {{"log", false, 1, false}, {"log-hashed", true, 1, false}};
};

// One step of one client: ids and rows x dim gradients of each table.
struct StepBatch {
  struct Part {
    // Row numbers, 0..rows-1: of `adds` adds, then giver and taker of each transfer.
    std::vector<uint64_t> rows;
    size_t adds = 0;
    std::vector<uint64_t> ids;
    std::vector<float> gradients;
  };
  std::vector<Part> parts;  // one per table
};

// The sums that one add of `row` in a push of `step` contributes.
std::array<int64_t, kColumns> Contribution(uint32_t table, uint64_t row, uint64_t step);
// The sums that occurrence `i` of the part's rows contributes.
std::array<int64_t, kColumns> Effect(uint32_t table, const StepBatch::Part& part, size_t i,
                                     uint64_t step);

class Workload {
 public:
  explicit Workload(WorkloadOptions options) : options_(std::move(options)) {}

  const WorkloadOptions& options() const { return options_; }
  uint32_t tables() const { return static_cast<uint32_t>(options_.tables.size()); }
  TableSpec Table(uint32_t table) const;
  uint64_t IdOf(uint32_t table, uint64_t row) const;
  // Fills only the rows, in the order of the ids.
  void FillRows(uint32_t client, uint64_t step, StepBatch* out) const;
  // Fills rows, ids and gradients.
  void Fill(uint32_t client, uint64_t step, StepBatch* out) const;

 private:
  WorkloadOptions options_;
};

// Sums of contributions: kColumns numbers per table, row and client. Thread-compatible.
class Ledger {
 public:
  Ledger(const Workload* workload, uint32_t first_client, uint32_t clients);

  void Add(uint32_t client, uint64_t step);
  absl::Span<const int64_t> Of(uint32_t table, uint64_t row, uint32_t client) const;
  // The sum farthest from 0; beyond 2^24 an fp32 weight is no longer exact.
  int64_t Max() const;

 private:
  size_t At(uint32_t table, uint64_t row, uint32_t client) const;

  const Workload* workload_;
  uint32_t first_client_;
  uint32_t clients_;
  std::vector<int64_t> sums_;
  StepBatch scratch_;
};

inline constexpr int64_t kExactSumMax = 1 << 24;

// Explains the difference between the found and the expected columns of a client in a row: names
// the steps that would cause it if one of them were lost, or applied once more. Empty where no
// single step would.
std::string Explain(const Workload& workload, uint32_t table, uint64_t row, uint32_t client,
                    uint64_t last_step, absl::Span<const int64_t> expected,
                    absl::Span<const int64_t> found);

}  // namespace hotbed::checker

#endif  // HOTBED_TESTS_CHECKER_WORKLOAD_H_
