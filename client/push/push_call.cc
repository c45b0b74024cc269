#include "client/push/push_call.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/batch/split.h"

namespace hotbed {

void PushPart::DropThrough(uint64_t last_seq) {
  if (last_seq < first_seq || last_seq >= seq) return;
  const uint64_t dropped = (last_seq - first_seq + 1) * RowsPerNumber(columns);
  const uint64_t row_bytes = gradients.size / rows;
  ids.data += 8 * dropped;
  ids.size -= 8 * dropped;
  gradients.data += row_bytes * dropped;
  gradients.size -= row_bytes * dropped;
  rows -= static_cast<uint32_t>(dropped);
  first_seq = last_seq + 1;
}

absl::Status PushPart::EndOf(const absl::Status& status) const {
  if (!maybe_applied) return status;
  return absl::UnknownError(
      absl::StrCat(status.message(),
                   "; an earlier send of it was not answered, so it may have been applied, and no "
                   "shard will tell"));
}

PushResult PushCall::Result() const {
  PushResult result;
  result.step = step;
  result.ticket = ticket;
  result.shards = refused;
  result.staged =
      !options.assign && std::any_of(parts.begin(), parts.end(), [](const PushPart& part) {
        return IsSynchronous(part.table->options());
      });
  if (!refused.empty()) {
    const auto open = std::find_if(refused.begin(), refused.end(), [](const PushResult::Shard& s) {
      return absl::IsUnknown(s.status);
    });
    result.outcome =
        open == refused.end() ? PushResult::Outcome::kFailed : PushResult::Outcome::kIndeterminate;
    result.status = open == refused.end() ? refused.front().status : open->status;
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
