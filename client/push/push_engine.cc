#include "client/push/push_engine.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/net/call_trace.h"
#include "client/net/message_limits.h"
#include "client/push/push_prepare.h"
#include "common/fetch_lines.h"
#include "common/status_macros.h"
#include "proto/segments.h"

namespace hotbed {
namespace {

// A shard that stops, steps down or lost its log's disk may have logged the push before it answered
// with one of these codes. After every other refusal nothing was applied.
bool LeavesItOpen(v1::Code code) { return code == v1::UNAVAILABLE || code == v1::WRONG_EPOCH; }

// A refusal that is due to the gradients themselves or to lateness was due to them at the first
// send, too, which left a noop: an earlier send cannot have been applied.
bool IsAboutContent(v1::Code code) {
  return code == v1::OUT_OF_RANGE || code == v1::NAN_GRADIENT || code == v1::STEP_OVER;
}

}  // namespace

// One message in flight.
class PushRequest final : public PendingRequest {
 public:
  PushRequest(PushEngine* engine, absl::Span<const SentPart> parts)
      : engine_(engine), parts_(parts.begin(), parts.end()) {}
  void Done(const absl::Status& transport, const ServerReply* reply) override {
    engine_->OnReply(parts_, transport, reply, /*written=*/true);
  }
  void NotSent(const absl::Status& why) override {
    engine_->OnReply(parts_, why, nullptr, /*written=*/false);
  }

 private:
  PushEngine* const engine_;
  const std::vector<SentPart> parts_;
};

PushEngine::PushEngine(const EngineParts& parts, PushSession* session)
    : use_(parts),
      session_(session),
      ledger_(static_cast<uint64_t>(parts.options->pushes_in_flight_max),
              parts.options->push_bytes_in_flight_max) {}

Future<PushResult> PushEngine::Refuse(uint64_t step, absl::Status status) {
  PushResult result;
  result.outcome = PushResult::Outcome::kFailed;
  result.status = std::move(status);
  result.step = step;
  return Future<PushResult>::Ready(std::move(result));
}

Future<PushResult> PushEngine::Start(uint64_t step, absl::Span<const PushFeature> features,
                                     const PushOptions& options, int64_t deadline_ns,
                                     bool deletes) {
  std::string traceparent;
  absl::Status traced = TakeTrace(&traceparent);
  if (!traced.ok()) return Refuse(step, std::move(traced));
  const auto refuse = [&](absl::Status why) {
    return Refuse(step, InTrace(std::move(why), traceparent));
  };
  std::unique_ptr<PushCall> call;
  const auto prepare = [&] {
    call = std::make_unique<PushCall>();
    call->deadline_ns = deadline_ns;
    call->deletes = deletes;
    call->traceparent = traceparent;
    return Prepare(step, features, options, call.get());
  };
  absl::Status prepared = prepare();
  if (!prepared.ok()) return refuse(std::move(prepared));
  if (call->parts.empty()) return Future<PushResult>::Ready(call->Result());
  const absl::StatusOr<SessionIdentity> identity = session_->Open(deadline_ns);
  if (!identity.ok()) return refuse(identity.status());
  Resolutions resolutions;
  Future<PushResult> future;
  absl::Status steps;
  {
    absl::MutexLock lock(&mu_);
    identity_ = *identity;
    if (!WaitForRoom(*call)) {
      return refuse(absl::DeadlineExceededError(
          absl::StrCat("push of step ", step, " was not sent: ", ledger_.window().ToString())));
    }
    if (shut_down_) return refuse(absl::CancelledError("the client is closing"));
    ClusterMapPtr map = use_.map->Get();
    for (; call->cuts != map->cuts(); map = use_.map->Get()) {  // a shard was cut meanwhile
      prepared = prepare();
      if (!prepared.ok()) return refuse(std::move(prepared));
    }
    const std::vector<ShardChain*> free_again = LearnCuts(*map);
    std::vector<ShardChain*> touched;
    steps = ledger_.CheckSteps(*call);
    if (steps.ok()) {
      touched = Chain(*map, call.get());
      future = ledger_.Add(std::move(call), use_.transport->driver(), use_.clock->NowNs());
    }
    touched.insert(touched.end(), free_again.begin(), free_again.end());
    // Only now: Flush may learn of a newer map, and divides what was chained by this one.
    Flush(touched, &resolutions);
  }
  if (steps.ok()) use_.timer->AddWatcher();
  PushLedger::Resolve(std::move(resolutions));
  return steps.ok() ? future : refuse(std::move(steps));
}

absl::Status PushEngine::Prepare(uint64_t step, absl::Span<const PushFeature> features,
                                 const PushOptions& options, PushCall* call) {
  if (step > kStepMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("step ", step, " is above the limit ", kStepMax));
  }
  call->step = step;
  call->gradient_type = use_.options->push_type;
  call->options = options;
  PlanInput input{use_.map->Get(), use_.owner, 0};
  input.segment_bytes_max = use_.SegmentBytesMaxOf(*input.map);
  call->cuts = input.map->cuts();
  uint64_t zeroed = 0;
  HOTBED_RETURN_IF_ERROR(
      PreparePush(features, options, input, use_.options->trainers, call, &zeroed));
  use_.counters->ids_zeroed += zeroed;
  return absl::OkStatus();
}

absl::Status PushEngine::AwaitStep(uint64_t step, int64_t deadline_ns) {
  absl::MutexLock lock(&mu_);
  const auto answered = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return shut_down_ || ledger_.AllAnswered(step);
  };
  if (!answered() &&
      !use_.transport->AwaitAnswers(use_.clock, &mu_, absl::Condition(&answered), deadline_ns)) {
    return absl::DeadlineExceededError(absl::StrCat(
        "pushes of step ", step, " or earlier are not answered yet; end the step again"));
  }
  return shut_down_ ? absl::CancelledError("the client is closing") : absl::OkStatus();
}

bool PushEngine::WaitForRoom(const PushCall& call) {
  const auto room = [this, &call]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return shut_down_ ||
           ledger_.window().Admits(call.bytes, call.deadline_ns - use_.clock->NowNs());
  };
  return room() ||
         use_.transport->AwaitAnswers(use_.clock, &mu_, absl::Condition(&room), call.deadline_ns);
}

std::vector<ShardChain*> PushEngine::Chain(const ClusterMap& map, PushCall* call) {
  std::vector<ShardChain*> touched;
  // Parts of one shard lie side by side and in order.
  touched.reserve(call->parts.size());
  ShardId before;
  std::deque<ShardChain>* chains = nullptr;  // of the table of `before`
  for (const PushPart& part : call->parts) {
    const ShardId shard = part.shard_id();
    if (!touched.empty() && shard == before) continue;
    if (touched.empty() || shard.table != before.table) chains = &chains_[shard.table];
    touched.push_back(ChainIn(map, shard, chains));
    FetchLines(touched.back(), sizeof(ShardChain));
    before = shard;
  }
  auto chain = touched.begin();
  for (PushPart& part : call->parts) {
    if (!((*chain)->shard == part.shard_id())) ++chain;
    (*chain)->chain.Append(&part);
  }
  return touched;
}

void PushEngine::Flush(absl::Span<ShardChain* const> chains, Resolutions* resolutions) {
  if (shut_down_) return;
  const ClusterMapPtr map = use_.map->Get();
  std::vector<ShardChain*> free_again = LearnCuts(*map);
  if (!free_again.empty()) {
    free_again.insert(free_again.end(), chains.begin(), chains.end());
    return Flush(free_again, resolutions);
  }
  std::vector<SentPart> message;
  message.reserve(std::min<size_t>(chains.size(), kSegmentsPerMessageMax));
  std::vector<ShardChain*> without_server;
  const ServerAddress* to = nullptr;
  const ServerAddress* server = nullptr;
  ServerId found = 0;
  TargetFinder targets(*map);
  const uint64_t bytes_max = use_.SegmentBytesMaxOf(*map);
  uint64_t bytes = 0;
  for (ShardChain* chain : chains) {
    if (chain->divides || chain->waits_for != nullptr) continue;
    const TableRoute::Target* const target = targets.Of(chain->shard.table, chain->shard.index);
    if (target != nullptr && target->primary != found) {
      found = target->primary;
      server = map->Server(found);
    }
    while (auto* part = static_cast<PushPart*>(chain->chain.NextToSend())) {
      part->DropThrough(chain->chain.known_seq());
      const PushChain::Stamp stamp = chain->chain.Send();
      if (target == nullptr) {
        Refused({chain, part, stamp, 0, 0}, 0,
                part->EndOf(absl::NotFoundError(
                    absl::StrCat("table ", part->table->name(), " was dropped"))),
                resolutions);
        continue;
      }
      if (server == nullptr) {
        part->call->last_error =
            absl::UnavailableError(absl::StrCat(part->Where(), ": its server is not known"));
        chain->chain.OnRetry(part);
        without_server.push_back(chain);
        break;
      }
      const uint64_t part_bytes = part->bytes() + kSegmentHeaderBytes;
      if (!message.empty() && (server != to || bytes + part_bytes > bytes_max ||
                               message.size() == kSegmentsPerMessageMax)) {
        SendMessage(to->address, message);
        message.clear();
        bytes = 0;
      }
      to = server;
      bytes += part_bytes;
      message.push_back({chain, part, stamp, target->epoch, target->shard});
    }
  }
  if (!message.empty()) SendMessage(to->address, message);
  if (!without_server.empty()) {
    use_.follower->RequestRefresh();
    RestartLater(std::move(without_server));
  }
}

void PushEngine::SendMessage(const std::string& address, absl::Span<const SentPart> parts) {
  use_.retry->CountRequest();
  use_.transport->Send(address, Lane::kPush,
                       BuildPushMessage(identity_, use_.options->push_type, parts),
                       std::make_shared<PushRequest>(this, parts));
}

void PushEngine::Settle(absl::Span<ShardChain* const> chains, Resolutions* resolutions) {
  std::vector<ShardChain*> now;
  std::vector<ShardChain*> later;
  for (ShardChain* chain : chains) {
    if (chain->divides) {
      const ClusterMapPtr map = use_.map->Get();
      for (ShardChain* const free_again : LearnCuts(*map)) now.push_back(free_again);
      DivideIfDrained(chain, *map, &now);
      continue;
    }
    if (chain->restart_scheduled || !chain->chain.ReadyToRestart()) continue;
    if (chain->restart_now) {
      chain->restart_now = false;
      chain->retry_after_ms = 0;
      chain->busy = false;
      chain->chain.Restart();
      now.push_back(chain);
    } else {
      later.push_back(chain);
    }
  }
  if (!later.empty()) RestartLater(std::move(later));
  if (!now.empty()) Flush(now, resolutions);
}

void PushEngine::RestartLater(std::vector<ShardChain*> chains) {
  uint32_t retry_after_ms = 0;
  int attempt = 1;
  bool busy = false;
  for (ShardChain* chain : chains) {
    chain->restart_scheduled = true;
    busy |= std::exchange(chain->busy, false);
    retry_after_ms = std::max(retry_after_ms, chain->retry_after_ms);
    attempt = std::max(attempt, chain->chain.attempts() + 1);
    chain->retry_after_ms = 0;
  }
  const int64_t delay_ns = use_.retry->ResendDelayNs(attempt, retry_after_ms, busy);
  use_.timer->RunAfter(delay_ns, [this, chains = std::move(chains)] { Restart(chains); });
}

void PushEngine::Restart(absl::Span<ShardChain* const> chains) {
  Resolutions resolutions;
  {
    absl::MutexLock lock(&mu_);
    std::vector<ShardChain*> ready;
    for (ShardChain* chain : chains) {
      chain->restart_scheduled = false;
      chain->restart_now = false;
      if (!chain->chain.ReadyToRestart()) continue;
      chain->chain.Restart();
      ready.push_back(chain);
    }
    Flush(ready, &resolutions);
  }
  PushLedger::Resolve(std::move(resolutions));
}

void PushEngine::Finish(PushPart* part, const absl::Status& status, Resolutions* resolutions) {
  if (ledger_.Finish(part, status, *use_.clock, resolutions)) use_.timer->RemoveWatcher();
}

// --- answers

void PushEngine::OnReply(absl::Span<const SentPart> parts, const absl::Status& transport,
                         const ServerReply* reply, bool written) {
  Resolutions resolutions;
  {
    absl::MutexLock lock(&mu_);
    const bool never = IsNever(transport);
    v1::SegmentReply alike;  // for every segment, where all have the same answer
    const v1::ReplyHeader* header = transport.ok() ? &reply->view->header : nullptr;
    const bool short_answer = header != nullptr && header->code() == v1::OK &&
                              (reply->segment_count != parts.size() || !reply->whole);
    const bool each = header != nullptr && header->code() == v1::OK && !short_answer;
    if (header == nullptr) {
      alike.set_code(v1::UNAVAILABLE);
      alike.set_detail(std::string(transport.message()));
      use_.follower->RequestRefresh();
    } else if (short_answer) {
      alike.set_code(v1::UNAVAILABLE);
      alike.set_detail(absl::StrCat("a server answered ", reply->segment_count, " segments to ",
                                    parts.size(), " sent"));
    } else if (!each) {
      alike = RefusalOf(*header);
    }
    std::vector<ShardChain*> answered;
    if (each) {
      TakeAnswers(parts, *reply, &answered, &resolutions);
    } else {
      const bool unanswered = header == nullptr ? written && !never : short_answer;
      for (const SentPart& sent : parts) {
        if (unanswered) sent.part->maybe_applied = true;
        if (never) {
          Refused(sent, 0, sent.part->EndOf(transport), &resolutions);
        } else {
          OnException(sent, alike, &resolutions);
        }
        if (sent.chain->drained()) answered.push_back(sent.chain);
      }
    }
    use_.counters->rows_pushed += std::exchange(rows_applied_, 0);
    Settle(answered, &resolutions);
  }
  PushLedger::Resolve(std::move(resolutions));
}

void PushEngine::Refused(const SentPart& sent, uint64_t last_seq, const absl::Status& status,
                         Resolutions* resolutions) {
  sent.chain->chain.OnRefused(sent.part, last_seq);
  Finish(sent.part, status, resolutions);
}

void PushEngine::TakeAnswers(absl::Span<const SentPart> parts, const ServerReply& reply,
                             std::vector<ShardChain*>* answered, Resolutions* resolutions) {
  const v1::ReplyHeader& header = reply.view->header;
  use_.map->ApplyRecordsOf(header, reply.segment_first, reply.segment_count);
  NoteAcknowledged(parts, reply);
  ReplySegments segments(header, reply.segment_first);
  for (const SentPart& sent : parts) {
    const v1::SegmentReply* const exception = segments.Next();
    if (exception == nullptr) {
      OnApplied(sent, sent.part->seq, resolutions);
    } else {
      if (LeavesItOpen(exception->code())) sent.part->maybe_applied = true;
      OnException(sent, *exception, resolutions);
    }
    if (sent.chain->drained()) answered->push_back(sent.chain);
  }
}

// Before any of the parts is finished, because that may end their call. Brings the parts and their
// chains to the cache for the loop that follows.
void PushEngine::NoteAcknowledged(absl::Span<const SentPart> parts, const ServerReply& reply) {
  ReplySegments segments(reply.view->header, reply.segment_first);
  std::optional<TableHandle::SeenShards> seen;
  for (const SentPart& sent : parts) {
    FetchLines(sent.chain, sizeof(ShardChain));
    const v1::SegmentReply* const exception = segments.Next();
    if (exception != nullptr && exception->code() != v1::OK) continue;
    const TableHandle* const table = sent.part->table;
    if (!seen.has_value() || &seen->table() != table) seen.emplace(*table);
    seen->Note(sent.part->shard, exception == nullptr ? sent.epoch : exception->epoch(),
               segments.lsn());
  }
}

void PushEngine::OnApplied(const SentPart& sent, uint64_t last_seq, Resolutions* resolutions) {
  PushPart* const part = sent.part;
  sent.chain->chain.OnApplied(part, last_seq);
  if (part->column_first == 0) rows_applied_ += part->rows;
  Finish(part, absl::OkStatus(), resolutions);
}

void PushEngine::OnException(const SentPart& sent, const v1::SegmentReply& segment,
                             Resolutions* resolutions) {
  ShardChain& chain = *sent.chain;
  PushPart* const part = sent.part;
  const Verdict verdict = VerdictOf(segment.code(), /*push=*/true);
  if (verdict == Verdict::kOk) {
    return OnApplied(sent, segment.last_seq(), resolutions);
  }
  const absl::Status status = StatusOf(segment.code(), part->Where(), segment.detail());
  if (verdict == Verdict::kFinal) {
    return Refused(sent, segment.last_seq(),
                   IsAboutContent(segment.code()) ? status : part->EndOf(status), resolutions);
  }
  use_.counters->retries += 1;
  part->call->last_error = status;
  chain.retry_after_ms = std::max(chain.retry_after_ms, segment.retry_after_ms());
  chain.busy |= IsOverload(segment.code());
  if (verdict == Verdict::kGap) return chain.chain.OnGap(part, segment.last_seq());
  if (verdict == Verdict::kOpenAgain) return chain.chain.OnUnknownSession(part);
  if (verdict == Verdict::kReroute) OnReroute(sent);
  chain.chain.OnRetry(part);
}

void PushEngine::OnReroute(const SentPart& sent) {
  use_.counters->wrong_epoch += 1;
  const ClusterMapPtr map = use_.map->Get();
  const ShardRecord* const record = map->Shard(sent.chain->shard);
  if (record == nullptr || record->epoch > sent.epoch) {
    sent.chain->restart_now = true;
  } else {
    use_.follower->RequestRefresh();
  }
}

// --- open pushes

Future<PushResult> PushEngine::Retry(const PushResult& result, int64_t deadline_ns) {
  // After kUnknown no shard will ever know the outcome.
  if (result.outcome != PushResult::Outcome::kIndeterminate || absl::IsUnknown(result.status)) {
    return Future<PushResult>::Ready(result);
  }
  absl::MutexLock lock(&mu_);
  return ledger_.Retry(result, deadline_ns, use_.transport->driver());
}

std::vector<PushResult> PushEngine::Unanswered(absl::Duration at_least) const {
  absl::MutexLock lock(&mu_);
  return ledger_.Unanswered(use_.clock->NowNs() - absl::ToInt64Nanoseconds(at_least));
}

void PushEngine::Tick() {
  Resolutions resolutions;
  {
    absl::MutexLock lock(&mu_);
    ledger_.Expire(use_.clock->NowNs(), &resolutions);
  }
  PushLedger::Resolve(std::move(resolutions));
}

void PushEngine::Shutdown() {
  Resolutions resolutions;
  {
    absl::MutexLock lock(&mu_);
    shut_down_ = true;
    ledger_.Expire(std::numeric_limits<int64_t>::max(), &resolutions);
  }
  PushLedger::Resolve(std::move(resolutions));
}

}  // namespace hotbed
