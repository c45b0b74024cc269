// Sizes of tables by formula: rows x dim x bytes, and those of two ways to store an embedding in
// less. Pure functions.
#ifndef HOTBED_COMMON_TABLES_TABLE_SIZE_H_
#define HOTBED_COMMON_TABLES_TABLE_SIZE_H_

#include <algorithm>
#include <cstdint>

#include "common/tables/table_spec.h"

namespace hotbed {

struct TableSize {
  uint64_t weight_bytes = 0;
  uint64_t state_bytes = 0;  // of the optimizer
  uint64_t bytes() const { return weight_bytes + state_bytes; }
};

// `rows` rows of columns [first, limit), a shard's or all.
constexpr TableSize SizeOfRows(const TableSpec& spec, uint64_t rows, uint32_t columns) {
  return {rows * columns * BytesPerWeight(spec.weight_type),
          rows * StateBytes(spec.optimizer, columns)};
}
inline TableSize SizeOfTable(const TableSpec& spec, uint64_t rows) {
  return {rows * spec.weight_bytes_per_row(), rows * spec.state_bytes_per_row()};
}

// Low rank (block embedding): rows of `block_dim`, and a dim x block_dim matrix without bias in
// each of `parts` that turns them into rows of `dim`. No matrix if the dims are equal.
constexpr uint64_t BlockElements(uint64_t rows, uint64_t dim, uint64_t block_dim, uint64_t parts) {
  return rows * block_dim + (block_dim == dim ? 0 : parts * block_dim * dim);
}

// Quotient and remainder: id i is row i / n of one table and row i % n of another.
constexpr uint64_t QuotientRows(uint64_t rows, uint64_t n) { return (rows + n - 1) / n; }
constexpr uint64_t QuotientRemainderElements(uint64_t rows, uint64_t dim, uint64_t n) {
  return (QuotientRows(rows, n) + n) * dim;
}
// The usual n: the root of the rows, rounded up.
constexpr uint64_t UsualQuotient(uint64_t rows) {
  uint64_t low = 1, high = uint64_t{1} << 32;
  while (low < high) {
    const uint64_t middle = low + (high - low) / 2;
    if (middle * middle >= rows) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

}  // namespace hotbed

#endif  // HOTBED_COMMON_TABLES_TABLE_SIZE_H_
