#include "client/net/transport.h"

#include <algorithm>
#include <utility>

#include "absl/time/time.h"
#include "common/check.h"
#include "common/threads/await_for.h"

namespace hotbed {

void OutgoingMessage::Bulk::Append(const BufferRef& owner, const char* data, size_t size) {
  if (!pieces.empty() && pieces.back().data + pieces.back().size == data) {
    pieces.back().size += size;
  } else {
    pieces.push_back({owner, data, size});
  }
}

uint64_t OutgoingMessage::Bytes() const {
  uint64_t bytes = header.size();
  for (const Bulk& field : bulk) {
    for (const BytesRef& piece : field.pieces) bytes += piece.size;
  }
  return bytes;
}

void OutgoingMessage::Join(OutgoingMessage other) {
  HOTBED_DCHECK(join_key == other.join_key && bulk.size() == other.bulk.size());
  // Serialized messages that stand one after another are one message: repeated fields add up.
  header += other.header;
  segments += other.segments;
  row_bytes += other.row_bytes;
  deadline_ms =
      deadline_ms == 0 || other.deadline_ms == 0 ? 0 : std::max(deadline_ms, other.deadline_ms);
  for (size_t i = 0; i < bulk.size(); ++i) {
    for (BytesRef& piece : other.bulk[i].pieces) bulk[i].pieces.push_back(std::move(piece));
  }
}

bool Transport::AwaitAnswers(const Clock* clock, absl::Mutex* mu, const absl::Condition& condition,
                             int64_t deadline_ns) {
  const std::shared_ptr<WaitDriver> sleeping = driver();
  const int64_t left_ns = std::max<int64_t>(deadline_ns - clock->NowNs(), 0);
  if (sleeping != nullptr) sleeping->Sleeps(true);
  const bool holds = AwaitFor(mu, condition, absl::Nanoseconds(left_ns));
  if (sleeping != nullptr) sleeping->Sleeps(false);
  return holds;
}

}  // namespace hotbed
