// A lookup of tables that are cut into parts (proto/served_part.h): which ids each part is asked
// for, and the answer out of theirs. Free of gRPC. Thread-compatible.
#ifndef HOTBED_CLIENT_SERVING_CUT_LOOKUP_H_
#define HOTBED_CLIENT_SERVING_CUT_LOOKUP_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "hotbed/serving.h"
#include "proto/served_part.h"

namespace hotbed {

struct TableCut {
  ServedPlaces places;
  uint32_t parts = 1;
};

class CutLookup {
 public:
  // What one part of one table is asked for.
  struct Piece {
    size_t table = 0;  // of the lookup
    ServedPart part;
    ServingIds asked;
    RowType wire_type = RowType::kFp32;
    // The memory of `asked`, if the table is cut:
    std::vector<uint64_t> ids;
    std::vector<size_t> at;    // where they stand among those of the table
    std::vector<size_t> bags;  // that have ids here, by their numbers
    std::vector<uint32_t> offsets;
    std::vector<float> weights;
  };
  // `cuts` are of the tables, which outlive it. Of the bags of a table that is cut each part makes
  // sums or maxima over its ids, in fp32; they are joined in the order of the parts.
  CutLookup(const std::vector<ServingIds>& tables, const std::vector<TableCut>& cuts,
            RowType wire_type);

  // A table that is not cut has one; others have one per part that has ids, and at least one.
  const std::deque<Piece>& pieces() const { return pieces_; }
  // An answer per table, out of one per piece. A table has the status of its first piece that has
  // another than OK, and then the rows of the others, if any, with ServingRows::known.
  std::vector<ServingRows> Join(std::vector<ServingRows> answers) const;

 private:
  void Cut(size_t table, const TableCut& cut, RowType wire_type);

  const std::vector<ServingIds>& tables_;
  std::deque<Piece> pieces_;  // in the order of their tables; they do not move
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_SERVING_CUT_LOOKUP_H_
