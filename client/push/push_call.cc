#include "client/push/push_call.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "client/batch/split.h"
#include "client/net/call_trace.h"

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

PushPart PushPart::OfRows(uint32_t of_shard, absl::FunctionRef<bool(uint64_t id)> wanted) const {
  PushPart part = *this;
  part.shard = of_shard;
  part.first_seq = seq;
  part.in_flight = part.done = false;
  const auto* const from_ids = reinterpret_cast<const uint64_t*>(ids.data);
  const uint64_t row_bytes = rows == 0 ? 0 : gradients.size / rows;
  part.rows = static_cast<uint32_t>(std::count_if(from_ids, from_ids + rows, wanted));
  part.buffer = &call->buffers.emplace_back(BufferRef::Allocate(part.rows * (8 + row_bytes)));
  char* const to_ids = part.buffer->data();
  char* const to_gradients = to_ids + 8ull * part.rows;
  uint64_t kept = 0;
  for (uint32_t i = 0; i < rows; ++i) {
    if (!wanted(from_ids[i])) continue;
    std::memcpy(to_ids + 8 * kept, &from_ids[i], 8);
    std::memcpy(to_gradients + row_bytes * kept, gradients.data + row_bytes * i, row_bytes);
    ++kept;
  }
  part.ids = {to_ids, 8ull * part.rows};
  part.gradients = {to_gradients, row_bytes * part.rows};
  return part;
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
  result.staged = !options.assign && !deletes &&
                  std::any_of(parts.begin(), parts.end(), [](const PushPart& part) {
                    return IsSynchronous(part.table->options());
                  });
  if (!refused.empty()) {
    const auto open = std::find_if(refused.begin(), refused.end(), [](const PushResult::Shard& s) {
      return absl::IsUnknown(s.status);
    });
    result.outcome =
        open == refused.end() ? PushResult::Outcome::kFailed : PushResult::Outcome::kIndeterminate;
    result.status =
        InTrace(open == refused.end() ? refused.front().status : open->status, traceparent);
  }
  if (parts_left == 0) return result;
  const auto add_open = [&result](const PushPart& part) {
    if (part.done) return;
    result.shards.push_back({part.table->name(), part.shard, part.seq,
                             absl::UnknownError("not answered yet: it may be applied")});
  };
  std::for_each(parts.begin(), parts.end(), add_open);
  std::for_each(cut_parts.begin(), cut_parts.end(), add_open);
  result.outcome = PushResult::Outcome::kIndeterminate;
  const absl::Status late = absl::DeadlineExceededError(
      absl::StrCat("push of step ", step, ": ", parts_left, " of ", parts.size() + cut_parts.size(),
                   " parts were not answered in time; Client::Retry goes on asking",
                   last_error.ok() ? "" : absl::StrCat("; last: ", last_error.message())));
  result.status = InTrace(late, traceparent);
  return result;
}

}  // namespace hotbed
