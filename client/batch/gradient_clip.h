// Clipping of a push by norms, and the division of a mean over trainers.
//
// The order is: gradient_scale; the sum of duplicates; clip_global_norm over all tables;
// clip_slice_norm of each column slice of a table that has it; 1 / trainers of a table of
// gradient_reduction mean. The steps after the sum are one fp32 product per element, by a scale
// that is computed in double precision and rounded once.
//
// A norm is the square root of the rows' squares (client/rows/row_sums.h), added up in double
// precision in the order of first appearance, table by table. It is the same for every set of
// shards.
#ifndef HOTBED_CLIENT_BATCH_GRADIENT_CLIP_H_
#define HOTBED_CLIENT_BATCH_GRADIENT_CLIP_H_

#include <vector>

#include "absl/types/span.h"
#include "client/batch/batch_plan.h"
#include "client/batch/gradient_sum.h"

namespace hotbed {

// Sets (*out)[g] for each group g: the scales, and the rows where a norm was needed. `out` keeps
// its memory.
void ClipGradients(absl::Span<const TableGroup> groups, float clip_global_norm, uint32_t trainers,
                   GradientSum* sum, std::vector<SummedGradients>* out);

// The sum of the squares of `columns` columns, from column `first` on, of `count` rows of `dim`
// floats. Rows whose squares are not finite are left out.
double SquaresOfRows(const float* rows, uint64_t count, uint32_t dim, uint32_t first,
                     uint32_t columns);

// The factor that reduces a gradient of this norm to the norm `clip`: 1 where the norm is not
// larger, or where clip is 0.
double ClipScale(double norm, float clip);

}  // namespace hotbed

#endif  // HOTBED_CLIENT_BATCH_GRADIENT_CLIP_H_
