#include "server/streams/pull_stream.h"

#include <chrono>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/net/message_slices.h"
#include "server/net/object_pool.h"
#include "server/net/stream_metrics.h"

namespace hotbed {
namespace {

constexpr size_t kIdlePullMessagesMax = 64;
// Larger requests are freed instead of recycled: they would keep too much memory idle.
constexpr uint64_t kRecycledPullBytesMax = 256 << 10;

ObjectPool<PullMessage>& PullMessagePool() {
  static auto* const pool = new ObjectPool<PullMessage>(kIdlePullMessagesMax);
  return *pool;
}

// The end of the caller's whole call on the server's clock; 0: none.
int64_t DeadlineNs(const grpc::ServerContextBase& context, int64_t now_ns) {
  const auto deadline = context.deadline();
  if (deadline == std::chrono::system_clock::time_point::max()) return 0;
  const auto left = deadline - std::chrono::system_clock::now();
  return now_ns + std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
}

void GiveAnswer(void* buffer) { AnswerPool::Give(static_cast<AnswerBuffer*>(buffer)); }

}  // namespace

PullMessage* PullMessage::Take() { return PullMessagePool().Take(); }

PullMessage::~PullMessage() {
  if (answer_ != nullptr) AnswerPool::Give(answer_);
}

void PullMessage::Refuse(SegmentCode code, std::string detail) {
  refusal_ = {code, std::move(detail)};
  segments.clear();
}

absl::Status PullMessage::Parse(const grpc::ByteBuffer& message, DataPlane* plane, int64_t now_ns,
                                uint64_t peer_message_bytes_max, StreamTables* tables) {
  // Shared by all messages of a thread, so that the generated header keeps its memory.
  static thread_local PullRequestView view;
  static thread_local MessageSlices slices;
  plane_ = plane;
  arrival_ns_ = now_ns;
  stages.Begin(plane->slow.stage_clock());
  slices.Load(message);
  const absl::Status parsed = ParsePullRequest(slices.fragments, &view);
  if (parsed.ok()) {
    request_bytes_ = slices.bytes;
    TakeHeader(view, peer_message_bytes_max, tables);
    if (refusal_.ok()) CopyBulk(slices.fragments, view);
  }
  slices.Clear();
  return parsed;
}

void PullMessage::Run(PullSink* sink) {
  sink_ = sink;
  if (refusal_.ok() && plane_->draining.load(std::memory_order_relaxed)) {
    Refuse(SegmentCode::kUnavailable, "this server is stopping");
  }
  if (!refusal_.ok()) return sink_->PullDone(this);
  ByteBudget& budget = *sink_->budget();
  switch (budget.Reserve(bytes(), {this, deadline_ns, request_bytes_, sink_->account()})) {
    case ByteBudget::Outcome::kReserved:
      reserved_ = true;
      return Work();
    case ByteBudget::Outcome::kWaiting:
      StreamMetrics::Get().requests_parked.Add(1);
      return;
    case ByteBudget::Outcome::kRefused:
      Refuse(SegmentCode::kResourceExhausted,
             absl::StrCat("answers in flight on this server hold ", budget.in_flight(), " of ",
                          budget.bytes_max(), " bytes and ", plane_->limits.requests_waiting_max,
                          " more requests wait"));
      return sink_->PullDone(this);
  }
}

void PullMessage::Granted() {
  NoteKeptBack();
  reserved_ = true;
  Work();
}

void PullMessage::Expired() {
  NoteKeptBack();
  Work();
}

AnsweredRequest PullMessage::Describe() const {
  AnsweredRequest request;
  request.rows = rows_;
  request.request_bytes = request_bytes_;
  request.answer_bytes = row_bytes_;
  request.traces = &traces_;
  request.stages = &stages;
  DescribeSegments(segments, &request);
  return request;
}

void PullMessage::Work() {
  if (sink_->abandoned()) {
    Refuse(SegmentCode::kUnavailable, "the caller has gone");
  } else if (deadline_ns != 0 && plane_->clock->NowNs() >= deadline_ns) {
    Refuse(SegmentCode::kDeadlineExceeded, "the deadline passed before the work began");
  }
  if (segments.empty()) return sink_->PullDone(this);
  PlaceRows();
  plane_->host->Pull(this);
}

void PullMessage::FillReply(const v1::Hello* hello, v1::ReplyHeader* header) {
  ReplyWriter writer(*plane_, request_, asked_, hello, header);
  if (!refusal_.ok()) return writer.RefuseAll(refusal_);
  bool whole = refusals_.empty();
  size_t refused = 0;
  size_t served = 0;
  for (uint32_t number = 0; number < asked_; ++number) {
    if (refused < refusals_.size() && refusals_[refused].first == number) {
      writer.Add(refusals_[refused++].second, ShardId{}, 0, 0);
      continue;
    }
    const PullSegment& segment = segments[served++];
    writer.Add(segment.result, segment.shard_id, segment.epoch, 0);
    whole &= segment.result.code == SegmentCode::kOk;
  }
  writer.Finish();
  if (!whole) FillRowBytes(header);
}

// Says which segments have rows in the answer.
void PullMessage::FillRowBytes(v1::ReplyHeader* header) const {
  auto* const row_bytes = header->mutable_row_bytes();
  row_bytes->Resize(static_cast<int>(asked_), 0);
  size_t refused = 0;
  size_t served = 0;
  for (uint32_t number = 0; number < asked_; ++number) {
    if (refused < refusals_.size() && refusals_[refused].first == number) {
      ++refused;
      continue;
    }
    if (segments[served].result.code == SegmentCode::kOk) {
      row_bytes->Set(static_cast<int>(number), places_[served].row_bytes);
    }
    ++served;
  }
}

grpc::ByteBuffer PullMessage::Encode(const v1::Hello* hello) {
  static thread_local v1::ReplyHeader header;
  FillReply(hello, &header);
  uint64_t rows_sent = 0;
  uint64_t flags_sent = 0;
  uint64_t args_sent = 0;
  for (size_t i = 0; i < segments.size(); ++i) {
    if (segments[i].result.code != SegmentCode::kOk) continue;
    rows_sent += places_[i].row_bytes;
    args_sent += places_[i].arg_bytes;
    flags_sent += segments[i].count;
  }
  if (rows_sent == 0) return EncodeHeaderOnly(header);
  StreamMetrics::Get().pull_rows.Add(flags_sent);
  StreamMetrics::Get().pull_bytes.Add(rows_sent);
  const size_t head =
      HeaderFieldBytes(header) + BulkTagBytes(v1::PullReply::kRowsFieldNumber, rows_sent);
  if (rows_sent != row_bytes_ || head > rows_at_) {
    return EncodeParts(header, rows_sent, want_flags_ ? flags_sent : 0, args_sent);
  }
  // The usual case: header, rows, flags and arg_max are adjacent in one buffer.
  AnswerBuffer* const answer = std::exchange(answer_, nullptr);
  uint8_t* const begin = answer->data + rows_at_ - head;
  WriteBulkTag(v1::PullReply::kRowsFieldNumber, rows_sent, WriteHeaderField(header, begin));
  uint8_t* end = answer->data + rows_at_ + row_bytes_;
  if (want_flags_) end = WriteBulkTag(v1::PullReply::kFlagsFieldNumber, rows_, end) + rows_;
  if (arg_bytes_ > 0) {
    end = WriteBulkTag(v1::PullReply::kArgMaxFieldNumber, arg_bytes_, end) + arg_bytes_;
  }
  const grpc::Slice slice(begin, end - begin, GiveAnswer, answer);
  return grpc::ByteBuffer(&slice, 1);
}

// Some segments were refused, which leaves holes in the buffer: the served segments are sent as
// pieces of it.
grpc::ByteBuffer PullMessage::EncodeParts(const v1::ReplyHeader& header, uint64_t rows_sent,
                                          uint64_t flags_sent, uint64_t args_sent) {
  AnswerBuffer* const answer = std::exchange(answer_, nullptr);
  const grpc::Slice whole(answer->data, answer_bytes_, GiveAnswer, answer);
  std::string head;
  AppendHeaderField(header, &head);
  std::vector<grpc::Slice> slices;
  const auto add_field = [&](int field, uint64_t bytes) {
    AppendBulkTag(field, bytes, &head);
    slices.emplace_back(head);
    head.clear();
  };
  const auto add_piece = [&](const uint8_t* piece, uint64_t bytes) {
    if (piece == nullptr || bytes == 0) return;
    const uint64_t at = piece - answer->data;
    slices.push_back(whole.sub(at, at + bytes));
  };
  const auto served = [&](size_t i) { return segments[i].result.code == SegmentCode::kOk; };
  add_field(v1::PullReply::kRowsFieldNumber, rows_sent);
  for (size_t i = 0; i < segments.size(); ++i) {
    if (served(i)) add_piece(segments[i].rows, places_[i].row_bytes);
  }
  if (flags_sent > 0) {
    add_field(v1::PullReply::kFlagsFieldNumber, flags_sent);
    for (size_t i = 0; i < segments.size(); ++i) {
      if (served(i)) add_piece(segments[i].flags, segments[i].count);
    }
  }
  if (args_sent > 0) {
    add_field(v1::PullReply::kArgMaxFieldNumber, args_sent);
    for (size_t i = 0; i < segments.size(); ++i) {
      if (served(i)) add_piece(segments[i].arg_max, places_[i].arg_bytes);
    }
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

void PullMessage::Recycle() {
  if (request_bytes_ > kRecycledPullBytesMax) {
    delete this;
    return;
  }
  if (answer_ != nullptr) AnswerPool::Give(std::exchange(answer_, nullptr));
  answer = nullptr;
  segments.clear();
  shards.reset();
  places_.clear();
  refusals_.clear();
  refusal_ = {};
  has_hello_ = want_flags_ = reserved_ = false;
  lengths_misfit_.clear();
  weights_misfit_.clear();
  deadline_ns = 0;
  asked_ = 0;
  request_ = request_bytes_ = answer_bytes_ = stage_bytes_ = row_bytes_ = arg_bytes_ = rows_ = 0;
  rows_at_ = flags_at_ = args_at_ = 0;
  PullMessagePool().Give(this);
}

void PullStream::Start(RequestKind kind, DataPlane* plane, RawDataService* service,
                       grpc::ServerCompletionQueue* queue) {
  (new PullStream(kind, plane, service, queue))->Accept();
}

void PullStream::RequestCall(grpc::ServerContext* context, RawStream* stream, void* accept_tag) {
  if (looks_up()) {
    service_->RequestLookup(context, stream, queue_, queue_, accept_tag);
  } else {
    service_->RequestPull(context, stream, queue_, queue_, accept_tag);
  }
}

void PullStream::OnMessage(grpc::ByteBuffer* raw) {
  StreamMetrics& metrics = StreamMetrics::Get();
  (looks_up() ? metrics.lookup_messages : metrics.pull_messages).Add(1);
  PullMessage* const message = PullMessage::Take();
  const int64_t now_ns = NowNs();
  const absl::Status parsed =
      message->Parse(*raw, plane_, now_ns, peer_message_bytes_max_, tables());
  raw->Clear();
  const bool first = !heard_hello();
  if (!Hears(parsed, message)) return;
  if (first && message->hello() != nullptr) {
    peer_message_bytes_max_ = message->hello()->message_bytes_max();
  }
  if (message->deadline_ns == 0) message->deadline_ns = DeadlineNs(context(), now_ns);
  if (OpenRequest(message->bytes(), message->deadline_ns, message)) Run(message);
}

void PullStream::OnRoom(void* held) {
  auto* const message = static_cast<PullMessage*>(held);
  message->NoteKeptBack();
  Run(message);
}

void PullStream::Run(PullMessage* message) {
  ReadOn();  // before the work, so that another thread can take the next message
  message->Run(this);
}

void PullStream::PullDone(PullMessage* message) {
  End(message, [&](const v1::Hello* hello) {
    const int64_t since_ns = message->stages.NowNs();
    grpc::ByteBuffer answer = message->Encode(hello);
    const int64_t took_ns = NowNs() - message->arrival_ns();
    StreamMetrics& metrics = StreamMetrics::Get();
    (looks_up() ? metrics.lookup_seconds : metrics.pull_seconds).RecordNs(took_ns);
    LogIfSlow(&plane_->slow, kind_, *message, took_ns, since_ns, account()->peer);
    return answer;
  });
}

void PullStream::OnReleased(uint64_t reserved) {
  if (reserved > 0) budget()->Release(reserved, account());
}

}  // namespace hotbed
