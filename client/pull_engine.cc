#include "client/pull_engine.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/check_features.h"
#include "common/status_macros.h"
#include "proto/convert.h"

namespace hotbed {
namespace {

std::string Where(const TableHandle& table, uint32_t shard) {
  return absl::StrCat("table ", table.name(), " shard ", shard);
}

// Bytes [at, at + size) of `from` behind what the field has already.
void AddPiece(const BufferRef& from, uint64_t at, uint64_t size, OutgoingMessage::Bulk* bulk) {
  const char* const data = from.data() + at;
  if (!bulk->pieces.empty() && bulk->pieces.back().data + bulk->pieces.back().size == data) {
    bulk->pieces.back().size += size;
  } else {
    bulk->pieces.push_back({from, data, size});
  }
}

}  // namespace

// One message on its way.
class PullRequest final : public PendingRequest {
 public:
  PullRequest(PullEngine* engine, std::shared_ptr<PullCall> call, absl::Span<const uint32_t> parts,
              int attempt)
      : engine_(engine),
        call_(std::move(call)),
        parts_(parts.begin(), parts.end()),
        attempt_(attempt) {}

  void Done(const absl::Status& transport, const Reply* reply) override {
    if (!call_->Enter()) return;
    engine_->OnReply(call_, parts_, attempt_, transport, reply);
    engine_->LeaveAndResolve(call_);
  }
  bool Abandoned() const override { return call_->closed(); }

 private:
  PullEngine* const engine_;
  const std::shared_ptr<PullCall> call_;
  const absl::InlinedVector<uint32_t, 16> parts_;
  const int attempt_;
};

Future<absl::Status> PullEngine::Start(absl::Span<const PullFeature> features,
                                       const PullOptions& options, Lane lane) {
  CallPtr call;
  const absl::Status planned = Plan(features, options, lane, &call);
  if (!planned.ok()) return Future<absl::Status>::Ready(planned);
  if (call->scratch->PartCount() == 0) return Future<absl::Status>::Ready(absl::OkStatus());
  {
    absl::MutexLock lock(&mu_);
    if (!WaitForRoom(*call)) return Future<absl::Status>::Ready(NoRoomError());
    if (shut_down_)
      return Future<absl::Status>::Ready(absl::CancelledError("the client is closing"));
    bytes_in_flight_ += call->bytes;
    calls_.insert(call);
  }
  context_->timer->AddWatcher();
  Future<absl::Status> future = call->promise.future();
  if (call->Enter()) {
    SendParts(call, call->scratch->part_order, 0);
    LeaveAndResolve(call);
  }
  return future;
}

absl::Status PullEngine::Plan(absl::Span<const PullFeature> features, const PullOptions& options,
                              Lane lane, CallPtr* call) {
  const RowType wire_type =
      options.wire_type == nullptr ? context_->options.pull_type : *options.wire_type;
  HOTBED_RETURN_IF_ERROR(CheckPullFeatures(features, wire_type));
  *call = std::make_shared<PullCall>(TakeScratch(), lane, wire_type,
                                     context_->DeadlineNs(options.deadline),
                                     context_->transport->driver());
  PullScratch& scratch = *(*call)->scratch;
  scratch.features.clear();
  scratch.targets.clear();
  uint64_t ids = 0;
  uint64_t bytes = 0;
  for (const PullFeature& feature : features) {
    scratch.features.push_back(
        {static_cast<const TableHandle*>(feature.table), feature.ids, nullptr, feature.distinct});
    scratch.targets.push_back(
        {static_cast<uint8_t*>(feature.rows), feature.exists, feature.row_type});
    ids += feature.ids.size();
    bytes += feature.ids.size() * RowWireBytes(feature.row_type, feature.table->dim());
    (*call)->want_flags |= feature.exists != nullptr;
  }
  const ClusterMapPtr map = context_->map->Get();
  HOTBED_RETURN_IF_ERROR(CheckFeatures(scratch.features, *map, context_->owner));
  uint64_t zeroed = 0;
  HOTBED_RETURN_IF_ERROR(
      ResolveFeatures(absl::MakeSpan(scratch.features), &scratch.resolved, &zeroed));
  PlanPooled(features, *map, call->get());
  scratch.plan.Build(scratch.features, *map, &scratch.deduper, wire_type,
                     context_->MessageBytesMax(*map) - kSegmentHeaderBytes);
  ClearExists(scratch.plan, scratch.targets);
  ClearSkipped(scratch.features, scratch.targets);
  (*call)->streaming = bytes >= kStreamingBytesMin;
  for (uint32_t p = 0; p < scratch.PartCount(); ++p) {
    (*call)->bytes += scratch.BytesOf(p, wire_type);
  }
  (*call)->parts_left = scratch.PartCount();
  LayOutIds(*map, call->get());
  ClientCounters::Add(&context_->counters.ids_asked, ids);
  ClientCounters::Add(&context_->counters.ids_zeroed, zeroed);
  return absl::OkStatus();
}

// Parts of one server stand together, so that a message takes its ids as one piece.
void PullEngine::LayOutIds(const ClusterMap& map, PullCall* call) {
  PullScratch& scratch = *call->scratch;
  const uint32_t parts = scratch.PartCount();
  scratch.part_order.resize(parts);
  scratch.part_offset.resize(parts);
  for (uint32_t i = 0; i < parts; ++i) scratch.part_order[i] = i;
  const auto server_of = [&](uint32_t part) {
    return map.Table(scratch.TableOf(part).id())->shards[scratch.ShardOf(part)].primary.server;
  };
  const auto before = [&](uint32_t a, uint32_t b) { return server_of(a) < server_of(b); };
  if (!std::is_sorted(scratch.part_order.begin(), scratch.part_order.end(), before)) {
    std::stable_sort(scratch.part_order.begin(), scratch.part_order.end(), before);
  }
  call->ids = BufferRef::Allocate(8 * (scratch.plan.part_rows() + scratch.pooled.ids().size()));
  uint64_t* const ids = reinterpret_cast<uint64_t*>(call->ids.data());
  uint64_t offset = 0;
  for (uint32_t p : scratch.part_order) {
    if (scratch.Pooled(p) != nullptr) continue;
    const PlanPart& part = scratch.plan.parts()[p];
    scratch.part_offset[p] = offset;
    scratch.plan.GatherIds(part, ids + offset);
    offset += part.rows();
  }
  LayOutBags(call, offset);
}

void PullEngine::SendParts(const CallPtr& call, absl::Span<const uint32_t> parts, int attempt) {
  const ClusterMapPtr map = context_->map->Get();
  const PullScratch& scratch = *call->scratch;
  std::vector<uint32_t> waiting;  // their server is not known
  std::vector<uint32_t> message;
  const ServerAddress* to = nullptr;
  const uint64_t bytes_max = context_->MessageBytesMax(*map);
  uint64_t bytes = 0;
  const auto flush = [&] {
    if (!message.empty()) SendMessage(call, *map, to->address, message, attempt);
    message.clear();
    bytes = 0;
  };
  for (uint32_t p : parts) {
    const TableHandle& table = scratch.TableOf(p);
    const ShardRecord* record = map->Shard({table.id(), scratch.ShardOf(p)});
    if (record == nullptr) {
      call->Close(absl::NotFoundError(absl::StrCat("table ", table.name(), " was dropped")));
      return;
    }
    const ServerAddress* server = map->Server(record->primary.server);
    if (server == nullptr) {
      waiting.push_back(p);
      continue;
    }
    const uint64_t part_bytes = scratch.BytesOf(p, call->wire_type);
    if (server != to || bytes + part_bytes > bytes_max ||
        message.size() == kSegmentsPerMessageMax) {
      flush();
    }
    to = server;
    bytes += part_bytes;
    message.push_back(p);
  }
  flush();
  if (!waiting.empty()) {
    call->NoteError(absl::UnavailableError(
        absl::StrCat(waiting.size(), " shards are without a server, the first of table ",
                     scratch.TableOf(waiting[0]).name(), "; is every server up?")));
    context_->follower->RequestRefresh();
    RetryLater(call, std::move(waiting), attempt, 0);
  }
}

void PullEngine::SendMessage(const CallPtr& call, const ClusterMap& map, const std::string& address,
                             absl::Span<const uint32_t> parts, int attempt) {
  thread_local v1::PullHeader header;  // keeps its segments' memory
  header.Clear();
  header.set_row_type(ToProto(call->wire_type));
  header.set_want_flags(call->want_flags);
  const int64_t left_ns = call->deadline_ns - context_->clock->NowNs();
  OutgoingMessage message;
  message.deadline_ms = static_cast<uint32_t>(
      std::clamp<int64_t>(left_ns / 1'000'000, 1, std::numeric_limits<int32_t>::max()));
  const PullScratch& scratch = *call->scratch;
  OutgoingMessage::Bulk ids{v1::PullRequest::kIdsFieldNumber, {}};
  OutgoingMessage::Bulk lengths{v1::PullRequest::kLengthsFieldNumber, {}};
  OutgoingMessage::Bulk weights{v1::PullRequest::kWeightsFieldNumber, {}};
  bool want_arg_max = false;
  for (uint32_t p : parts) {
    const TableHandle& table = scratch.TableOf(p);
    const ShardId shard{table.id(), scratch.ShardOf(p)};
    const Epoch epoch = map.Shard(shard)->epoch;
    v1::PullSegment* segment = header.add_segments();
    segment->set_shard(shard.packed());
    segment->set_epoch(epoch);
    segment->set_id_count(scratch.IdsOf(p));
    if (call->lane == Lane::kPull) segment->set_lsn_min(table.LsnMin(shard.index, epoch));
    AddPiece(call->ids, 8 * scratch.part_offset[p], 8ull * scratch.IdsOf(p), &ids);
    message.reply_bytes += scratch.BytesOf(p, call->wire_type);
    const PooledPart* const part = scratch.Pooled(p);
    if (part == nullptr) continue;
    const PooledFeature& feature = scratch.pooled.features()[part->feature];
    const bool max = feature.pooling == BagPooling::kMax;
    segment->set_pooling(max ? v1::POOLING_MAX : v1::POOLING_SUM);
    segment->set_bag_count(part->bags());
    segment->set_weighted(feature.weights != nullptr);
    segment->set_want_arg_max(feature.arg_max != nullptr);
    want_arg_max |= feature.arg_max != nullptr;
    AddPiece(call->lengths, 4ull * part->begin, 4ull * part->bags(), &lengths);
    if (feature.weights != nullptr) {
      AddPiece(call->weights, 4 * part->weight_at, 4ull * part->ids, &weights);
    }
  }
  message.header = header.SerializeAsString();
  message.segments = static_cast<uint32_t>(parts.size());
  // Requests that are joined have the same bulk fields. Flags and arg_max would need a place of
  // their own in a joined reply; calls that ask for them go alone.
  if (!call->want_flags && !want_arg_max && attempt == 0) {
    message.join_key = 1u + header.row_type() + (lengths.pieces.empty() ? 0 : 8) +
                       (weights.pieces.empty() ? 0 : 16);
  }
  message.bulk.push_back(std::move(ids));
  if (!lengths.pieces.empty()) message.bulk.push_back(std::move(lengths));
  if (!weights.pieces.empty()) message.bulk.push_back(std::move(weights));
  context_->retry->CountRequest();
  context_->transport->Send(address, call->lane, std::move(message),
                            std::make_shared<PullRequest>(this, call, parts, attempt));
}

void PullEngine::RetryLater(const CallPtr& call, std::vector<uint32_t> parts, int attempt,
                            uint32_t retry_after_ms) {
  ClientCounters::Add(&context_->counters.retries, parts.size());
  const int64_t delay_ns = context_->retry->DelayNs(attempt + 1, retry_after_ms);
  context_->timer->RunAfter(delay_ns, [this, call, parts = std::move(parts), attempt] {
    if (!call->Enter()) return;
    SendParts(call, parts, attempt + 1);
    LeaveAndResolve(call);
  });
}

// What the segments of one answer add up to.
struct PullEngine::Outcome {
  uint32_t done = 0;
  std::vector<uint32_t> resend;  // at once: the map knows better now
  std::vector<uint32_t> later;
  uint32_t retry_after_ms = 0;
};

void PullEngine::OnReply(const CallPtr& call, absl::Span<const uint32_t> parts, int attempt,
                         const absl::Status& transport, const Reply* reply) {
  if (!transport.ok()) {
    // FailedPrecondition is the server's "never": another cluster, another wire version.
    if (absl::IsFailedPrecondition(transport)) return call->Close(transport);
    call->NoteError(transport);
    context_->follower->RequestRefresh();
    return RetryLater(call, {parts.begin(), parts.end()}, attempt, 0);
  }
  const v1::ReplyHeader& header = reply->view->header;
  Outcome outcome;
  if (header.code() != v1::OK) {
    v1::SegmentReply refusal;
    refusal.set_code(header.code());
    refusal.set_detail(header.detail());
    for (uint32_t p : parts) OnSegment(call, p, refusal, nullptr, &outcome);
  } else if (reply->segment_count != parts.size()) {
    return call->Close(absl::InternalError(absl::StrCat("a server answered ", reply->segment_count,
                                                        " segments to ", parts.size(), " asked")));
  } else {
    Answer answer{FragmentReader(reply->fragments, reply->view->rows),
                  FragmentReader(reply->fragments, reply->view->flags),
                  FragmentReader(reply->fragments, reply->view->arg_max)};
    answer.rows.Skip(std::min(answer.rows.left(), reply->row_bytes_before));
    for (uint32_t i = 0; i < parts.size(); ++i) {
      OnSegment(call, parts[i], header.segments(static_cast<int>(reply->segment_first + i)),
                &answer, &outcome);
    }
  }
  if (call->closed()) return;
  if (outcome.done != 0 && call->parts_left.fetch_sub(outcome.done) == outcome.done) {
    call->scratch->join.Finish(call->scratch->pooled);
    call->Close(absl::OkStatus());
  }
  if (!outcome.resend.empty()) {
    ClientCounters::Add(&context_->counters.retries, outcome.resend.size());
    SendParts(call, outcome.resend, attempt + 1);
  }
  if (!outcome.later.empty()) {
    RetryLater(call, std::move(outcome.later), attempt, outcome.retry_after_ms);
  }
}

void PullEngine::OnSegment(const CallPtr& call, uint32_t part, const v1::SegmentReply& segment,
                           Answer* answer, Outcome* outcome) {
  const TableHandle& table = call->scratch->TableOf(part);
  const Verdict verdict = VerdictOf(segment.code(), /*push=*/false);
  if (verdict == Verdict::kOk) {
    if (answer == nullptr) return;
    const PooledPart* const pooled = call->scratch->Pooled(part);
    const bool good = pooled == nullptr ? ScatterSegment(call, part, segment, answer)
                                        : ScatterPooled(call, *pooled, segment, answer);
    if (good) ++outcome->done;
    return;
  }
  const absl::Status status =
      StatusOf(segment.code(), Where(table, call->scratch->ShardOf(part)), segment.detail());
  if (verdict == Verdict::kReroute) {
    ClientCounters::Add(&context_->counters.wrong_epoch, 1);
    if (segment.has_record()) {
      const auto record = FromProto(segment.record());
      if (record.ok() && context_->map->ApplyRecord(*record)) {
        outcome->resend.push_back(part);
        return;
      }
    }
    context_->follower->RequestRefresh();
  } else if (verdict != Verdict::kLater) {
    return call->Close(status);
  }
  call->NoteError(status);
  outcome->retry_after_ms = std::max(outcome->retry_after_ms, segment.retry_after_ms());
  outcome->later.push_back(part);
}

bool PullEngine::ScatterSegment(const CallPtr& call, uint32_t part, const v1::SegmentReply& segment,
                                Answer* answer) {
  FragmentReader* const rows = &answer->rows;
  FragmentReader* const flags = &answer->flags;
  const BatchPlan& plan = call->scratch->plan;
  const PlanPart& planned = plan.parts()[part];
  const TableGroup& group = plan.group(planned);
  const uint32_t row_bytes = RowWireBytes(call->wire_type, planned.columns);
  const uint64_t bytes = uint64_t{row_bytes} * planned.rows();
  const uint64_t flag_bytes = call->want_flags ? planned.rows() : 0;
  if (segment.row_bytes() != bytes || rows->left() < bytes || flags->left() < flag_bytes) {
    call->Close(absl::InternalError(absl::StrCat(
        Where(*group.table, planned.shard), ": answered ", segment.row_bytes(), " bytes (",
        rows->left(), " in the message), ", planned.rows(), " rows need ", bytes)));
    return false;
  }
  thread_local std::vector<const uint8_t*> pointers;
  thread_local WireScratch scratch;
  pointers.resize(planned.rows());
  scratch.Clear();
  rows->RowPointers(row_bytes, planned.rows(), pointers.data(), &scratch);
  ScatterJob job;
  job.group = &group;
  job.part = &planned;
  job.targets = call->scratch->targets;
  job.wire_type = call->wire_type;
  job.rows = pointers.data();
  job.flags = flag_bytes == 0 ? nullptr : flags->Contiguous(flag_bytes, 1, &scratch);
  job.streaming = call->streaming;
  Scatter(job);
  // A row of several slices counts once.
  if (planned.column_first == 0) {
    ClientCounters::Add(&context_->counters.rows_pulled, planned.rows());
  }
  return true;
}

}  // namespace hotbed
