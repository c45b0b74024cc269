#include "proto/served_bags.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/field_error.h"

namespace hotbed {
namespace {

absl::Status CheckOffsets(absl::string_view table, const ServedBags& bags) {
  if (bags.bags == 0 && bags.ids > 0) {
    return FieldError(table, "offsets", absl::StrCat("empty, and ids has ", bags.ids, " entries"),
                      "the first id of each bag, beginning with 0");
  }
  uint32_t before = 0;
  for (uint32_t b = 0; b < bags.bags; ++b) {
    const uint32_t begin = bags.Begin(b);
    if (b == 0 ? begin == 0 : begin >= before && begin <= bags.ids) {
      before = begin;
      continue;
    }
    return FieldError(
        table, absl::StrCat("offsets[", b, "]"), absl::StrCat(begin),
        b == 0 ? "0, where the first bag begins"
               : absl::StrCat(before, " (the one before) to ", bags.ids, " (the number of ids)"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckServedBags(absl::string_view table, const ServedBags& bags) {
  if (!v1::ServedPooling_IsValid(bags.pooling)) {
    return FieldError(table, "pooling", absl::StrCat(static_cast<int>(bags.pooling)),
                      "0 (rows), 1 (sum), 2 (mean), 3 (max)");
  }
  if (!bags.pooled()) {
    if (bags.bags != 0) {
      return FieldError(table, "pooling", "none, and there are offsets", "sum, mean, max");
    }
    if (bags.weights == nullptr) return absl::OkStatus();
    return FieldError(table, "pooling", "none, and there are weights", "sum, mean");
  }
  if (bags.pooling == v1::SERVED_MAX && bags.weights != nullptr) {
    return FieldError(table, "pooling", "max, and there are weights", "sum, mean");
  }
  for (uint32_t i = 0; bags.weights != nullptr && i < bags.ids; ++i) {
    if (std::isfinite(bags.Weight(i))) continue;
    return FieldError(table, absl::StrCat("weights[", i, "]"), absl::StrCat(bags.Weight(i)),
                      "finite numbers");
  }
  return CheckOffsets(table, bags);
}

}  // namespace hotbed
