#include "client/pull/pull_engine.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "client/net/call_trace.h"
#include "client/net/message_limits.h"
#include "client/pull/pull_answer.h"
#include "client/pull/pull_message.h"
#include "client/pull/pull_prepare.h"
#include "common/status_macros.h"
#include "proto/segments.h"

namespace hotbed {
namespace {

// Rounded up, because 0 means unlimited.
uint32_t StalenessMs(absl::Duration staleness) {
  const int64_t ms = absl::ToInt64Milliseconds(absl::Ceil(staleness, absl::Milliseconds(1)));
  return static_cast<uint32_t>(std::min<int64_t>(ms, std::numeric_limits<int32_t>::max()));
}

}  // namespace

// One message in flight.
class PullRequest final : public PendingRequest, public WaitingRead {
 public:
  PullRequest(PullEngine* engine, std::shared_ptr<PullCall> call, absl::Span<const uint32_t> parts,
              PullEngine::Sent sent)
      : engine_(engine),
        call_(std::move(call)),
        parts_(parts.begin(), parts.end()),
        sent_(std::move(sent)) {}

  void Done(const absl::Status& transport, const ServerReply* reply) override {
    engine_->waiting_.Remove(this);
    const int64_t now_ns = engine_->use_.clock->NowNs();
    if (transport.ok()) {
      engine_->reads_->Answered(sent_.to->server, now_ns - sent_.at_ns);
    } else {
      engine_->reads_->Failed(sent_.to->server, now_ns);
    }
    Take(transport, reply);
  }
  void NotSent(const absl::Status& why) override {
    if (!Abandoned()) return Done(why, nullptr);
    engine_->waiting_.Remove(this);
    engine_->reads_->NotSent(sent_.to->server);
  }
  bool Abandoned() const override { return call_->closed(); }

  ServerId server() const override { return sent_.to->server; }
  int64_t sent_ns() const override { return sent_.at_ns; }
  int AskOthers(bool bounded) override {
    if (!call_->Enter()) return 0;
    const int asked = engine_->AskOthers(call_, parts_, sent_, bounded);
    engine_->calls_.Leave(call_);
    return asked;
  }

 private:
  void Take(const absl::Status& transport, const ServerReply* reply) {
    if (!call_->Enter()) return;
    engine_->OnReply(call_, parts_, sent_, transport, reply);
    engine_->calls_.Leave(call_);
  }

  PullEngine* const engine_;
  const std::shared_ptr<PullCall> call_;
  const absl::InlinedVector<uint32_t, 16> parts_;
  const PullEngine::Sent sent_;
};

// The sum of the segments of one answer.
struct PullEngine::Outcome {
  uint32_t done = 0;
  std::vector<uint32_t> resend;  // at once: the map has a newer record, or the primary may answer
  std::vector<uint32_t> later;
  uint32_t retry_after_ms = 0;
  bool busy = false;
};

PullEngine::PullEngine(const EngineParts& parts, ReadChoice* reads)
    : use_(parts),
      reads_(reads),
      calls_(static_cast<size_t>(parts.options->pulls_in_flight_max),
             parts.options->pull_bytes_in_flight_max, parts.clock, parts.transport, parts.timer,
             &parts.counters->rows_missing, [this](PullCall* call) { PlanAgain(call); }) {}

Future<absl::Status> PullEngine::Start(absl::Span<const PullFeature> features,
                                       const PullOptions& options, Lane lane, int64_t deadline_ns) {
  std::string traceparent;
  absl::Status traced = TakeTrace(&traceparent);
  if (!traced.ok()) return Future<absl::Status>::Ready(std::move(traced));
  absl::StatusOr<CallPtr> prepared = Prepare(features, options, lane, deadline_ns);
  if (!prepared.ok()) {
    return Future<absl::Status>::Ready(InTrace(prepared.status(), traceparent));
  }
  const CallPtr call = *std::move(prepared);
  call->traceparent = std::move(traceparent);
  if (call->scratch->PartCount() == 0) return Future<absl::Status>::Ready(absl::OkStatus());
  absl::Status admitted = calls_.Admit(call);
  if (!admitted.ok()) {
    return Future<absl::Status>::Ready(calls_.EndNotAdmitted(call.get(), std::move(admitted)));
  }
  Future<absl::Status> future = call->promise.future();
  if (call->Enter()) {
    SendParts(call, call->scratch->part_order, 0);
    calls_.Leave(call);
  }
  return future;
}

absl::StatusOr<PullEngine::CallPtr> PullEngine::Prepare(absl::Span<const PullFeature> features,
                                                        const PullOptions& options, Lane lane,
                                                        int64_t deadline_ns) {
  const RowType wire_type =
      options.wire_type == nullptr ? use_.options->pull_type : *options.wire_type;
  HOTBED_RETURN_IF_ERROR(CheckPull(features, options, wire_type));
  auto call = std::make_shared<PullCall>(calls_.TakeScratch(), lane, wire_type, deadline_ns,
                                         use_.transport->driver());
  call->strict = options.strict;
  call->staleness_ms_max = StalenessMs(options.staleness_max);
  call->read_from = options.strict                            ? ReadFrom::kPrimary
                    : options.read_from == ReadFrom::kDefault ? use_.options->read_from
                                                              : options.read_from;
  call->turn = reads_->NextTurn();
  call->features.assign(features.begin(), features.end());
  call->options = options;
  PlanInput input{use_.map->Get(), use_.owner, 0};
  call->cuts = input.map->cuts();
  input.segment_bytes_max = use_.SegmentBytesMaxOf(*input.map);
  PullPlanCounts counts;
  HOTBED_RETURN_IF_ERROR(PlanPull(features, input, call.get(), &counts));
  use_.counters->ids_asked += counts.ids;
  use_.counters->ids_zeroed += counts.zeroed;
  return call;
}

// Nothing of the old call can write to the caller's buffers any more.
void PullEngine::PlanAgain(PullCall* superseded) {
  PullOptions options = superseded->options;
  options.wire_type = &superseded->wire_type;
  absl::StatusOr<CallPtr> prepared =
      Prepare(superseded->features, options, superseded->lane, superseded->deadline_ns);
  if (!prepared.ok()) {
    return superseded->promise.Set(InTrace(prepared.status(), superseded->traceparent));
  }
  const CallPtr call = *std::move(prepared);
  call->traceparent = std::move(superseded->traceparent);
  call->promise = std::move(superseded->promise);
  if (absl::Status admitted = calls_.Admit(call, /*waits=*/false); !admitted.ok()) {
    return call->promise.Set(calls_.EndNotAdmitted(call.get(), std::move(admitted)));
  }
  if (!call->Enter()) return;
  SendParts(call, call->scratch->part_order, /*attempt=*/1);
  calls_.Leave(call);
}

bool PullEngine::MayAskAny(const PullCall& call, const TableHandle& table) {
  const TableOptions& options = table.options();
  // A shard of a table with one replica has a second member only while it moves, and LsnMin does
  // not carry over to another of its epochs.
  return (call.read_from == ReadFrom::kAny && options.replicas > 1) ||
         (call.read_from != ReadFrom::kPrimary && options.data_parallel);
}

absl::StatusOr<PullEngine::ByServer> PullEngine::SortByServer(const PullCall& call,
                                                              const ClusterMap& map,
                                                              absl::Span<const uint32_t> parts,
                                                              int attempt) const {
  ByServer order;
  order.reserve(parts.size());
  TargetFinder targets(map);
  for (uint32_t p : parts) {
    const TableHandle& table = call.scratch->TableOf(p);
    const uint32_t shard = call.scratch->ShardOf(p);
    const TableRoute::Target* const target = targets.Of(table.id(), shard);
    if (target == nullptr) {
      return absl::NotFoundError(absl::StrCat("table ", table.name(), " was dropped"));
    }
    const bool any = attempt == 0 && MayAskAny(call, table);
    order.emplace_back(
        any ? reads_->Choose(*map.Shard({table.id(), shard}), call.turn, use_.clock->NowNs())
            : target->primary,
        p);
  }
  const auto before = [](const auto& a, const auto& b) { return a.first < b.first; };
  // Stable: the parts of a server stay in the order of their ids in the buffer.
  if (!std::is_sorted(order.begin(), order.end(), before)) {
    std::stable_sort(order.begin(), order.end(), before);
  }
  return order;
}

void PullEngine::SendParts(const CallPtr& call, absl::Span<const uint32_t> parts, int attempt) {
  const ClusterMapPtr map = use_.map->Get();
  if (map->cuts() != call->cuts) return call->Supersede();
  const absl::StatusOr<ByServer> order = SortByServer(*call, *map, parts, attempt);
  if (!order.ok()) return call->Close(order.status());
  SendSorted(call, *order, map, attempt);
}

template <typename Send>
std::vector<uint32_t> PullEngine::CutMessages(const PullCall& call, const ByServer& order,
                                              const ClusterMap& map, const Send& send) const {
  const PullScratch& scratch = *call.scratch;
  std::vector<uint32_t> without_server;
  std::vector<uint32_t> message;
  const ServerAddress* to = nullptr;
  const ServerAddress* server = nullptr;
  ServerId found = 0;
  const uint64_t bytes_max = use_.SegmentBytesMaxOf(map);
  uint64_t bytes = 0;
  const auto flush = [&] {
    if (!message.empty()) send(to, message);
    message.clear();
    bytes = 0;
  };
  for (const auto& [id, p] : order) {
    if (id != found) {
      found = id;
      server = map.Server(id);
    }
    if (server == nullptr) {
      without_server.push_back(p);
      continue;
    }
    const uint64_t part_bytes = scratch.BytesOf(p, call.wire_type);
    if (server != to || bytes + part_bytes > bytes_max ||
        message.size() == kSegmentsPerMessageMax) {
      flush();
    }
    to = server;
    bytes += part_bytes;
    message.push_back(p);
  }
  flush();
  return without_server;
}

void PullEngine::SendSorted(const CallPtr& call, const ByServer& order, const ClusterMapPtr& map,
                            int attempt) {
  std::vector<uint32_t> without_server = CutMessages(
      *call, order, *map, [&](const ServerAddress* to, absl::Span<const uint32_t> parts) {
        SendMessage(call, parts, {map, to, use_.clock->NowNs(), attempt, /*hedge=*/false});
      });
  if (without_server.empty()) return;
  call->NoteError(absl::UnavailableError(
      absl::StrCat(without_server.size(), " shards are without a server, the first of table ",
                   call->scratch->TableOf(without_server[0]).name(), "; is every server up?")));
  use_.follower->RequestRefresh();
  RetryLater(call, std::move(without_server), attempt, 0, /*busy=*/false);
}

void PullEngine::SendMessage(const CallPtr& call, absl::Span<const uint32_t> parts,
                             const Sent& sent) {
  const bool first = sent.attempt == 0 && !sent.hedge;
  OutgoingMessage message =
      BuildPullMessage(*call, parts, *sent.map, call->deadline_ns - use_.clock->NowNs(),
                       /*may_join=*/first);
  use_.retry->CountRequest();
  bool any = false;
  const TableHandle* table = nullptr;
  for (const uint32_t p : parts) {
    if (first && !call->partial) {
      call->scratch->BeginFirst(p);
    } else {
      call->scratch->BeginPart(p);
    }
    const TableHandle& of_part = call->scratch->TableOf(p);
    if (&of_part == table) continue;
    table = &of_part;
    any |= MayAskAny(*call, of_part);
  }
  reads_->Sent(sent.to->server);
  const std::string& address = sent.to->address;
  auto request = std::make_shared<PullRequest>(this, call, parts, sent);
  if (any && !sent.hedge) {
    waiting_.Add(request);
    StartWatch();
  }
  use_.transport->Send(address, call->lane, std::move(message), std::move(request));
}

// --- answers that take long

void PullEngine::StartWatch() {
  if (watching_.load(std::memory_order_relaxed) || watching_.exchange(true)) return;
  use_.timer->RunAfter(ReadChoice::kWatchNs, [this] { Watch(); });
}

void PullEngine::Watch() {
  const int64_t now_ns = use_.clock->NowNs();
  reads_->Watch(now_ns);
  const int64_t hedge_after_ns = reads_->HedgeAfterNs();
  for (const std::shared_ptr<WaitingRead>& read : waiting_.NotAskedTwice()) {
    const bool silent = reads_->Silent(read->server());
    const bool late = now_ns - read->sent_ns() >= hedge_after_ns;
    if (!silent && !(late && reads_->MayHedge())) continue;
    const int messages = read->AskOthers(/*bounded=*/!silent);
    if (messages == 0) continue;
    waiting_.NoteAskedTwice(read.get());
    (silent ? use_.counters->hedges_of_silent : use_.counters->hedges) += messages;
  }
  if (!waiting_.empty()) return use_.timer->RunAfter(ReadChoice::kWatchNs, [this] { Watch(); });
  watching_ = false;
  if (!waiting_.empty()) StartWatch();
}

int PullEngine::AskOthers(const CallPtr& call, absl::Span<const uint32_t> parts, const Sent& sent,
                          bool bounded) {
  const ClusterMapPtr map = use_.map->Get();
  if (map->cuts() != call->cuts) return 0;
  ByServer order;
  for (const uint32_t p : parts) {
    if (!MayAskAny(*call, call->scratch->TableOf(p)) || call->scratch->PartIsTaken(p)) continue;
    const ShardRecord* const record =
        map->Shard({call->scratch->TableOf(p).id(), call->scratch->ShardOf(p)});
    if (record == nullptr) continue;
    const auto other = reads_->ChooseOther(*record, sent.to->server, call->turn);
    if (other.has_value()) order.emplace_back(*other, p);
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  int messages = 0;
  CutMessages(*call, order, *map,
              [&](const ServerAddress*, absl::Span<const uint32_t>) { ++messages; });
  if (messages == 0 || (bounded && !reads_->TakeHedges(messages))) return 0;
  CutMessages(*call, order, *map, [&](const ServerAddress* to, absl::Span<const uint32_t> hedged) {
    SendMessage(call, hedged, {map, to, use_.clock->NowNs(), sent.attempt, /*hedge=*/true});
  });
  return messages;
}

void PullEngine::ResendNow(const CallPtr& call, absl::Span<const uint32_t> parts, int attempt) {
  use_.counters->retries += parts.size();
  SendParts(call, parts, attempt + 1);
}

void PullEngine::RetryLater(const CallPtr& call, std::vector<uint32_t> parts, int attempt,
                            uint32_t retry_after_ms, bool busy) {
  use_.counters->retries += parts.size();
  const int64_t delay_ns = use_.retry->ResendDelayNs(attempt + 1, retry_after_ms, busy);
  use_.timer->RunAfter(delay_ns, [this, call, parts = std::move(parts), attempt] {
    if (!call->Enter()) return;
    SendParts(call, parts, attempt + 1);
    calls_.Leave(call);
  });
}

// --- answers

void PullEngine::OnReply(const CallPtr& call, absl::Span<const uint32_t> parts, const Sent& sent,
                         const absl::Status& transport, const ServerReply* reply) {
  if (!transport.ok()) return OnLost(call, parts, sent, transport);
  Outcome outcome;
  TakeReply(call, parts, sent, *reply, &outcome);
  if (call->closed()) return;
  if (sent.hedge && outcome.done != 0) ++use_.counters->hedges_won;
  if (outcome.done != 0 && call->parts_left.fetch_sub(outcome.done) == outcome.done) {
    call->scratch->join.Finish(call->scratch->pooled);
    call->Close(absl::OkStatus());
  }
  if (!outcome.resend.empty()) ResendNow(call, outcome.resend, sent.attempt);
  if (!outcome.later.empty()) {
    RetryLater(call, std::move(outcome.later), sent.attempt, outcome.retry_after_ms, outcome.busy);
  }
}

void PullEngine::TakeReply(const CallPtr& call, absl::Span<const uint32_t> parts, const Sent& sent,
                           const ServerReply& reply, Outcome* outcome) {
  const v1::ReplyHeader& header = reply.view->header;
  if (header.code() != v1::OK) {
    const v1::SegmentReply refusal = RefusalOf(header);
    for (uint32_t p : parts) OnRefusal(call, p, refusal, sent, outcome);
    return;
  }
  if (reply.segment_count != parts.size() || !reply.whole) {
    return call->Close(absl::InternalError(absl::StrCat(
        "a server answered ", reply.segment_count, " segments and ", reply.view->rows.bytes,
        " bytes of rows to ", parts.size(), " segments asked, and they do not suit each other")));
  }
  use_.map->ApplyRecordsOf(header, reply.segment_first, reply.segment_count);
  const PartFates fates = DecideParts(call, parts, sent, reply, outcome);
  PullAnswer answer(reply);
  uint64_t rows = 0;
  for (size_t i = 0; i < parts.size();) {
    if (fates[i] != PartFate::kTaken) {
      if (fates[i] == PartFate::kAnsweredBefore) answer.SkipSegment(parts[i], *call);
      ++i;
      continue;
    }
    const size_t first = i;
    for (; i < parts.size() && fates[i] == PartFate::kTaken; ++i) {
      rows += call->scratch->RowsCounted(parts[i]);
    }
    absl::Status taken = answer.TakeSegments(parts.subspan(first, i - first), call.get());
    if (!taken.ok()) return call->Close(std::move(taken));
    outcome->done += static_cast<uint32_t>(i - first);
  }
  use_.counters->rows_pulled += rows;
}

// Apart from the rows: an atomic operation waits for all stores before it, and those to the
// caller's buffers take long.
PullEngine::PartFates PullEngine::DecideParts(const CallPtr& call, absl::Span<const uint32_t> parts,
                                              const Sent& sent, const ServerReply& reply,
                                              Outcome* outcome) {
  PartFates fates(parts.size());
  ReplySegments segments(reply.view->header, reply.segment_first);
  TargetFinder targets(*sent.map);
  std::optional<TableHandle::SeenShards> seen;
  const TableHandle* of_alone = nullptr;
  bool alone = false;  // no hedge of a part of this table is on its way
  for (size_t i = 0; i < parts.size(); ++i) {
    const v1::SegmentReply* const exception = segments.Next();
    if (exception != nullptr && exception->code() != v1::OK) {
      seen.reset();  // its lock
      OnRefusal(call, parts[i], *exception, sent, outcome);
      fates[i] = PartFate::kRefused;
      continue;
    }
    const TableHandle& table = call->scratch->TableOf(parts[i]);
    if (&table != of_alone) alone = !MayAskAny(*call, table);
    of_alone = &table;
    const bool taken =
        alone ? call->scratch->TakePartAlone(parts[i]) : call->scratch->TakePart(parts[i]);
    fates[i] = taken ? PartFate::kTaken : PartFate::kAnsweredBefore;
    if (!taken || call->lane != Lane::kPull) continue;
    const uint32_t shard = call->scratch->ShardOf(parts[i]);
    if (!seen.has_value() || &seen->table() != &table) seen.emplace(table);
    seen->Note(shard,
               exception != nullptr ? exception->epoch() : targets.Of(table.id(), shard)->epoch,
               segments.lsn());
  }
  return fates;
}

bool PullEngine::AskedPrimary(const PullCall& call, uint32_t part, const Sent& sent) const {
  const ShardId shard{call.scratch->TableOf(part).id(), call.scratch->ShardOf(part)};
  return sent.map->Shard(shard)->primary.server == sent.to->server;
}

void PullEngine::OnLost(const CallPtr& call, absl::Span<const uint32_t> parts, const Sent& sent,
                        const absl::Status& transport) {
  if (IsNever(transport)) return call->Close(transport);
  call->NoteError(transport);
  use_.follower->RequestRefresh();
  std::vector<uint32_t> now;
  std::vector<uint32_t> later;
  for (uint32_t p : parts) {
    const bool alone = call->scratch->LosePart(p);
    // A lost hedge is replaced: the server that was asked first may stay silent.
    if (call->scratch->PartIsTaken(p) || (!alone && !sent.hedge)) continue;
    (!alone || AskedPrimary(*call, p, sent) ? later : now).push_back(p);
  }
  if (!now.empty()) ResendNow(call, now, sent.attempt);
  if (!later.empty()) RetryLater(call, std::move(later), sent.attempt, 0, /*busy=*/false);
}

void PullEngine::OnRefusal(const CallPtr& call, uint32_t part, const v1::SegmentReply& segment,
                           const Sent& sent, Outcome* outcome) {
  const TableHandle& table = call->scratch->TableOf(part);
  const ShardId shard{table.id(), call->scratch->ShardOf(part)};
  const Verdict verdict = VerdictOf(segment.code(), /*push=*/false);
  const absl::Status status =
      StatusOf(segment.code(), table.WhereOf(shard.index), segment.detail());
  const bool alone = call->scratch->LosePart(part);
  if (call->scratch->PartIsTaken(part)) return;
  call->NoteError(status);
  if (segment.code() == v1::CORRUPT && (call->partial || !alone)) {
    outcome->done +=
        alone && call->scratch->GiveUpPart(part) ? 1 : 0;  // a partial call does without it
    return;
  }
  if (verdict != Verdict::kReroute && verdict != Verdict::kLater) return call->Close(status);
  if (verdict == Verdict::kReroute) {
    use_.counters->wrong_epoch += 1;
    const ClusterMapPtr map = use_.map->Get();
    const ShardRecord* const known = map->Shard(shard);
    if (known == nullptr || known->IsNewerThan(*sent.map->Shard(shard))) {
      outcome->resend.push_back(part);
      return;
    }
    use_.follower->RequestRefresh();
  }
  if (!alone) {  // another server is asked, too, and where this was the hedge, perhaps a silent one
    if (sent.hedge) outcome->later.push_back(part);
    return;
  }
  // A replica that is behind, or no longer one, refused; the primary is neither.
  if (!AskedPrimary(*call, part, sent)) {
    outcome->resend.push_back(part);
    return;
  }
  outcome->busy |= IsOverload(segment.code());
  outcome->retry_after_ms = std::max(outcome->retry_after_ms, segment.retry_after_ms());
  outcome->later.push_back(part);
}

}  // namespace hotbed
