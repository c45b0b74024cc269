#include "client/pull/pull_engine.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/batch/check_features.h"
#include "common/status_macros.h"
#include "proto/convert.h"

namespace hotbed {
namespace {

absl::Status CheckConsistency(const PullOptions& options) {
  if (options.strict && options.read_from == ReadFrom::kAny) {
    return absl::InvalidArgumentError(
        "PullOptions: strict pulls are answered by the primary alone; read_from is kAny, allowed: "
        "kDefault, kPrimary");
  }
  if (options.staleness_max < absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrCat("PullOptions::staleness_max is ",
                                                   absl::FormatDuration(options.staleness_max),
                                                   "; allowed: 0 (no limit) or more"));
  }
  return absl::OkStatus();
}

// Rounded up: 0 is no limit.
uint32_t StalenessMs(absl::Duration staleness) {
  const int64_t ms = absl::ToInt64Milliseconds(absl::Ceil(staleness, absl::Milliseconds(1)));
  return static_cast<uint32_t>(std::min<int64_t>(ms, std::numeric_limits<int32_t>::max()));
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
              PullEngine::Sent sent)
      : engine_(engine),
        call_(std::move(call)),
        parts_(parts.begin(), parts.end()),
        sent_(std::move(sent)) {}

  void Done(const absl::Status& transport, const Reply* reply) override {
    if (!call_->Enter()) return;
    engine_->OnReply(call_, parts_, sent_, transport, reply);
    engine_->LeaveAndResolve(call_);
  }
  bool Abandoned() const override { return call_->closed(); }

 private:
  PullEngine* const engine_;
  const std::shared_ptr<PullCall> call_;
  const absl::InlinedVector<uint32_t, 16> parts_;
  const PullEngine::Sent sent_;
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
  HOTBED_RETURN_IF_ERROR(CheckConsistency(options));
  *call = std::make_shared<PullCall>(TakeScratch(), lane, wire_type,
                                     context_->DeadlineNs(options.deadline),
                                     context_->transport->driver());
  (*call)->strict = options.strict;
  (*call)->staleness_ms_max = StalenessMs(options.staleness_max);
  (*call)->read_from = options.strict                            ? ReadFrom::kPrimary
                       : options.read_from == ReadFrom::kDefault ? context_->options.read_from
                                                                 : options.read_from;
  (*call)->turn = context_->reads->NextTurn();
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

ServerId PullEngine::ReaderOf(const PullCall& call, const ClusterMap& map, uint32_t part,
                              int attempt) const {
  const TableHandle& table = call.scratch->TableOf(part);
  const ShardRecord* const record = map.Shard({table.id(), call.scratch->ShardOf(part)});
  if (record == nullptr) return 0;
  const TableOptions& options = table.options();
  // Of a table with one copy another member is there for the time of a move, and LsnMin does not
  // see over its epochs.
  const bool any = (call.read_from == ReadFrom::kAny && options.copies > 1) ||
                   (call.read_from != ReadFrom::kPrimary && options.data_parallel);
  if (!any || attempt > 0) return record->primary.server;
  return context_->reads->Choose(*record, call.turn, context_->clock->NowNs());
}

void PullEngine::SendParts(const CallPtr& call, absl::Span<const uint32_t> parts, int attempt) {
  const ClusterMapPtr map = context_->map->Get();
  const PullScratch& scratch = *call->scratch;
  std::vector<std::pair<ServerId, uint32_t>> order;  // by server, then as the ids lie
  for (uint32_t p : parts) {
    const TableHandle& table = scratch.TableOf(p);
    if (map->Shard({table.id(), scratch.ShardOf(p)}) == nullptr) {
      call->Close(absl::NotFoundError(absl::StrCat("table ", table.name(), " was dropped")));
      return;
    }
    order.emplace_back(ReaderOf(*call, *map, p, attempt), p);
  }
  const auto before = [](const auto& a, const auto& b) { return a.first < b.first; };
  if (!std::is_sorted(order.begin(), order.end(), before)) {
    std::stable_sort(order.begin(), order.end(), before);
  }
  std::vector<uint32_t> waiting;  // their server is not known
  std::vector<uint32_t> message;
  const ServerAddress* to = nullptr;
  const uint64_t bytes_max = context_->MessageBytesMax(*map);
  uint64_t bytes = 0;
  const auto flush = [&] {
    if (!message.empty()) {
      SendMessage(call, message, {map, to, context_->clock->NowNs(), attempt});
    }
    message.clear();
    bytes = 0;
  };
  for (const auto& [id, p] : order) {
    const ServerAddress* server = map->Server(id);
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
    RetryLater(call, std::move(waiting), attempt, 0, /*busy=*/false);
  }
}

void PullEngine::SendMessage(const CallPtr& call, absl::Span<const uint32_t> parts, Sent sent) {
  thread_local v1::PullHeader header;  // keeps its segments' memory
  header.Clear();
  header.set_row_type(ToProto(call->wire_type));
  header.set_want_flags(call->want_flags);
  header.set_strict(call->strict);
  header.set_staleness_ms_max(call->staleness_ms_max);
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
    const Epoch epoch = sent.map->Shard(shard)->epoch;
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
  if (!call->want_flags && !want_arg_max && sent.attempt == 0) {
    message.join_key = 1u + header.row_type() + (lengths.pieces.empty() ? 0 : 8) +
                       (weights.pieces.empty() ? 0 : 16) + (call->strict ? 32 : 0) +
                       (uint64_t{call->staleness_ms_max} << 8);
  }
  message.bulk.push_back(std::move(ids));
  if (!lengths.pieces.empty()) message.bulk.push_back(std::move(lengths));
  if (!weights.pieces.empty()) message.bulk.push_back(std::move(weights));
  context_->retry->CountRequest();
  const std::string& address = sent.to->address;
  context_->transport->Send(address, call->lane, std::move(message),
                            std::make_shared<PullRequest>(this, call, parts, sent));
}

void PullEngine::RetryLater(const CallPtr& call, std::vector<uint32_t> parts, int attempt,
                            uint32_t retry_after_ms, bool busy) {
  ClientCounters::Add(&context_->counters.retries, parts.size());
  const int64_t delay_ns = busy ? context_->retry->DelayNs(attempt + 1, retry_after_ms)
                                : context_->retry->SoonNs(attempt + 1, retry_after_ms);
  context_->timer->RunAfter(delay_ns, [this, call, parts = std::move(parts), attempt] {
    if (!call->Enter()) return;
    SendParts(call, parts, attempt + 1);
    LeaveAndResolve(call);
  });
}

}  // namespace hotbed
