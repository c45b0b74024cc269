#include "server/streams/push_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/tables/table_spec.h"
#include "proto/convert.h"
#include "proto/segments.h"
#include "server/net/object_pool.h"
#include "server/net/stream_metrics.h"
#include "server/protocol/core_messages.h"

namespace hotbed {
namespace {

constexpr size_t kIdlePushMessagesMax = 64;
constexpr uint64_t kRecycledPushBytesMax = 2 << 20;  // ids and pointers are a fraction of it
constexpr uint64_t kRowBytesUnknown = ~uint64_t{0};
constexpr uint64_t kStepMax = (uint64_t{1} << (64 - kStepShift)) - 1;
constexpr uint32_t kNumberMax = (1u << kStepShift) - 1;

ObjectPool<PushMessage>& PushMessagePool() {
  static auto* const pool = new ObjectPool<PushMessage>(kIdlePushMessagesMax);
  return *pool;
}

// True, with `why`: the caller may not push to the segment's table.
bool IsDenied(const PushSegment& segment, StreamTables* tables, std::string* why) {
  if (tables == nullptr || segment.shard == nullptr) return false;
  const absl::Status& checked = tables->Check(segment.shard_id.table, *segment.shard);
  if (!checked.ok()) *why = std::string(checked.message());
  return !checked.ok();
}

}  // namespace

PushMessage* PushMessage::Take() { return PushMessagePool().Take(); }

void PushMessage::Refuse(SegmentCode code, std::string detail) {
  refusal_ = {code, std::move(detail)};
  segments.clear();
}

absl::Status PushMessage::Parse(const grpc::ByteBuffer& message, DataPlane* plane, int64_t now_ns,
                                StreamTables* tables) {
  static thread_local PushRequestView view;  // the generated header keeps its memory
  plane_ = plane;
  arrival_ns_ = now_ns;
  stages.Begin(plane->slow.stage_clock());
  slices_.Load(message);
  const absl::Status parsed = ParsePushRequest(slices_.fragments, &view);
  if (parsed.ok() && TakeHeader(view) && FindDims(view)) AddSegments(view, tables);
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
  traces_.Take(header.traceparents());
  const uint64_t asked = CountSegments(header.groups());
  asked_ = static_cast<uint32_t>(asked);
  if (asked > limits.segments_max) {
    Refuse(
        SegmentCode::kInvalidArgument,
        absl::StrCat("the message has ", asked, " segments, the limit is ", limits.segments_max));
  } else if (bytes() > limits.message_bytes_max) {
    Refuse(SegmentCode::kInvalidArgument,
           absl::StrCat("the message has ", bytes(), " bytes, the limit is ",
                        limits.message_bytes_max, ": send smaller batches"));
  } else if (asked_ == 0) {
    Refuse(SegmentCode::kInvalidArgument, "the message has no segments");
  } else if (const auto type = GradientTypeFromProto(header.gradient_type()); !type.ok()) {
    Refuse(SegmentCode::kInvalidArgument, std::string(type.status().message()));
  } else if (std::string error = ColumnError(header); !error.empty()) {
    Refuse(SegmentCode::kInvalidArgument, std::move(error));
  } else {
    gradient_type = *type;
  }
  return refusal_.ok();
}

// Finds the bytes per gradient row of each segment: from the segment, else from its shard or the
// shard's record, else (for one segment only) from the bytes that the others leave. This locates
// the gradients of each segment, so that a refused segment does not affect the others.
bool PushMessage::FindDims(const PushRequestView& view) {
  static thread_local std::vector<ShardId> names;
  names.clear();
  for (const v1::PushGroup& group : view.header.groups()) {
    for (const uint32_t index : group.shards()) names.push_back({group.table(), index});
  }
  shards = plane_->host->FindAll(names, &found_);
  KnownBytes known;
  uint32_t number = 0;
  for (const v1::PushGroup& group : view.header.groups()) {
    const Column id_counts(group.id_counts());
    const Column dims(group.dims());
    for (int i = 0; i < group.shards_size(); ++i, ++number) {
      if (group.deletes()) {  // no gradients
        row_bytes_.push_back(0);
        known.ids += id_counts[i];
      } else if (!FindDim(number, names[number], id_counts[i], dims[i], group.shows(), &known)) {
        return false;
      }
    }
  }
  if (known.ids * 8 != view.ids.bytes) {
    Refuse(SegmentCode::kInvalidArgument,
           absl::StrCat("the segments name ", known.ids, " ids of 8 bytes, the field ids has ",
                        view.ids.bytes, " bytes"));
    return false;
  }
  if (known.unknown_ids > 0 && view.gradients.bytes >= known.bytes) {
    uint64_t& row_bytes = row_bytes_[known.unknown];
    row_bytes = (view.gradients.bytes - known.bytes) / known.unknown_ids;
    known.bytes += row_bytes * known.unknown_ids;
  }
  if (known.bytes != view.gradients.bytes) {
    Refuse(
        SegmentCode::kInvalidArgument,
        absl::StrCat("the rows of ", known.ids, " ids take ", known.bytes, " bytes of ", asked_,
                     " segments' dims, the field gradients has ", view.gradients.bytes, " bytes"));
    return false;
  }
  return true;
}

bool PushMessage::FindDim(uint32_t number, ShardId id, uint32_t ids, uint32_t dim, bool shows,
                          KnownBytes* known) {
  known->ids += ids;
  if (dim > kDimMax) {
    Refuse(SegmentCode::kInvalidArgument,
           absl::StrCat("segment ", number, " for ", id.ToString(), " says dim ", dim,
                        ", the limit is ", kDimMax));
    return false;
  }
  if (dim == 0) {
    if (found_[number] != nullptr) {
      dim = ShardHost::DimOf(*found_[number]);
    } else if (const auto record = plane_->host->RecordOf(id)) {
      dim = record->range.column_limit - record->range.column_first;
    }
  }
  const uint32_t more = shows ? kShowBytes : 0;
  row_bytes_.push_back(dim == 0 ? kRowBytesUnknown : RowWireBytes(gradient_type, dim) + more);
  if (dim > 0) {
    known->bytes += row_bytes_.back() * ids;
  } else if (ids > 0 && known->unknown_ids == 0) {
    known->unknown = number;
    known->unknown_ids = ids;
  } else if (ids > 0) {
    Refuse(SegmentCode::kUnknownShard,
           absl::StrCat("segments ", known->unknown, " and ", number,
                        " name shards unknown here and no dim, so the gradients of the others "
                        "cannot be found: refresh the map or set dim"));
    return false;
  }
  return true;
}

void PushMessage::AddSegments(const PushRequestView& view, StreamTables* tables) {
  const uint64_t count_all = view.ids.bytes / 8;
  if (ids_.size() < count_all) ids_.resize(count_all);
  if (gradients_.size() < count_all) gradients_.resize(count_all);
  FragmentReader(slices_.fragments, view.ids).CopyTo(ids_.data(), view.ids.bytes);
  FragmentReader reader(slices_.fragments, view.gradients);
  segments.reserve(asked_);
  uint64_t at = 0;
  uint32_t first = 0;
  for (const v1::PushGroup& group : view.header.groups()) {
    if (group.commit() != 0) {
      AddCommits(view.header, group, first, tables);
      const Column id_counts(group.id_counts());  // rows that a commit must not have
      for (int i = 0; i < group.shards_size(); ++i) {
        at += id_counts[i];
        if (id_counts[i] > 0) reader.Skip(id_counts[i] * row_bytes_[first + i]);
      }
    } else {
      AddGroup(group, first, tables, &at, &reader);
    }
    first += static_cast<uint32_t>(group.shards_size());
  }
}

void PushMessage::AddGroup(const v1::PushGroup& group, uint32_t first, StreamTables* tables,
                           uint64_t* at, FragmentReader* reader) {
  const Column epochs(group.epochs());
  const Column id_counts(group.id_counts());
  const Column numbers(group.numbers());
  const Column distances(group.distances());
  const Column opens(group.opens());
  const Column last_parts(group.last_parts());
  for (int i = 0; i < group.shards_size(); ++i) {
    const uint32_t number = first + static_cast<uint32_t>(i);
    const uint32_t count = id_counts[i];
    const uint64_t row_bytes = row_bytes_[number];
    PushSegment& segment = segments.emplace_back();
    segment.shard = found_[number];
    segment.shard_id = {group.table(), group.shards(i)};
    SegmentCode refusal = SegmentCode::kInvalidArgument;
    std::string error = SegmentError(segment, count, row_bytes, group, numbers[i]);
    if (error.empty() && IsDenied(segment, tables, &error)) {
      refusal = SegmentCode::kPermissionDenied;
    }
    if (!error.empty()) {
      RefuseLast(refusal, std::move(error));
      if (count > 0) reader->Skip(count * row_bytes);
      *at += count;
      continue;
    }
    segment.epoch = epochs[i];
    segment.ids = &ids_[*at];
    segment.count = count;
    segment.gradients = &gradients_[*at];
    segment.seq = group.step() << kStepShift | numbers[i];
    segment.prev_seq = distances[i] == 0 ? 0 : segment.seq - distances[i];
    segment.open = opens[i];
    segment.last_part = last_parts[i];
    segment.has_learning_rate = group.has_learning_rate();
    segment.learning_rate = group.learning_rate();
    segment.assign = group.assign();
    segment.deletes = group.deletes();
    segment.shows = group.shows();
    if (segment.deletes) {
      segment.gradients = nullptr;
    } else if (segment.shard == nullptr) {
      reader->Skip(count * row_bytes);
    } else {
      reader->RowPointers(row_bytes, count, &gradients_[*at], &scratch_);
    }
    *at += count;
  }
}

std::string PushMessage::SegmentError(const PushSegment& segment, uint32_t count,
                                      uint64_t row_bytes, const v1::PushGroup& group,
                                      uint32_t number) const {
  const uint64_t step = group.step();
  if (count == 0) return group.deletes() ? "deletes no rows" : "pushes no rows";
  if (group.deletes() && group.assign()) return "deletes rows and assigns them; one is allowed";
  if (group.shows() && (group.deletes() || group.assign())) {
    return "has shows and clicks of rows that it deletes or assigns; push them with gradients";
  }
  if (step > kStepMax || number > kNumberMax) {
    return absl::StrCat("has step ", step, " and number ", number, "; the limits are ", kStepMax,
                        " and ", kNumberMax);
  }
  if (segment.shard == nullptr) return "";
  if (group.deletes()) {
    if (ShardHost::IsHashed(*segment.shard)) return "";
    return "deletes rows of a bounded table; assign them new weights instead";
  }
  const uint32_t dim = ShardHost::DimOf(*segment.shard);
  const uint64_t needed = RowWireBytes(gradient_type, dim) + (group.shows() ? kShowBytes : 0);
  if (needed == row_bytes) return "";
  return absl::StrCat("pushes rows of ", row_bytes, " bytes, the shard has dim ", dim, ", rows of ",
                      needed, " bytes");
}

// Takes the newest segment back.
void PushMessage::RefuseLast(SegmentCode code, std::string error) {
  const uint32_t number = static_cast<uint32_t>(segments.size() - 1 + refusals_.size());
  SegmentResult refused;
  refused.code = code;
  refused.detail =
      absl::StrCat("segment ", number, " for ", segments.back().shard_id.ToString(), " ", error);
  refusals_.emplace_back(number, std::move(refused));
  segments.pop_back();
}

void PushMessage::AddCommits(const v1::PushHeader& header, const v1::PushGroup& group,
                             uint32_t first, StreamTables* tables) {
  const uint32_t index = group.commit() - 1;
  const Column epochs(group.epochs());
  const Column id_counts(group.id_counts());
  const uint32_t commits = static_cast<uint32_t>(header.commits_size());
  if (commit_sessions_.empty()) {
    for (const v1::StepCommit& commit : header.commits()) {
      commit_sessions_.emplace_back(commit.sessions().begin(), commit.sessions().end());
    }
  }
  std::string denied;
  for (int i = 0; i < group.shards_size(); ++i) {
    PushSegment& segment = segments.emplace_back();
    segment.shard = found_[first + static_cast<uint32_t>(i)];
    segment.shard_id = {group.table(), group.shards(i)};
    if (IsDenied(segment, tables, &denied)) {
      RefuseLast(SegmentCode::kPermissionDenied, denied);
    } else if (id_counts[i] != 0) {
      RefuseLast(SegmentCode::kInvalidArgument,
                 absl::StrCat("is a commit and has ", id_counts[i], " rows; allowed is none"));
    } else if (index >= commits || header.commits(index).step() == 0) {
      RefuseLast(SegmentCode::kInvalidArgument,
                 absl::StrCat("names commit ", index + 1, " of ", commits,
                              "; it must be there, and its step above 0"));
    } else {
      segment.epoch = epochs[i];
      segment.ids = commit_sessions_[index].data();
      segment.count = static_cast<uint32_t>(commit_sessions_[index].size());
      segment.commit_step = header.commits(index).step();
    }
  }
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
  stages.NoteAll(RequestStages::kMemory);
  reserved_ = true;
  Work();
}

void PushMessage::Expired() {
  stages.NoteAll(RequestStages::kMemory);
  Work();
}

AnsweredRequest PushMessage::Describe() const {
  AnsweredRequest request;
  request.request_bytes = bytes();
  request.traces = &traces_;
  request.stages = &stages;
  for (const PushSegment& segment : segments) {
    if (segment.commit_step == 0) request.rows += segment.count;
  }
  DescribeSegments(segments, &request);
  return request;
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
  ReplyWriter writer(*plane_, request_, asked_, hello, &header);
  if (!refusal_.ok()) {
    writer.RefuseAll(refusal_);
    return header;
  }
  size_t refused = 0;
  size_t taken = 0;
  uint64_t rows = 0;
  for (uint32_t number = 0; number < asked_; ++number) {
    if (refused < refusals_.size() && refusals_[refused].first == number) {
      writer.Add(refusals_[refused++].second, ShardId{}, 0, 0);
      continue;
    }
    const PushSegment& segment = segments[taken++];
    const bool push = segment.commit_step == 0;
    writer.Add(segment.result, segment.shard_id, segment.epoch,
               push ? segment.seq : segment.result.last_seq);
    if (push && segment.result.code == SegmentCode::kOk) rows += segment.count;
  }
  writer.Finish();
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
  shards.reset();
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
  const absl::Status parsed = message->Parse(*raw, plane_, plane_->clock->NowNs(), tables());
  raw->Clear();
  if (!Hears(parsed, message)) return;
  OpenRequest(message->bytes());  // never kept back: the push budget bounds it from here on
  message->Run(this);
}

void PushStream::PushDone(PushMessage* message) {
  End(message, [&](const v1::Hello* hello) {
    const int64_t since_ns = message->stages.NowNs();
    grpc::ByteBuffer answer = EncodeHeaderOnly(message->Reply(hello));
    const int64_t took_ns = NowNs() - message->arrival_ns();
    StreamMetrics::Get().push_seconds.RecordNs(took_ns);
    LogIfSlow(&plane_->slow, RequestKind::kPush, *message, took_ns, since_ns,
              connection()->pushes.peer);
    return answer;
  });
}

void PushStream::OnReleased(uint64_t reserved) {
  if (reserved > 0) plane_->push_budget.Release(reserved, &connection()->pushes);
}

}  // namespace hotbed
