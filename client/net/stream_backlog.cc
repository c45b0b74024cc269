#include "client/net/stream_backlog.h"

#include <algorithm>
#include <utility>

#include "client/net/message_limits.h"
#include "common/check.h"

namespace hotbed {

uint64_t StreamBacklog::Add(OutgoingMessage message, std::shared_ptr<PendingRequest> request) {
  const uint64_t sent = message.Bytes();
  const uint64_t bytes = std::max(sent, message.reply_bytes);
  waiting_.push_back({std::move(message), std::move(request), bytes});
  bytes_waiting_ += bytes;
  return sent;
}

void StreamBacklog::PopWaiting() {
  HOTBED_DCHECK(bytes_waiting_ >= waiting_.front().bytes);
  bytes_waiting_ -= waiting_.front().bytes;
  waiting_.pop_front();
}

void StreamBacklog::DropAbandoned(RequestList* dropped) {
  while (!waiting_.empty() && waiting_.front().request->Abandoned()) {
    dropped->push_back(std::move(waiting_.front().request));
    PopWaiting();
  }
}

StreamBacklog::Next StreamBacklog::Decide() const {
  if (waiting_.empty()) return Next::kNothing;
  const Queued& next = waiting_.front();
  const bool fits = in_flight_.empty() || (in_flight_.size() < window_messages_ &&
                                           bytes_in_flight_ + next.bytes <= window_bytes_);
  if (!fits) return Next::kNothing;
  if (overdue_ || next.message.join_key == 0 || in_flight_.size() < kBusyMessages ||
      bytes_waiting_ + next.bytes > joined_bytes_now_) {
    return Next::kWrite;
  }
  return Next::kHold;
}

bool StreamBacklog::MayJoin(const InFlight& open, uint64_t key) const {
  if (key == 0 || waiting_.empty()) return false;
  const Queued& next = waiting_.front();
  return next.message.join_key == key && open.bytes + next.bytes <= joined_bytes_now_ &&
         bytes_in_flight_ + open.bytes + next.bytes <= window_bytes_ &&
         open.segments + next.message.segments <= kSegmentsPerMessageMax &&
         !next.request->Abandoned();
}

uint64_t StreamBacklog::Take(OutgoingMessage* message) {
  HOTBED_CHECK(!waiting_.empty()) << "a stream has nothing to write";
  InFlight open;
  const uint64_t key = waiting_.front().message.join_key;
  do {
    Queued& next = waiting_.front();
    open.bytes += next.bytes;
    open.segments += next.message.segments;
    open.requests.push_back(
        {std::move(next.request), next.message.segments, next.message.row_bytes});
    if (open.requests.size() == 1) {
      *message = std::move(next.message);
    } else {
      message->Join(std::move(next.message));
    }
    PopWaiting();
  } while (MayJoin(open, key));
  const uint64_t number = next_number_++;
  bytes_in_flight_ += open.bytes;
  in_flight_[number] = std::move(open);
  overdue_ = false;
  return number;
}

bool StreamBacklog::EndHold() {
  if (next_number_ != held_number_) return false;
  overdue_ = true;
  return true;
}

StreamBacklog::Requests StreamBacklog::Answered(uint64_t number) {
  const auto it = in_flight_.find(number);
  if (it == in_flight_.end()) return {};
  Requests requests = std::move(it->second.requests);
  HOTBED_DCHECK(bytes_in_flight_ >= it->second.bytes);
  bytes_in_flight_ -= it->second.bytes;
  in_flight_.erase(it);
  return requests;
}

void StreamBacklog::TakeHello(const v1::Hello& hello) {
  if (hello.messages_in_flight_max() != 0) window_messages_ = hello.messages_in_flight_max();
  if (hello.bytes_in_flight_max() != 0) window_bytes_ = hello.bytes_in_flight_max();
  const uint64_t theirs = hello.message_bytes_max();
  const uint64_t payload = theirs > kMessageFrameBytes ? theirs - kMessageFrameBytes : 0;
  joined_bytes_now_ = theirs == 0 ? joined_bytes_max_ : std::min(joined_bytes_max_, payload);
}

void StreamBacklog::TakeAll(RequestList* lost, RequestList* unsent) {
  std::vector<uint64_t> numbers;
  for (const auto& [number, open] : in_flight_) numbers.push_back(number);
  std::sort(numbers.begin(), numbers.end());
  for (const uint64_t number : numbers) {
    for (Joined& joined : in_flight_[number].requests) lost->push_back(std::move(joined.request));
  }
  for (Queued& queued : waiting_) unsent->push_back(std::move(queued.request));
  in_flight_.clear();
  bytes_in_flight_ = 0;
  waiting_.clear();
  bytes_waiting_ = 0;
}

}  // namespace hotbed
