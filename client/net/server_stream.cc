#include "client/net/server_stream.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/net/client_context.h"
#include "common/check.h"

namespace hotbed {
namespace {

const char* MethodOf(Lane lane) {
  return lane == Lane::kPush ? "/hotbed.v1.Data/Push" : "/hotbed.v1.Data/Pull";
}

void ReleaseBuffer(void* buffer) { BufferRef::Adopt(buffer); }

}  // namespace

grpc::ByteBuffer ToByteBuffer(const std::string& prefix, OutgoingMessage message) {
  std::string head;
  AppendBulkTag(v1::PullRequest::kHeaderFieldNumber, prefix.size() + message.header.size(), &head);
  head += prefix;
  head += message.header;
  absl::InlinedVector<grpc::Slice, 8> slices;
  for (OutgoingMessage::Bulk& bulk : message.bulk) {
    uint64_t bytes = 0;
    for (const BytesRef& piece : bulk.pieces) bytes += piece.size;
    AppendBulkTag(static_cast<int>(bulk.field), bytes, &head);
    slices.emplace_back(head);
    head.clear();
    for (BytesRef& piece : bulk.pieces) {
      slices.emplace_back(const_cast<char*>(piece.data), piece.size, ReleaseBuffer,
                          piece.owner.Release());
    }
  }
  if (!head.empty()) slices.emplace_back(head);
  return grpc::ByteBuffer(slices.data(), slices.size());
}

absl::Status ReceivedMessage::Parse(const grpc::ByteBuffer& buffer) {
  slices_.clear();
  const grpc::Status dumped = buffer.Dump(&slices_);
  if (!dumped.ok()) return absl::InternalError(dumped.error_message());
  fragments_.clear();
  for (const grpc::Slice& slice : slices_) fragments_.emplace_back(slice.begin(), slice.size());
  return ParsePullReply(fragments_, &view_);
}

absl::Status ToStatus(const grpc::Status& status, const std::string& address) {
  if (status.ok()) {
    return absl::UnavailableError(absl::StrCat("server ", address, " ended the stream"));
  }
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      absl::StrCat("server ", address, ": ", status.error_message()));
}

void NoteMessageBytesMax(uint64_t bytes, GrpcCounters* counters) {
  uint64_t least = counters->message_bytes_max.load(std::memory_order_relaxed);
  while (bytes != 0 && (least == 0 || bytes < least) &&
         !counters->message_bytes_max.compare_exchange_weak(least, bytes)) {
  }
}

ServerStream::ServerStream(std::string address, Lane lane, v1::Hello hello, grpc::GenericStub* stub,
                   grpc::CompletionQueue* queue, GrpcCounters* counters, LiveCount* live,
                   uint64_t joined_bytes_max)
    : address_(std::move(address)),
      lane_(lane),
      hello_(std::move(hello)),
      stub_(stub),
      queue_(queue),
      counters_(counters),
      live_(live),
      joined_bytes_max_(joined_bytes_max) {
  HOTBED_CHECK(lane != Lane::kLookup) << "lookups are unary";
  start_event_.op = Op::kStart;
  write_event_.op = Op::kWrite;
  hold_event_.op = Op::kHold;
  read_event_.op = Op::kRead;
  finish_event_.op = Op::kFinish;
  for (Event* e : {&start_event_, &write_event_, &hold_event_, &read_event_, &finish_event_}) {
    e->lane = this;
  }
}

ServerStream::Event* ServerStream::Arm(Event* event) {
  self_.push_back(shared_from_this());
  return event;
}

void ServerStream::Start() {
  live_->Add();
  absl::MutexLock lock(&mu_);
  stream_ = stub_->PrepareCall(&context_, MethodOf(lane_), queue_);
  stream_->StartCall(Arm(&start_event_));
}

void ServerStream::Event::Run(bool ok) {
  std::shared_ptr<ServerStream> keep;
  {
    absl::MutexLock lock(&lane->mu_);
    keep = std::move(lane->self_.back());
    lane->self_.pop_back();
  }
  switch (op) {
    case Op::kStart:
      return keep->OnStart(ok);
    case Op::kWrite:
      return keep->OnWrite(ok);
    case Op::kHold:
      return keep->OnHold();
    case Op::kRead:
      return keep->OnRead(ok);
    case Op::kFinish:
      return keep->OnFinish();
  }
}

bool ServerStream::Send(OutgoingMessage* message, std::shared_ptr<PendingRequest>* request) {
  absl::MutexLock lock(&mu_);
  if (failed_) return false;
  uint64_t bytes = message->header.size();
  for (const auto& bulk : message->bulk) {
    for (const BytesRef& piece : bulk.pieces) bytes += piece.size;
  }
  counters_->bytes_sent.fetch_add(bytes, std::memory_order_relaxed);
  bytes = std::max(bytes, message->reply_bytes);
  waiting_.push_back({std::move(*message), std::move(*request), bytes});
  bytes_waiting_ += bytes;
  Pump(nullptr);
  return true;
}

bool ServerStream::MayJoin(const Open& open, uint64_t key) const {
  if (key == 0 || waiting_.empty()) return false;
  const Queued& next = waiting_.front();
  return next.message.join_key == key && open.bytes + next.bytes <= joined_bytes_now_ &&
         bytes_open_ + open.bytes + next.bytes <= window_bytes_ &&
         open.segments + next.message.segments <= kSegmentsPerMessageMax &&
         !next.request->Abandoned();
}

ServerStream::Open ServerStream::TakeJoined(OutgoingMessage* message) {
  Open open;
  const uint64_t key = waiting_.front().message.join_key;
  do {
    Queued& next = waiting_.front();
    open.bytes += next.bytes;
    bytes_waiting_ -= next.bytes;
    open.segments += next.message.segments;
    open.requests.push_back({std::move(next.request), next.message.segments});
    if (open.requests.size() == 1) {
      *message = std::move(next.message);
    } else {
      // Serialized messages that stand one after another are one message: segments add up.
      message->header += next.message.header;
      message->deadline_ms = message->deadline_ms == 0 || next.message.deadline_ms == 0
                                 ? 0
                                 : std::max(message->deadline_ms, next.message.deadline_ms);
      for (size_t i = 0; i < message->bulk.size(); ++i) {
        for (BytesRef& piece : next.message.bulk[i].pieces) {
          message->bulk[i].pieces.push_back(std::move(piece));
        }
      }
    }
    waiting_.pop_front();
  } while (MayJoin(open, key));
  return open;
}

void ServerStream::Pump(Cancelled* cancelled) {
  while (started_ && !failed_ && !writing_ && !waiting_.empty()) {
    Queued& next = waiting_.front();
    if (cancelled != nullptr && next.request->Abandoned()) {
      cancelled->push_back(std::move(next.request));
      bytes_waiting_ -= next.bytes;
      waiting_.pop_front();
      continue;
    }
    const bool room = open_.empty() || (open_.size() < window_messages_ &&
                                        bytes_open_ + next.bytes <= window_bytes_);
    if (!room || HoldsBack(next)) return;
    OutgoingMessage message;
    Open open = TakeJoined(&message);
    v1::PullHeader prefix;  // a PushHeader has the same fields but the deadline
    const uint64_t request = next_request_++;
    prefix.set_request(request);
    if (request == 1) *prefix.mutable_hello() = hello_;
    if (lane_ == Lane::kPull) prefix.set_deadline_ms(message.deadline_ms);
    const grpc::ByteBuffer buffer = ToByteBuffer(prefix.SerializeAsString(), std::move(message));
    bytes_open_ += open.bytes;
    open_[request] = std::move(open);
    writing_ = true;
    overdue_ = false;
    counters_->messages.fetch_add(1, std::memory_order_relaxed);
    stream_->Write(buffer, Arm(&write_event_));
  }
}

bool ServerStream::HoldsBack(const Queued& next) {
  if (overdue_ || next.message.join_key == 0 || open_.size() < kBusyMessages ||
      bytes_waiting_ + next.bytes > joined_bytes_now_) {
    return false;
  }
  if (!holding_) SetHoldAlarm();
  return true;
}

void ServerStream::SetHoldAlarm() {
  holding_ = true;
  held_request_ = next_request_;
  hold_alarm_.Set(queue_, std::chrono::system_clock::now() + kHoldMax, Arm(&hold_event_));
}

void ServerStream::Fail() {
  failed_ = true;
  if (writing_ || reading_ || finishing_) return;
  finishing_ = true;
  stream_->Finish(&finish_status_, Arm(&finish_event_));
}

void ServerStream::OnStart(bool ok) {
  Cancelled cancelled;
  {
    absl::MutexLock lock(&mu_);
    started_ = ok;
    if (!ok || failed_) {
      Fail();
    } else {
      reading_ = true;
      stream_->Read(&incoming_, Arm(&read_event_));
      Pump(&cancelled);
    }
  }
  for (auto& request : cancelled) request->NotSent(absl::CancelledError("nobody waits"));
}

void ServerStream::OnWrite(bool ok) {
  Cancelled cancelled;
  {
    absl::MutexLock lock(&mu_);
    writing_ = false;
    if (!ok || failed_) {
      Fail();
    } else {
      Pump(&cancelled);
    }
  }
  for (auto& request : cancelled) request->NotSent(absl::CancelledError("nobody waits"));
}

void ServerStream::OnHold() {
  Cancelled cancelled;
  {
    absl::MutexLock lock(&mu_);
    holding_ = false;
    if (failed_ || waiting_.empty()) return;
    if (next_request_ != held_request_) return SetHoldAlarm();  // these came later
    overdue_ = true;
    Pump(&cancelled);
  }
  for (auto& request : cancelled) request->NotSent(absl::CancelledError("nobody waits"));
}

void ServerStream::OnRead(bool ok) {
  grpc::ByteBuffer buffer;
  {
    absl::MutexLock lock(&mu_);
    reading_ = false;
    if (!ok) return Fail();
    buffer.Swap(&incoming_);
    // Before the work on this one: another thread may take the next. Also after a failed write:
    // answers may still stand in the stream, and gRPC tells how it ended only once they are read.
    reading_ = true;
    stream_->Read(&incoming_, Arm(&read_event_));
  }
  Dispatch(buffer);
}

void ServerStream::DeliverReply(const ReceivedMessage& message, absl::Span<const Joined> requests) {
  const v1::ReplyHeader& header = message.header();
  const uint32_t answered = static_cast<uint32_t>(header.segments_size());
  Reply reply = message.reply();
  for (const Joined& joined : requests) {
    // A reply too short for what was asked shows as a wrong count.
    reply.segment_count = std::min(joined.segments, answered - reply.segment_first);
    const bool last = &joined == &requests.back();
    if (last && reply.segment_first + reply.segment_count != answered) {
      reply.segment_count = answered - reply.segment_first;
    }
    joined.request->Done(absl::OkStatus(), &reply);
    for (uint32_t i = 0; i < reply.segment_count; ++i) {
      reply.row_bytes_before +=
          header.segments(static_cast<int>(reply.segment_first + i)).row_bytes();
    }
    reply.segment_first += reply.segment_count;
  }
}

void ServerStream::OnHello(const v1::Hello& hello) {
  if (hello.messages_in_flight_max() != 0) window_messages_ = hello.messages_in_flight_max();
  if (hello.bytes_in_flight_max() != 0) window_bytes_ = hello.bytes_in_flight_max();
  NoteMessageBytesMax(hello.message_bytes_max(), counters_);
  const uint64_t theirs = hello.message_bytes_max();
  const uint64_t room = theirs > kMessageFrameBytes ? theirs - kMessageFrameBytes : 0;
  joined_bytes_now_ = theirs == 0 ? joined_bytes_max_ : std::min(joined_bytes_max_, room);
}

void ServerStream::Dispatch(const grpc::ByteBuffer& buffer) {
  thread_local ReceivedMessage message;
  counters_->bytes_received.fetch_add(buffer.Length(), std::memory_order_relaxed);
  const absl::Status parsed = message.Parse(buffer);
  Cancelled cancelled;
  Open answered;
  {
    absl::MutexLock lock(&mu_);
    const auto it = parsed.ok() ? open_.find(message.header().request()) : open_.end();
    if (it == open_.end()) {
      // An answer to nothing, or not an answer at all: nothing on this stream can be trusted.
      context_.TryCancel();
      return Fail();
    }
    answered = std::move(it->second);
    bytes_open_ -= answered.bytes;
    open_.erase(it);
    if (message.header().has_hello()) OnHello(message.header().hello());
    Pump(&cancelled);
  }
  DeliverReply(message, answered.requests);
  for (auto& r : cancelled) r->NotSent(absl::CancelledError("nobody waits"));
}

void ServerStream::OnFinish() {
  std::vector<std::shared_ptr<PendingRequest>> lost;
  std::vector<std::shared_ptr<PendingRequest>> unsent;
  {
    absl::MutexLock lock(&mu_);
    dead_ = true;
    // In the order of sending, so that the oldest is tried again first.
    std::vector<uint64_t> numbers;
    for (const auto& [number, open] : open_) numbers.push_back(number);
    std::sort(numbers.begin(), numbers.end());
    for (uint64_t number : numbers) {
      for (Joined& joined : open_[number].requests) lost.push_back(std::move(joined.request));
    }
    for (Queued& queued : waiting_) unsent.push_back(std::move(queued.request));
    open_.clear();
    waiting_.clear();
    bytes_waiting_ = 0;
    counters_->reconnects.fetch_add(1, std::memory_order_relaxed);
  }
  const absl::Status status = ToStatus(finish_status_, address_);
  for (auto& request : lost) request->Done(status, nullptr);
  for (auto& request : unsent) request->NotSent(status);
  live_->Remove();
}

void ServerStream::Cancel() { context_.TryCancel(); }

bool ServerStream::dead() const {
  absl::MutexLock lock(&mu_);
  return failed_;
}

}  // namespace hotbed
