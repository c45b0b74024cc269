#include "server/streams/push_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/table_spec.h"
#include "proto/convert.h"
#include "server/net/object_pool.h"
#include "server/net/stream_metrics.h"

namespace hotbed {
namespace {

constexpr size_t kIdlePushMessagesMax = 64;
constexpr uint64_t kRecycledPushBytesMax = 2 << 20;  // ids and pointers are a fraction of it
constexpr uint64_t kRowBytesUnknown = ~uint64_t{0};

ObjectPool<PushMessage>& PushMessagePool() {
  static auto* const pool = new ObjectPool<PushMessage>(kIdlePushMessagesMax);
  return *pool;
}

}  // namespace

PushMessage* PushMessage::Take() { return PushMessagePool().Take(); }

void PushMessage::Refuse(SegmentCode code, std::string detail) {
  refusal_ = {code, std::move(detail)};
  segments.clear();
}

absl::Status PushMessage::Parse(const grpc::ByteBuffer& message, DataPlane* plane, int64_t now_ns) {
  static thread_local PushRequestView view;  // the generated header keeps its memory
  plane_ = plane;
  arrival_ns_ = now_ns;
  slices_.Load(message);
  const absl::Status parsed = ParsePushRequest(slices_.fragments, &view);
  if (parsed.ok() && TakeHeader(view) && FindDims(view)) AddSegments(view);
  return parsed;
}

bool PushMessage::TakeHeader(const PushRequestView& view) {
  const v1::PushHeader& header = view.header;
  const DataPlaneLimits& limits = plane_->limits;
  request_ = header.request();
  has_hello_ = header.has_hello();
  if (has_hello_) hello_ = header.hello();
  session = header.session();
  incarnation = header.incarnation();
  if (header.deadline_ms() > 0) deadline_ns = arrival_ns_ + int64_t{1000000} * header.deadline_ms();
  asked_ = header.segments_size();
  if (asked_ > limits.segments_max) {
    asked_ = 0;  // the answer need not be as large as the mistake
    Refuse(SegmentCode::kInvalidArgument,
           absl::StrCat("the message has ", header.segments_size(), " segments, the limit is ",
                        limits.segments_max));
  } else if (bytes() > limits.message_bytes_max) {
    Refuse(SegmentCode::kInvalidArgument,
           absl::StrCat("the message has ", bytes(), " bytes, the limit is ",
                        limits.message_bytes_max, ": send smaller batches"));
  } else if (asked_ == 0) {
    Refuse(SegmentCode::kInvalidArgument, "the message has no segments");
  } else if (const auto type = GradientTypeFromProto(header.gradient_type()); !type.ok()) {
    Refuse(SegmentCode::kInvalidArgument, std::string(type.status().message()));
  } else {
    gradient_type = *type;
  }
  return refusal_.ok();
}

// Finds the bytes per gradient row of each segment: from the segment, else from its shard or the
// shard's record, else (for one segment only) from the bytes that the others leave. This locates
// the gradients of each segment, so that a refused segment does not affect the others.
bool PushMessage::FindDims(const PushRequestView& view) {
  uint64_t ids = 0;
  uint64_t known = 0;
  int unknown = -1;
  static thread_local std::vector<ShardId> names;
  names.clear();
  for (const v1::PushSegment& asked : view.header.segments()) {
    names.push_back(ShardId::FromPacked(asked.shard()));
  }
  plane_->host->FindAll(names, &shards_);
  for (uint32_t i = 0; i < asked_; ++i) {
    const v1::PushSegment& asked = view.header.segments(i);
    const ShardId id = names[i];
    ids += asked.id_count();
    uint32_t dim = asked.dim();
    if (dim > kDimMax) {
      Refuse(SegmentCode::kInvalidArgument,
             absl::StrCat("segment ", i, " for ", id.ToString(), " says dim ", dim,
                          ", the limit is ", kDimMax));
      return false;
    }
    if (dim == 0) {
      if (shards_[i] != nullptr) {
        dim = ShardHost::DimOf(*shards_[i]);
      } else if (const auto record = plane_->host->RecordOf(id)) {
        dim = record->range.column_limit - record->range.column_first;
      }
    }
    row_bytes_.push_back(dim == 0 ? kRowBytesUnknown : RowWireBytes(gradient_type, dim));
    if (dim > 0) {
      known += row_bytes_.back() * asked.id_count();
    } else if (unknown < 0 && asked.id_count() > 0) {
      unknown = i;
    } else if (asked.id_count() > 0) {
      Refuse(SegmentCode::kUnknownShard,
             absl::StrCat("segments ", unknown, " and ", i,
                          " name shards unknown here and no dim, so the gradients of the others "
                          "cannot be found: refresh the map or set dim"));
      return false;
    }
  }
  if (ids * 8 != view.ids.bytes) {
    Refuse(SegmentCode::kInvalidArgument,
           absl::StrCat("the segments name ", ids, " ids of 8 bytes, the field ids has ",
                        view.ids.bytes, " bytes"));
    return false;
  }
  if (unknown >= 0 && view.gradients.bytes >= known) {
    const uint64_t count = view.header.segments(unknown).id_count();
    row_bytes_[unknown] = (view.gradients.bytes - known) / count;
    known += row_bytes_[unknown] * count;
  }
  if (known != view.gradients.bytes) {
    Refuse(SegmentCode::kInvalidArgument,
           absl::StrCat("the rows of ", ids, " ids take ", known, " bytes of ",
                        view.header.segments_size(), " segments' dims, the field gradients has ",
                        view.gradients.bytes, " bytes"));
    return false;
  }
  return true;
}

void PushMessage::AddSegments(const PushRequestView& view) {
  const uint64_t count_all = view.ids.bytes / 8;
  if (ids_.size() < count_all) ids_.resize(count_all);
  if (gradients_.size() < count_all) gradients_.resize(count_all);
  FragmentReader(slices_.fragments, view.ids).CopyTo(ids_.data(), view.ids.bytes);
  FragmentReader reader(slices_.fragments, view.gradients);
  uint64_t at = 0;
  for (uint32_t i = 0; i < asked_; ++i) {
    const v1::PushSegment& asked = view.header.segments(i);
    const uint64_t count = asked.id_count();
    const ShardId id = ShardId::FromPacked(asked.shard());
    std::shared_ptr<Shard> shard = std::move(shards_[i]);
    const uint32_t dim = shard == nullptr ? 0 : ShardHost::DimOf(*shard);
    if (asked.commit() != 0) {
      AddCommit(view, i, shard);
      continue;
    }
    SegmentResult refused;
    if (count == 0) {
      refused.detail = absl::StrCat("segment ", i, " for ", id.ToString(), " pushes no rows");
    } else if (shard != nullptr && RowWireBytes(gradient_type, dim) != row_bytes_[i]) {
      refused.detail =
          absl::StrCat("segment ", i, " pushes rows of ", row_bytes_[i], " bytes, ", id.ToString(),
                       " has dim ", dim, ", rows of ", RowWireBytes(gradient_type, dim), " bytes");
    }
    if (!refused.detail.empty()) {
      refused.code = SegmentCode::kInvalidArgument;
      refusals_.emplace_back(i, std::move(refused));
      if (count > 0) reader.Skip(count * row_bytes_[i]);
      at += count;
      continue;
    }
    PushSegment& segment = segments.emplace_back();
    segment.shard = std::move(shard);
    segment.shard_id = id;
    segment.epoch = asked.epoch();
    segment.ids = &ids_[at];
    segment.count = asked.id_count();
    segment.gradients = &gradients_[at];
    segment.seq = asked.seq();
    segment.prev_seq = asked.prev_seq();
    segment.open = asked.open();
    segment.last_part = asked.last_part();
    segment.has_learning_rate = asked.has_learning_rate();
    segment.learning_rate = asked.learning_rate();
    segment.assign = asked.assign();
    if (segment.shard == nullptr) {
      reader.Skip(count * row_bytes_[i]);
    } else {
      reader.RowPointers(row_bytes_[i], count, &gradients_[at], &scratch_);
    }
    at += count;
  }
}

void PushMessage::AddCommit(const PushRequestView& view, uint32_t place,
                            const std::shared_ptr<Shard>& shard) {
  const v1::PushSegment& asked = view.header.segments(place);
  const ShardId id = ShardId::FromPacked(asked.shard());
  const uint32_t index = asked.commit() - 1;
  SegmentResult refused;
  if (asked.id_count() != 0) {
    refused.detail =
        absl::StrCat("segment ", place, " for ", id.ToString(), " is a commit and has ",
                     asked.id_count(), " rows; allowed is none");
  } else if (index >= static_cast<uint32_t>(view.header.commits_size()) ||
             view.header.commits(index).step() == 0) {
    refused.detail =
        absl::StrCat("segment ", place, " for ", id.ToString(), " names commit ", index + 1, " of ",
                     view.header.commits_size(), "; it must be there, and its step above 0");
  }
  if (!refused.detail.empty()) {
    refused.code = SegmentCode::kInvalidArgument;
    refusals_.emplace_back(place, std::move(refused));
    return;
  }
  if (commit_sessions_.empty()) {
    for (const v1::StepCommit& commit : view.header.commits()) {
      commit_sessions_.emplace_back(commit.sessions().begin(), commit.sessions().end());
    }
  }
  PushSegment& segment = segments.emplace_back();
  segment.shard = shard;
  segment.shard_id = id;
  segment.epoch = asked.epoch();
  segment.ids = commit_sessions_[index].data();
  segment.count = static_cast<uint32_t>(commit_sessions_[index].size());
  segment.commit_step = view.header.commits(index).step();
}

void PushMessage::Run(PushSink* sink) {
  sink_ = sink;
  if (refusal_.ok() && plane_->draining.load(std::memory_order_relaxed)) {
    Refuse(SegmentCode::kUnavailable, "this server is stopping");
  }
  auto outcome = ByteBudget::Outcome::kReserved;
  if (refusal_.ok()) {
    outcome = plane_->push_budget.Reserve(bytes(), {this, deadline_ns, bytes(), sink_->account()});
  }
  if (outcome == ByteBudget::Outcome::kWaiting) {
    StreamMetrics::Get().requests_parked.Add(1);
    return;
  }
  if (outcome == ByteBudget::Outcome::kRefused) {
    Refuse(SegmentCode::kResourceExhausted,
           absl::StrCat("pushes in flight on this server hold ", plane_->push_budget.in_flight(),
                        " of ", plane_->push_budget.bytes_max(), " bytes, and ",
                        plane_->push_budget.waiting_bytes(), " more wait; the limits are ",
                        plane_->limits.push_bytes_waiting_max, " bytes and ",
                        plane_->limits.requests_waiting_max, " requests"));
  }
  reserved_ = refusal_.ok();
  Work();
}

void PushMessage::Granted() {
  reserved_ = true;
  Work();
}

bool PushMessage::Gone() const { return sink_->abandoned(); }

void PushMessage::Work() {
  if (refusal_.ok() && sink_->abandoned()) {
    Refuse(SegmentCode::kUnavailable, "the caller has gone");
  } else if (refusal_.ok() && deadline_ns != 0 && plane_->clock->NowNs() >= deadline_ns) {
    Refuse(SegmentCode::kDeadlineExceeded, "the deadline passed before the work began");
  }
  // The host, and then the sink, may be done with this message before Push returns.
  PushSink* const sink = sink_;
  sink->BeforeHost();
  if (segments.empty()) {
    Done();
  } else {
    plane_->host->Push(this);
  }
  sink->HostHasTaken();
}

void PushMessage::Done() { sink_->PushDone(this); }

v1::ReplyHeader& PushMessage::Reply(const v1::Hello* hello) {
  static thread_local v1::ReplyHeader header;
  header.Clear();
  header.set_request(request_);
  if (hello != nullptr) *header.mutable_hello() = *hello;
  if (!refusal_.ok()) {
    FillRefusal(refusal_, asked_, *plane_, &header);
    return header;
  }
  size_t refused = 0;
  size_t taken = 0;
  uint64_t rows = 0;
  for (uint32_t place = 0; place < asked_; ++place) {
    v1::SegmentReply* reply = header.add_segments();
    if (refused < refusals_.size() && refusals_[refused].first == place) {
      FillSegment(refusals_[refused++].second, ShardId{}, *plane_, reply);
      continue;
    }
    const PushSegment& segment = segments[taken++];
    FillSegment(segment.result, segment.shard_id, *plane_, reply);
    const bool push = segment.commit_step == 0;
    if (push && segment.result.code == SegmentCode::kOk) rows += segment.count;
  }
  StreamMetrics::Get().push_rows.Add(rows);
  return header;
}

void PushMessage::Recycle() {
  const bool keep = slices_.bytes <= kRecycledPushBytesMax;
  slices_.Clear();
  if (!keep) {
    delete this;
    return;
  }
  scratch_.Clear();
  segments.clear();
  row_bytes_.clear();
  shards_.clear();
  commit_sessions_.clear();
  refusals_.clear();
  refusal_ = {};
  has_hello_ = reserved_ = false;
  deadline_ns = 0;
  asked_ = 0;
  request_ = 0;
  PushMessagePool().Give(this);
}

void PushStream::Start(DataPlane* plane, RawDataService* service,
                       grpc::ServerCompletionQueue* queue) {
  (new PushStream(plane, service, queue))->Accept();
}

void PushStream::RequestCall(grpc::ServerContext* context, RawStream* stream, void* accept_tag) {
  service_->RequestPush(context, stream, queue_, queue_, accept_tag);
}

void PushStream::OnMessage(grpc::ByteBuffer* raw) {
  StreamMetrics& metrics = StreamMetrics::Get();
  metrics.push_messages.Add(1);
  metrics.push_bytes.Add(raw->Length());
  PushMessage* const message = PushMessage::Take();
  const absl::Status parsed = message->Parse(*raw, plane_, plane_->clock->NowNs());
  raw->Clear();
  if (!Hears(parsed, message)) return;
  OpenRequest(message->bytes());  // never kept back: the push budget bounds it from here on
  message->Run(this);
}

void PushStream::PushDone(PushMessage* message) {
  End(message, [&](const v1::Hello* hello) {
    grpc::ByteBuffer answer = EncodeHeaderOnly(message->Reply(hello));
    StreamMetrics::Get().push_seconds.RecordNs(NowNs() - message->arrival_ns());
    return answer;
  });
}

void PushStream::OnReleased(uint64_t reserved) {
  if (reserved > 0) plane_->push_budget.Release(reserved, &connection()->pushes);
}

}  // namespace hotbed
