#include "client/net/server_stream.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/check.h"

namespace hotbed {
namespace {

const char* MethodOf(Lane lane) {
  switch (lane) {
    case Lane::kPull:
      return "/hotbed.v1.Data/Pull";
    case Lane::kPush:
      return "/hotbed.v1.Data/Push";
    case Lane::kLookup:
      return "/hotbed.v1.Data/Lookup";
  }
  return "";
}

}  // namespace

void GrpcCounters::NoteHello(const v1::Hello& hello) {
  const uint64_t bytes = hello.message_bytes_max();
  uint64_t least = message_bytes_max.load(std::memory_order_relaxed);
  while (bytes != 0 && (least == 0 || bytes < least) &&
         !message_bytes_max.compare_exchange_weak(least, bytes)) {
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
      backlog_(joined_bytes_max) {
  for (int op = 0; op < kOpCount; ++op) {
    events_[op].stream = this;
    events_[op].op = static_cast<Op>(op);
  }
}

ServerStream::Event* ServerStream::Arm(Op op) {
  self_.push_back(shared_from_this());
  return &events_[op];
}

void ServerStream::Start() {
  live_->Add();
  absl::MutexLock lock(&mu_);
  stream_ = stub_->PrepareCall(&context_, MethodOf(lane_), queue_);
  stream_->StartCall(Arm(kStart));
  if (lane_ == Lane::kLookup) SetRestAlarm();
}

void ServerStream::Event::Run(bool ok) {
  std::shared_ptr<ServerStream> keep;
  {
    absl::MutexLock lock(&stream->mu_);
    keep = std::move(stream->self_.back());
    stream->self_.pop_back();
  }
  switch (op) {
    case kStart:
      return keep->OnStart(ok);
    case kWrite:
      return keep->OnWrite(ok);
    case kHold:
      return keep->OnHold();
    case kRest:
      return keep->OnRest();
    case kRead:
      return keep->OnRead(ok);
    case kFinish:
      return keep->OnFinish();
    case kOpCount:
      break;
  }
}

bool ServerStream::Send(OutgoingMessage* message, std::shared_ptr<PendingRequest>* request) {
  absl::MutexLock lock(&mu_);
  if (failed_) return false;
  used_ = true;
  const uint64_t bytes = backlog_.Add(std::move(*message), std::move(*request));
  counters_->bytes_sent.fetch_add(bytes, std::memory_order_relaxed);
  Pump(nullptr);
  return true;
}

void ServerStream::Pump(Dropped* dropped) {
  if (!started_ || failed_ || writing_) return;
  if (dropped != nullptr) backlog_.DropAbandoned(dropped);
  switch (backlog_.Decide()) {
    case StreamBacklog::Next::kNothing:
      return;
    case StreamBacklog::Next::kHold:
      if (!holding_) SetHoldAlarm();
      return;
    case StreamBacklog::Next::kWrite:
      break;
  }
  OutgoingMessage message;
  const uint64_t number = backlog_.Take(&message);
  v1::PullHeader prefix;  // a PushHeader has the same fields except for the deadline
  prefix.set_request(number);
  if (number == 1) *prefix.mutable_hello() = hello_;
  if (lane_ != Lane::kPush) prefix.set_deadline_ms(message.deadline_ms);
  const grpc::ByteBuffer buffer = ToByteBuffer(prefix.SerializeAsString(), std::move(message));
  writing_ = true;
  counters_->messages.fetch_add(1, std::memory_order_relaxed);
  stream_->Write(buffer, Arm(kWrite));
}

void ServerStream::SetHoldAlarm() {
  holding_ = true;
  backlog_.BeginHold();
  hold_alarm_.Set(queue_, std::chrono::system_clock::now() + kHoldMax, Arm(kHold));
}

void ServerStream::SetRestAlarm() {
  used_ = false;
  rest_alarm_.Set(queue_, std::chrono::system_clock::now() + kRestAfter, Arm(kRest));
}

void ServerStream::Fail() {
  failed_ = true;
  if (writing_ || reading_ || finishing_) return;
  finishing_ = true;
  stream_->Finish(&finish_status_, Arm(kFinish));
}

void ServerStream::EndDropped(const Dropped& dropped) {
  for (auto& request : dropped) request->NotSent(absl::CancelledError("nobody waits"));
}

void ServerStream::OnStart(bool ok) {
  Dropped dropped;
  {
    absl::MutexLock lock(&mu_);
    started_ = ok;
    if (!ok || failed_) {
      Fail();
    } else {
      reading_ = true;
      stream_->Read(&incoming_, Arm(kRead));
      Pump(&dropped);
    }
  }
  EndDropped(dropped);
}

void ServerStream::OnWrite(bool ok) {
  Dropped dropped;
  {
    absl::MutexLock lock(&mu_);
    writing_ = false;
    if (!ok || failed_) {
      Fail();
    } else {
      Pump(&dropped);
    }
  }
  EndDropped(dropped);
}

void ServerStream::OnHold() {
  Dropped dropped;
  {
    absl::MutexLock lock(&mu_);
    holding_ = false;
    if (failed_ || backlog_.empty()) return;
    if (!backlog_.EndHold()) return SetHoldAlarm();  // the waiting requests are younger
    Pump(&dropped);
  }
  EndDropped(dropped);
}

void ServerStream::OnRest() {
  absl::MutexLock lock(&mu_);
  if (finishing_) return;
  if (rested_) {
    context_.TryCancel();  // the server should have ended its side by now
  } else if (!failed_ && started_ && !used_ && !writing_ && backlog_.idle()) {
    rested_ = failed_ = writing_ = true;
    stream_->WritesDone(Arm(kWrite));
  }
  SetRestAlarm();
}

void ServerStream::OnRead(bool ok) {
  grpc::ByteBuffer buffer;
  {
    absl::MutexLock lock(&mu_);
    reading_ = false;
    if (!ok) return Fail();
    buffer.Swap(&incoming_);
    // Read on before this message is processed: another thread may take the next one. After a
    // failed write, too: the stream may still hold answers, and gRPC reports how it ended only once
    // they are read.
    reading_ = true;
    stream_->Read(&incoming_, Arm(kRead));
  }
  Dispatch(buffer);
}

void ServerStream::DeliverReply(const ReceivedMessage& message,
                                absl::Span<const StreamBacklog::Joined> requests) {
  const v1::ReplyHeader& header = message.header();
  uint64_t row_bytes = 0;
  for (const StreamBacklog::Joined& joined : requests) row_bytes += joined.row_bytes;
  ServerReply reply = message.reply(row_bytes);
  const uint32_t answered = reply.segment_count;
  for (const StreamBacklog::Joined& joined : requests) {
    // A reply that is too short shows as a wrong count.
    reply.segment_count = std::min(joined.segments, answered - reply.segment_first);
    const bool last = &joined == &requests.back();
    if (last && reply.segment_first + reply.segment_count != answered) {
      reply.segment_count = answered - reply.segment_first;
    }
    joined.request->Done(absl::OkStatus(), &reply);
    if (header.row_bytes_size() > 0 && reply.whole) {
      const auto first = header.row_bytes().begin() + reply.segment_first;
      reply.row_bytes_before =
          std::accumulate(first, first + reply.segment_count, reply.row_bytes_before);
    } else if (header.code() == v1::OK) {
      reply.row_bytes_before += joined.row_bytes;
    }
    reply.segment_first += reply.segment_count;
  }
}

StreamBacklog::Requests ServerStream::TakeAnswered(bool parsed, const v1::ReplyHeader& header,
                                                   Dropped* dropped) {
  absl::MutexLock lock(&mu_);
  StreamBacklog::Requests answered =
      parsed ? backlog_.Answered(header.request()) : StreamBacklog::Requests();
  if (answered.empty()) {
    // The answer belongs to no request, or is none: nothing on this stream can be trusted.
    context_.TryCancel();
    Fail();
    return answered;
  }
  if (header.has_hello()) {
    backlog_.TakeHello(header.hello());
    counters_->NoteHello(header.hello());
  }
  Pump(dropped);
  return answered;
}

void ServerStream::Dispatch(const grpc::ByteBuffer& buffer) {
  thread_local ReceivedMessage message;
  counters_->bytes_received.fetch_add(buffer.Length(), std::memory_order_relaxed);
  const bool parsed = message.Parse(buffer).ok();
  Dropped dropped;
  const StreamBacklog::Requests answered = TakeAnswered(parsed, message.header(), &dropped);
  if (answered.empty()) return;
  DeliverReply(message, answered);
  EndDropped(dropped);
}

void ServerStream::OnFinish() {
  StreamBacklog::RequestList lost;
  StreamBacklog::RequestList unsent;
  {
    absl::MutexLock lock(&mu_);
    backlog_.TakeAll(&lost, &unsent);
    if (!rested_) counters_->reconnects.fetch_add(1, std::memory_order_relaxed);
    if (lane_ == Lane::kLookup) rest_alarm_.Cancel();
  }
  const absl::Status status = StatusOfServer(finish_status_, address_);
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
