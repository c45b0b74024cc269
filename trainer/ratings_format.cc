#include "trainer/ratings_format.h"

#include <cmath>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace hotbed {

FieldLayout RatingsLayout(const std::string& prefix) {
  return {{prefix + "_users", prefix + "_items"}, {0, 1}};
}

absl::Status AppendRatingLine(absl::string_view line, Batch* batch) {
  if (absl::EndsWith(line, "\r")) line.remove_suffix(1);
  const std::vector<absl::string_view> columns = absl::StrSplit(line, '\t');
  if (columns.size() != 3 && columns.size() != 4) {
    return absl::InvalidArgumentError(absl::StrCat(
        columns.size(), " columns where user<TAB>item<TAB>rating<TAB>time are expected"));
  }
  uint64_t user, item;
  float rating;
  if (!absl::SimpleAtoi(columns[0], &user)) {
    return absl::InvalidArgumentError(absl::StrCat("user is '", columns[0], "': not a 64-bit id"));
  }
  if (!absl::SimpleAtoi(columns[1], &item)) {
    return absl::InvalidArgumentError(absl::StrCat("item is '", columns[1], "': not a 64-bit id"));
  }
  if (!absl::SimpleAtof(columns[2], &rating) || !std::isfinite(rating)) {
    return absl::InvalidArgumentError(
        absl::StrCat("rating is '", columns[2], "': not a finite number"));
  }
  batch->ids[0].push_back(user);
  batch->ids[1].push_back(item);
  batch->labels.push_back(rating);
  return absl::OkStatus();
}

}  // namespace hotbed
