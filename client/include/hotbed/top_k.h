// The rows of a table that are nearest to a vector, exactly (docs/topk.md):
//
//   auto nearest = hotbed::TopK(client.get(), *table, vector, 100,
//                               {.metric = hotbed::RowMetric::kCosine});
//   for (const hotbed::ScoredRow& row : (*nearest)[0]) Use(row.id, row.score);
//
// The rows are those that were ever pushed. A row's score is computed in fp64 from its weights as
// they are stored, by the formulas of row_math/nearness.h, which state the order of the sums: so
// the answer depends on no shard, server, tier or processor. With dot and cosine the largest scores
// come first, with l2 (the square of the distance) the smallest; rows of equal scores are in the
// order of their ids. A row whose score is no number, because it has an element that is infinite or
// no number, comes after all others. The cosine with a row or vector of zeros is 0.
//
// Servers read all rows of the table, while pushes go on: each row counts with a value that it had
// during the call, and pushes that were acknowledged before are seen.
#ifndef HOTBED_TOP_K_H_
#define HOTBED_TOP_K_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/scored_row.h"
#include "hotbed/client.h"
#include "row_math/metric.h"

namespace hotbed {

constexpr uint32_t kTopKMax = 16'384;
constexpr size_t kTopKVectorsMax = 1'024;
constexpr size_t kTopKRowsMax = 1'048'576;  // k times vectors
constexpr size_t kTopKIdsMax = 1'000'000;

struct TopKOptions {
  RowMetric metric = RowMetric::kDot;
  // Only these ids, at most kTopKIdsMax; those that have no row are passed over.
  std::optional<absl::Span<const uint64_t>> only_ids;
  uint64_t first_id = 0;  // rows of other ids are passed over
  uint64_t last_id = ~uint64_t{0};
  absl::Duration deadline = absl::ZeroDuration();  // zero: the client's
};

// Per vector the `k` nearest rows, or all if there are fewer. `vectors` has up to kTopKVectorsMax
// vectors of the table's dim, one after another. Blocks. InvalidArgument names the argument, its
// value and the limit; a table with column slices is refused, as no server has whole rows of it.
absl::StatusOr<std::vector<std::vector<ScoredRow>>> TopK(Client* client, const Table* table,
                                                         absl::Span<const float> vectors,
                                                         uint32_t k,
                                                         const TopKOptions& options = {});

}  // namespace hotbed

#endif  // HOTBED_TOP_K_H_
