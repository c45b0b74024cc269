// What the kill checker pushes, as a pure function of (seed, client, step), and what the table must
// hold in the end.
//
// Gradients are small integers and the optimizer is SGD with learning rate 1 on zeros, so a weight
// is exactly minus the sum of its gradients while that stays below 2^24, whatever the order. Each
// client owns four columns of every row; a push adds to them, per occurrence of the row's id:
//   [1, step mod 1021, step^2 mod 4093, tag(row)]
// So a lost or doubled push shows as a difference that names client, step and direction, and an
// update that went to another row shows in the tags. Everything here is deterministic and
// thread-compatible.
#ifndef HOTBED_TESTS_CHECKER_WORKLOAD_H_
#define HOTBED_TESTS_CHECKER_WORKLOAD_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/table_spec.h"

namespace hotbed::checker {

inline constexpr uint32_t kColumns = 4;  // of each client
inline constexpr uint32_t kTables = 2;   // a bounded one and a hashed one

struct WorkloadOptions {
  uint32_t clients = 3;
  uint64_t rows = 20000;  // of each table
  uint32_t dim = 64;      // at least kColumns * clients; more makes rows wider, so that they spill
  uint32_t ids_per_push = 32;  // of each table, duplicates among them
  uint64_t seed = 1;
};

// One step of one client: ids and rows x dim gradients of each table.
struct StepBatch {
  struct Part {
    std::vector<uint64_t> rows;  // row numbers, 0..rows-1
    std::vector<uint64_t> ids;
    std::vector<float> gradients;
  };
  std::array<Part, kTables> parts;
};

// What one occurrence of `row` in a push of `step` adds.
std::array<uint32_t, kColumns> Contribution(uint32_t table, uint64_t row, uint64_t step);

class Workload {
 public:
  explicit Workload(const WorkloadOptions& options) : options_(options) {}

  const WorkloadOptions& options() const { return options_; }
  TableSpec Table(uint32_t table) const;
  uint64_t IdOf(uint32_t table, uint64_t row) const;
  // The rows alone, in the order of the ids.
  void FillRows(uint32_t client, uint64_t step, StepBatch* out) const;
  // Rows, ids and gradients.
  void Fill(uint32_t client, uint64_t step, StepBatch* out) const;

 private:
  WorkloadOptions options_;
};

// Sums of contributions: of each table, row and client, four numbers.
class Ledger {
 public:
  Ledger(const Workload* workload, uint32_t first_client, uint32_t clients);

  void Add(uint32_t client, uint64_t step);
  // The four sums of a client.
  absl::Span<const int64_t> Of(uint32_t table, uint64_t row, uint32_t client) const;
  // The largest sum; beyond 2^24 an fp32 weight is no longer exact.
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

// Explains the difference between what a client's four columns of a row hold and what they should:
// which of its steps would make it up if it were lost, or applied once more. Empty when none alone
// does.
std::string Explain(const Workload& workload, uint32_t table, uint64_t row, uint32_t client,
                    uint64_t last_step, absl::Span<const int64_t> expected,
                    absl::Span<const int64_t> found);

}  // namespace hotbed::checker

#endif  // HOTBED_TESTS_CHECKER_WORKLOAD_H_
