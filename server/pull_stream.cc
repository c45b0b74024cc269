#include "server/pull_stream.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "proto/convert.h"
#include "server/object_pool.h"
#include "server/stream_metrics.h"

namespace hotbed {
namespace {

constexpr size_t kIdleMessagesMax = 64;
constexpr uint64_t kRecycledRequestBytesMax = 256
                                              << 10;  // larger ones would keep too much memory idle

ObjectPool<PullMessage>& Pool() {
  static auto* const pool = new ObjectPool<PullMessage>(kIdleMessagesMax);
  return *pool;
}

// Room before the rows for a header without errors, a multiple of 64.
uint64_t HeadRoom(size_t segments) { return (192 + 48 * segments + 63) & ~uint64_t{63}; }

void GiveAnswer(void* buffer) { AnswerPool::Give(static_cast<AnswerBuffer*>(buffer)); }

}  // namespace

PullMessage* PullMessage::Take() { return Pool().Take(); }

PullMessage::~PullMessage() {
  if (answer_ != nullptr) AnswerPool::Give(answer_);
}

void PullMessage::Refuse(SegmentCode code, std::string detail) {
  refusal_ = {code, std::move(detail)};
  segments.clear();
}

absl::Status PullMessage::Parse(const grpc::ByteBuffer& message, DataPlane* plane, int64_t now_ns,
                                uint64_t peer_message_bytes_max) {
  // Reused by all messages of a thread: the generated header keeps its memory.
  static thread_local PullRequestView view;
  static thread_local MessageSlices slices;
  plane_ = plane;
  arrival_ns_ = now_ns;
  slices.Load(message);
  const absl::Status parsed = ParsePullRequest(slices.fragments, &view);
  if (parsed.ok()) {
    request_bytes_ = slices.bytes;
    TakeHeader(view.header, view.ids.bytes, peer_message_bytes_max);
    if (!refusal_.refused()) {
      const uint64_t count = view.ids.bytes / 8;
      if (ids_.size() < count) ids_.resize(count);
      FragmentReader(slices.fragments, view.ids).CopyTo(ids_.data(), view.ids.bytes);
    }
  }
  slices.Clear();
  return parsed;
}

void PullMessage::TakeHeader(const v1::PullHeader& header, uint64_t id_bytes,
                             uint64_t peer_message_bytes_max) {
  const DataPlaneLimits& limits = plane_->limits;
  request_ = header.request();
  has_hello_ = header.has_hello();
  if (has_hello_) {
    hello_ = header.hello();
    peer_message_bytes_max = hello_.message_bytes_max();
  }
  asked_ = header.segments_size();
  want_flags_ = header.want_flags();
  if (header.deadline_ms() > 0) deadline_ns = arrival_ns_ + int64_t{1000000} * header.deadline_ms();
  if (request_bytes_ > limits.message_bytes_max) {
    return Refuse(SegmentCode::kInvalidArgument,
                  absl::StrCat("the message has ", request_bytes_, " bytes, the limit is ",
                               limits.message_bytes_max, ": send smaller batches"));
  }
  if (asked_ == 0) return Refuse(SegmentCode::kInvalidArgument, "the message has no segments");
  if (asked_ > limits.segments_max) {
    asked_ = 0;  // the answer need not be as large as the mistake
    return Refuse(SegmentCode::kInvalidArgument,
                  absl::StrCat("the message has ", header.segments_size(),
                               " segments, the limit is ", limits.segments_max));
  }
  const auto type = FromProto(header.row_type());
  if (!type.ok())
    return Refuse(SegmentCode::kInvalidArgument, std::string(type.status().message()));
  row_type = *type;
  uint64_t ids = 0;
  for (const v1::PullSegment& segment : header.segments()) ids += segment.id_count();
  if (ids * 8 != id_bytes) {
    return Refuse(SegmentCode::kInvalidArgument,
                  absl::StrCat("the segments name ", ids, " ids of 8 bytes, the field ids has ",
                               id_bytes, " bytes"));
  }
  for (uint32_t i = 0; i < asked_; ++i) AddSegment(header.segments(i), i);
  rows_at_ = HeadRoom(asked_);
  answer_bytes_ = rows_at_ + row_bytes_;
  if (want_flags_) {
    flags_at_ = answer_bytes_ + BulkTagBytes(v1::PullReply::kFlagsFieldNumber, rows_);
    answer_bytes_ = flags_at_ + rows_;
  }
  const uint64_t limit = peer_message_bytes_max == 0
                             ? limits.message_bytes_max
                             : std::min(limits.message_bytes_max, peer_message_bytes_max);
  if (answer_bytes_ > limit) {
    Refuse(SegmentCode::kInvalidArgument,
           absl::StrCat("the answer to ", ids, " ids would have ", answer_bytes_,
                        " bytes, the limit is ", limit, ": ask for fewer ids a message"));
    answer_bytes_ = 0;
  }
}

void PullMessage::AddSegment(const v1::PullSegment& asked, uint32_t place) {
  // Where this segment's ids begin is `count` summed over all before it, refused ones too; see
  // PlaceRows.
  PullSegment& segment = segments.emplace_back();
  segment.shard_id = ShardId::FromPacked(asked.shard());
  segment.epoch = asked.epoch();
  segment.lsn_min = asked.lsn_min();
  segment.count = asked.id_count();
  if (segment.count == 0) {
    segments.pop_back();
    SegmentResult refused;
    refused.code = SegmentCode::kInvalidArgument;
    refused.detail =
        absl::StrCat("segment ", place, " for ", ShardId::FromPacked(asked.shard()).ToString(),
                     " asks for no ids");
    refusals_.emplace_back(place, std::move(refused));
    return;
  }
  segment.shard = plane_->host->Find(segment.shard_id);
  uint64_t bytes = 0;
  if (segment.shard != nullptr) {
    bytes = uint64_t{segment.count} * RowWireBytes(row_type, ShardHost::DimOf(*segment.shard));
    rows_ += segment.count;
  }
  segment_bytes_.push_back(bytes);
  row_bytes_ += bytes;
}

void PullMessage::PlaceRows() {
  answer_ = plane_->answers->Take(answer_bytes_);
  const uint64_t* ids = ids_.data();
  uint8_t* rows = answer_->data + rows_at_;
  uint8_t* flags = answer_->data + flags_at_;
  for (size_t i = 0; i < segments.size(); ++i) {
    PullSegment& segment = segments[i];
    segment.ids = ids;
    ids += segment.count;
    if (segment.shard == nullptr) continue;
    segment.rows = rows;
    rows += segment_bytes_[i];
    if (want_flags_) {
      segment.flags = flags;
      flags += segment.count;
    }
  }
}

void PullMessage::Run(PullSink* sink) {
  sink_ = sink;
  if (!refusal_.refused() && plane_->draining.load(std::memory_order_relaxed)) {
    Refuse(SegmentCode::kUnavailable, "this server is stopping");
  }
  if (refusal_.refused()) return sink_->PullDone(this);
  switch (plane_->pull_budget.Reserve(bytes(), {this, deadline_ns, request_bytes_})) {
    case ByteBudget::Outcome::kReserved:
      return Granted();
    case ByteBudget::Outcome::kWaiting:
      StreamMetrics::Get().requests_parked.Add(1);
      return;
    case ByteBudget::Outcome::kRefused:
      Refuse(SegmentCode::kResourceExhausted,
             absl::StrCat("pulls in flight on this server hold ", plane_->pull_budget.in_flight(),
                          " of ", plane_->pull_budget.bytes_max(), " bytes and ",
                          plane_->limits.requests_waiting_max, " more requests wait"));
      return sink_->PullDone(this);
  }
}

void PullMessage::Granted() {
  reserved_ = true;
  Work();
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
  header->Clear();
  header->set_request(request_);
  if (hello != nullptr) *header->mutable_hello() = *hello;
  if (refusal_.refused()) return FillRefusal(refusal_, asked_, *plane_, header);
  size_t refused = 0;
  size_t served = 0;
  for (uint32_t place = 0; place < asked_; ++place) {
    v1::SegmentReply* reply = header->add_segments();
    if (refused < refusals_.size() && refusals_[refused].first == place) {
      FillSegment(refusals_[refused++].second, ShardId{}, *plane_, reply);
      continue;
    }
    const PullSegment& segment = segments[served];
    FillSegment(segment.result, segment.shard_id, *plane_, reply);
    if (segment.result.code == SegmentCode::kOk) {
      reply->set_row_bytes(segment_bytes_[served]);
    }
    ++served;
  }
}

grpc::ByteBuffer PullMessage::Encode(const v1::Hello* hello) {
  static thread_local v1::ReplyHeader header;
  FillReply(hello, &header);
  uint64_t rows_sent = 0;
  uint64_t flags_sent = 0;
  for (size_t i = 0; i < segments.size(); ++i) {
    if (segments[i].result.code != SegmentCode::kOk) continue;
    rows_sent += segment_bytes_[i];
    flags_sent += segments[i].count;
  }
  if (rows_sent == 0) return EncodeHeaderOnly(header);
  StreamMetrics::Get().pull_rows.Add(flags_sent);
  StreamMetrics::Get().pull_bytes.Add(rows_sent);
  const size_t head =
      HeaderFieldBytes(header) + BulkTagBytes(v1::PullReply::kRowsFieldNumber, rows_sent);
  if (rows_sent != row_bytes_ || head > rows_at_) {
    return EncodeParts(header, rows_sent, want_flags_ ? flags_sent : 0);
  }
  // The usual case: header, rows and flags lie side by side in the one buffer.
  AnswerBuffer* const answer = std::exchange(answer_, nullptr);
  uint8_t* const begin = answer->data + rows_at_ - head;
  WriteBulkTag(v1::PullReply::kRowsFieldNumber, rows_sent, WriteHeaderField(header, begin));
  uint8_t* end = answer->data + rows_at_ + row_bytes_;
  if (want_flags_) end = WriteBulkTag(v1::PullReply::kFlagsFieldNumber, rows_, end) + rows_;
  const grpc::Slice slice(begin, end - begin, GiveAnswer, answer);
  return grpc::ByteBuffer(&slice, 1);
}

// Some segments were refused, so there are holes in the buffer: what was served is sent as pieces
// of it.
grpc::ByteBuffer PullMessage::EncodeParts(const v1::ReplyHeader& header, uint64_t rows_sent,
                                          uint64_t flags_sent) {
  AnswerBuffer* const answer = std::exchange(answer_, nullptr);
  const grpc::Slice whole(answer->data, answer_bytes_, GiveAnswer, answer);
  std::string head;
  AppendHeaderField(header, &head);
  AppendBulkTag(v1::PullReply::kRowsFieldNumber, rows_sent, &head);
  std::vector<grpc::Slice> slices;
  slices.emplace_back(head);
  for (size_t i = 0; i < segments.size(); ++i) {
    if (segments[i].result.code != SegmentCode::kOk || segment_bytes_[i] == 0) continue;
    const uint64_t at = segments[i].rows - answer->data;
    slices.push_back(whole.sub(at, at + segment_bytes_[i]));
  }
  if (flags_sent > 0) {
    head.clear();
    AppendBulkTag(v1::PullReply::kFlagsFieldNumber, flags_sent, &head);
    slices.emplace_back(head);
    for (const PullSegment& segment : segments) {
      if (segment.result.code != SegmentCode::kOk || segment.flags == nullptr) continue;
      const uint64_t at = segment.flags - answer->data;
      slices.push_back(whole.sub(at, at + segment.count));
    }
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

void PullMessage::Recycle() {
  if (request_bytes_ > kRecycledRequestBytesMax) {
    delete this;
    return;
  }
  if (answer_ != nullptr) AnswerPool::Give(std::exchange(answer_, nullptr));
  segments.clear();
  segment_bytes_.clear();
  refusals_.clear();
  refusal_ = {};
  has_hello_ = want_flags_ = reserved_ = false;
  deadline_ns = 0;
  asked_ = 0;
  request_ = request_bytes_ = answer_bytes_ = row_bytes_ = rows_ = rows_at_ = flags_at_ = 0;
  Pool().Give(this);
}

void PullStream::Start(DataPlane* plane, RawDataService* service,
                       grpc::ServerCompletionQueue* queue) {
  (new PullStream(plane, service, queue))->Accept();
}

void PullStream::RequestCall(grpc::ServerContext* context, RawStream* stream, void* accept_tag) {
  service_->RequestPull(context, stream, queue_, queue_, accept_tag);
}

void PullStream::OnMessage(grpc::ByteBuffer* raw) {
  StreamMetrics::Get().pull_messages.Add(1);
  PullMessage* const message = PullMessage::Take();
  const absl::Status parsed =
      message->Parse(*raw, plane_, plane_->clock->NowNs(), peer_message_bytes_max_);
  raw->Clear();
  const bool first = !heard_hello();
  if (!Hears(parsed, message)) return;
  if (first) peer_message_bytes_max_ = message->hello()->message_bytes_max();
  if (OpenRequest(message->bytes(), message->deadline_ns, message)) OnRoom(message);
}

void PullStream::OnRoom(void* message) {
  ReadOn();  // before the work: another thread may take the next message meanwhile
  static_cast<PullMessage*>(message)->Run(this);
}

void PullStream::PullDone(PullMessage* message) {
  End(message, [&](const v1::Hello* hello) {
    grpc::ByteBuffer answer = message->Encode(hello);
    StreamMetrics::Get().pull_seconds.RecordNs(NowNs() - message->arrival_ns());
    return answer;
  });
}

void PullStream::OnReleased(uint64_t reserved) {
  if (reserved > 0) plane_->pull_budget.Release(reserved);
}

}  // namespace hotbed
