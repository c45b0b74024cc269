#include "client/batch/gradient_clip.h"

#include <algorithm>
#include <cmath>

#include "client/rows/row_sums.h"

namespace hotbed {
namespace {

// A synchronous table divides by the number of trainers of each commit itself.
bool DividesByTrainers(const TableSpec& table) {
  return table.gradient_reduction == GradientReduction::kMean && !IsSynchronous(table);
}

}  // namespace

double SquaresOfRows(const float* rows, uint64_t count, uint32_t dim, uint32_t first,
                     uint32_t columns) {
  const RowSums& sums = BestRowSums();
  double total = 0;
  for (uint64_t r = 0; r < count; ++r) {
    const double squares = sums.squares(rows + r * dim + first, columns);
    if (std::isfinite(squares)) total += squares;
  }
  return total;
}

double ClipScale(double norm, float clip) {
  return clip > 0 && norm > clip ? static_cast<double>(clip) / norm : 1.0;
}

void ClipGradients(absl::Span<const TableGroup> groups, float clip_global_norm, uint32_t trainers,
                   GradientSum* sum, std::vector<SummedGradients>* out) {
  if (out->size() < groups.size()) out->resize(groups.size());
  double squares = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    const TableSpec& table = groups[g].table->options();
    SummedGradients& of_table = (*out)[g];
    const uint64_t rows = groups[g].ids.unique.size();
    const bool needs_norm = clip_global_norm > 0 || table.clip_slice_norm > 0;
    of_table.rows.resize(needs_norm ? rows * table.dim : 0);
    if (!needs_norm) continue;
    sum->SumAll(groups[g], groups[g].table->dim(), of_table.rows.data());
    if (clip_global_norm > 0) {
      squares += SquaresOfRows(of_table.rows.data(), rows, table.dim, 0, table.dim);
    }
  }
  const double global = ClipScale(std::sqrt(squares), clip_global_norm);
  for (size_t g = 0; g < groups.size(); ++g) {
    const TableSpec& table = groups[g].table->options();
    SummedGradients& of_table = (*out)[g];
    const double mean = DividesByTrainers(table) ? 1.0 / trainers : 1.0;
    of_table.scale_of_slice.clear();
    for (uint32_t s = 0; s < table.column_slices; ++s) {
      double slice = 1.0;
      if (table.clip_slice_norm > 0) {
        const ColumnRange slice_columns = SliceColumns(table.dim, table.column_slices, s);
        const double norm =
            std::sqrt(SquaresOfRows(of_table.rows.data(), groups[g].ids.unique.size(), table.dim,
                                    slice_columns.first, slice_columns.columns()));
        slice = ClipScale(global * norm, table.clip_slice_norm);
      }
      of_table.scale_of_slice.push_back(static_cast<float>(global * slice * mean));
    }
  }
}

}  // namespace hotbed
