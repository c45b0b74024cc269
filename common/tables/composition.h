// Composed tables: a table whose rows are made of rows of several real tables, its parts, and which
// so takes fewer parameters than ids x dim. The parts are stored, placed, saved and moved as the
// tables that they are; the client makes the rows. Pure functions.
//
// With V rows of dim E:
//   quotient-remainder   NAME/quotient and NAME/remainder. Id i has the rows q = i / n and
//                        r = i mod n; its row is their product, their sum, or (E/2 elements
//                        each) one behind the other.
//   block                NAME/block0, NAME/block1, ...: the ids in order, V / blocks each, the last
//                        with the rest. Rows have b elements; where b < E, NAME/map0, ... (E x b)
//                        makes them rows of E: row * transposed map.
//   frequency            as block, with the ids in the order of NAME/index: its row i is the rank
//                        of id i, as (rank >> 24, rank mod 2^24).
//
// Sources of the formulas: quotient and remainder, Shi et al. 2020 (Compositional Embeddings);
// blocks of several dims, Ginart et al. 2021 (Mixed Dimension Embeddings).
#ifndef HOTBED_COMMON_TABLES_COMPOSITION_H_
#define HOTBED_COMMON_TABLES_COMPOSITION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/tables/table_spec.h"

namespace hotbed {

constexpr uint32_t kBlocksMax = 14;  // two parts each and an index: one transaction drops them
constexpr uint64_t kFrequencyRowsMax = 1ull << 26;  // clients hold 4 bytes for each
constexpr uint64_t kIndexBase = 1ull << 24;         // whole numbers below are exact in fp32

inline bool IsComposed(const TableSpec& spec) {
  return spec.composition.form != ComposeForm::kNone && spec.composition.table.empty();
}
inline bool IsPart(const TableSpec& spec) { return !spec.composition.table.empty(); }

// The rules of TableSpec::composition; the first that is broken, as "FIELD is VALUE, allowed: ...".
absl::Status ValidateComposition(const TableSpec& spec);

// The parts of a composed table, in the order of Composition::part. InvalidArgument: the table, or
// a part of it, is not valid.
absl::StatusOr<std::vector<TableSpec>> PartsOf(const TableSpec& composed);

// The composed table of a part, with the options that its parts share. `parts` are all of them.
TableSpec ComposedOf(absl::Span<const TableSpec> parts);

// The composed tables among `tables`, each as its parts, in the order of the first part. A table
// that lacks a part is left out.
std::vector<std::vector<TableSpec>> ComposedTablesOf(absl::Span<const TableSpec> tables);
// The parts of the one of this name; none: it does not exist, or lacks a part.
std::vector<TableSpec> PartsByName(absl::Span<const TableSpec> tables, const std::string& name);

// Checks tables that are created together: InvalidArgument names a part whose composed table would
// lack another one, or that is not as the composed table needs it.
absl::Status CheckParts(absl::Span<const TableSpec> tables);

// The least n with n * n >= rows.
uint64_t DefaultBuckets(uint64_t rows);

// Where the ids of block `block` of `blocks` begin in the order; RowsOfBlock of them.
uint64_t RowsOfBlock(uint64_t rows, uint32_t blocks, uint32_t block);

// Whether a block has a map: not where its rows have all elements already.
inline bool HasMap(const TableSpec& composed, uint32_t block) {
  return composed.composition.block_dims[block] < composed.dim;
}

// The parameters of the parts that are trained, and those of a plain table less these.
struct Parameters {
  uint64_t plain = 0;
  uint64_t composed = 0;
  int64_t saved() const { return static_cast<int64_t>(plain) - static_cast<int64_t>(composed); }
};
Parameters ParametersOf(const TableSpec& composed, absl::Span<const TableSpec> parts);

// max(2, dim / 2^floor(log2(whole / part))), at most dim: the dim of a block that has `part` of the
// `whole` weight (rows, or occurrences of ids). part 0: the smallest.
uint32_t BlockDim(uint32_t dim, uint64_t whole, uint64_t part);

// Ids in the order of their counts, the most frequent first, equal ones by id; and the dims of
// `blocks` blocks of equal numbers of ids, by their parts of all counts.
struct FrequencyOrder {
  std::vector<uint32_t> ids;  // by rank
  std::vector<uint32_t> block_dims;
};
// InvalidArgument: `blocks` is not 1..kBlocksMax or above the number of ids, which is at most
// kFrequencyRowsMax, or there are no ids.
absl::StatusOr<FrequencyOrder> OrderByFrequency(absl::Span<const uint64_t> counts, uint32_t dim,
                                                uint32_t blocks);

}  // namespace hotbed

#endif  // HOTBED_COMMON_TABLES_COMPOSITION_H_
