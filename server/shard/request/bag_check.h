// Checks the bags of a pooled pull. The streams check the shape before they allocate the answer;
// the shard checks shape and lengths. Pure; any thread.
#ifndef HOTBED_SERVER_SHARD_REQUEST_BAG_CHECK_H_
#define HOTBED_SERVER_SHARD_REQUEST_BAG_CHECK_H_

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "row_math/types.h"

namespace hotbed {

struct BagShape {
  RowPooling pooling = RowPooling::kNone;
  uint32_t ids = 0;
  uint32_t bags = 0;
  bool weighted = false;
  bool arg_max = false;
};

// The error, naming the value and what is allowed; empty: none.
inline std::string BagShapeError(const BagShape& shape, RowType type) {
  if (shape.pooling == RowPooling::kNone) {
    if (shape.bags == 0 && !shape.weighted && !shape.arg_max) return "";
    return absl::StrCat(shape.bags != 0  ? absl::StrCat(shape.bags, " bags")
                        : shape.weighted ? "weights"
                                         : "arg_max",
                        " with pooling none: bags, weights and arg_max are for sum and max");
  }
  if (type == RowType::kInt8) {
    return "pooled rows of type int8: they travel as fp32, fp16 or bf16";
  }
  if (shape.bags == 0 || shape.bags > shape.ids) {
    return absl::StrCat(shape.bags, " bags of ", shape.ids, " ids: allowed are 1 to ", shape.ids,
                        " bags, none of them empty");
  }
  if (shape.pooling == RowPooling::kMax && shape.weighted) {
    return "weights with pooling max: they are for sum";
  }
  if (shape.pooling == RowPooling::kSum && shape.arg_max) {
    return "arg_max with pooling sum: it is for max";
  }
  return "";
}

// The error in the lengths of the bags, naming bag and value; empty: none. There must be
// `shape.bags` lengths, each above 0, that add up to `shape.ids`.
inline std::string BagLengthError(const BagShape& shape, const uint32_t* lengths) {
  if (shape.pooling == RowPooling::kNone) return "";
  uint64_t sum = 0;
  bool empty = false;
  for (uint32_t b = 0; b < shape.bags; ++b) {
    sum += lengths[b];
    empty |= lengths[b] == 0;
  }
  if (!empty && sum == shape.ids) return "";
  sum = 0;
  for (uint32_t b = 0; b < shape.bags; ++b) {
    if (lengths[b] == 0) return absl::StrCat("bag ", b, " has length 0: leave empty bags out");
    sum += lengths[b];
    if (sum > shape.ids) {
      return absl::StrCat("bag ", b, " of length ", lengths[b], " ends at id ", sum, " of ",
                          shape.ids, ": lengths must add up to the number of ids");
    }
  }
  return absl::StrCat("bag ", shape.bags - 1, ", the last, ends at id ", sum, " of ", shape.ids,
                      ": lengths must add up to the number of ids");
}

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_REQUEST_BAG_CHECK_H_
