// Ratings in the format of MovieLens 100K: user<TAB>item<TAB>rating<TAB>time (the time is
// optional). There are two fields, users (table 0) and items (table 1), both hashed, so that any
// 64-bit id is valid. The rating is the label.
#ifndef HOTBED_TRAINER_RATINGS_FORMAT_H_
#define HOTBED_TRAINER_RATINGS_FORMAT_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "trainer/batch.h"

namespace hotbed {

FieldLayout RatingsLayout(const std::string& prefix);  // <prefix>_users, <prefix>_items

// Appends one line to the batch; InvalidArgument names the field, then nothing was appended.
absl::Status AppendRatingLine(absl::string_view line, Batch* batch);

}  // namespace hotbed

#endif  // HOTBED_TRAINER_RATINGS_FORMAT_H_
