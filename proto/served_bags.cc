#include "proto/served_bags.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace hotbed {
namespace {

template <typename... Text>
absl::Status Bad(absl::string_view table, const Text&... text) {
  return absl::InvalidArgumentError(absl::StrCat(table, ": ", text...));
}

absl::Status CheckOffsets(absl::string_view table, const ServedBags& bags) {
  if (bags.bags == 0 && bags.ids > 0) {
    return Bad(table, "offsets is empty, and ids has ", bags.ids,
               " entries; give the first id of each bag, beginning with 0");
  }
  uint32_t before = 0;
  for (uint32_t b = 0; b < bags.bags; ++b) {
    const uint32_t begin = bags.Begin(b);
    if (b == 0 ? begin == 0 : begin >= before && begin <= bags.ids) {
      before = begin;
      continue;
    }
    return Bad(
        table, "offsets[", b, "] is ", begin, "; allowed: ",
        b == 0 ? "0, where the first bag begins"
               : absl::StrCat(before, " (the one before) to ", bags.ids, " (the number of ids)"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckServedBags(absl::string_view table, const ServedBags& bags) {
  if (!v1::ServedPooling_IsValid(bags.pooling)) {
    return Bad(table, "pooling is ", static_cast<int>(bags.pooling),
               "; allowed: 0 (rows), 1 (sum), 2 (mean), 3 (max)");
  }
  if (!bags.pooled()) {
    if (bags.bags != 0) return Bad(table, "offsets without pooling; allowed with sum, mean, max");
    if (bags.weights != nullptr)
      return Bad(table, "weights without pooling; allowed with sum, mean");
    return absl::OkStatus();
  }
  if (bags.pooling == v1::SERVED_MAX && bags.weights != nullptr) {
    return Bad(table, "weights with pooling max; allowed with sum, mean");
  }
  for (uint32_t i = 0; bags.weights != nullptr && i < bags.ids; ++i) {
    if (std::isfinite(bags.Weight(i))) continue;
    return Bad(table, "weights[", i, "] is ", bags.Weight(i), "; allowed: finite numbers");
  }
  return CheckOffsets(table, bags);
}

}  // namespace hotbed
