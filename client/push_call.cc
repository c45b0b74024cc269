#include "client/push_call.h"

#include "absl/strings/str_cat.h"

namespace hotbed {

PushResult PushCall::Result() const {
  PushResult result;
  result.step = step;
  result.ticket = ticket;
  result.shards = refused;
  if (!refused.empty()) {
    result.outcome = PushResult::Outcome::kFailed;
    result.status = refused.front().status;
  }
  if (parts_left == 0) return result;
  for (const PushPart& part : parts) {
    if (part.done) continue;
    result.shards.push_back({part.table->name(), part.shard, part.seq,
                             absl::UnknownError("not answered yet: it may be applied")});
  }
  result.outcome = PushResult::Outcome::kIndeterminate;
  result.status = absl::DeadlineExceededError(
      absl::StrCat("push of step ", step, ": ", parts_left, " of ", parts.size(),
                   " parts were not answered in time; Client::Retry goes on asking",
                   last_error.ok() ? "" : absl::StrCat("; last: ", last_error.message())));
  return result;
}

}  // namespace hotbed
