// Counts the rows of the client's row cache that are older than asked: a second client writes rows
// before each pull, and each row that a pull returns tells by its value when it was written.
#ifndef HOTBED_CLI_BENCH_KEPT_ROWS_H_
#define HOTBED_CLI_BENCH_KEPT_ROWS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "cli/bench/load.h"

namespace hotbed {

struct KeptRowsCheck {
  uint64_t rows = 0;           // that were compared, with duplicates
  uint64_t behind = 0;         // of them: a later version was written before the pull
  uint64_t older = 0;          // of them: it was written more than row_cache_steps steps before
  uint64_t never_written = 0;  // the value was never given to the row
};

// `spec` has a row cache. Writes to the spec's tables.
absl::StatusOr<KeptRowsCheck> CheckKeptRows(const LoadSpec& spec, uint64_t steps);

}  // namespace hotbed

#endif  // HOTBED_CLI_BENCH_KEPT_ROWS_H_
