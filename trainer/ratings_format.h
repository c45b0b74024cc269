// Ratings as MovieLens 100K has them: user<TAB>item<TAB>rating<TAB>time (the time may be left out).
// Two fields: users (table 0) and items (table 1), both hashed, so any 64-bit id will do. The
// rating is the label.
#ifndef HOTBED_TRAINER_RATINGS_FORMAT_H_
#define HOTBED_TRAINER_RATINGS_FORMAT_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "trainer/batch.h"

namespace hotbed {

FieldLayout RatingsLayout(const std::string& prefix);  // <prefix>_users, <prefix>_items

// Appends one line to the batch; InvalidArgument names the field, and nothing was appended then.
absl::Status AppendRatingLine(absl::string_view line, Batch* batch);

}  // namespace hotbed

#endif  // HOTBED_TRAINER_RATINGS_FORMAT_H_
