#include "client/push/push_engine.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/push/push_prepare.h"
#include "common/await_for.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "proto/convert.h"

namespace hotbed {
namespace {

constexpr size_t kUnclaimedMax = 4096;

}  // namespace

// One message on its way.
class PushRequest final : public PendingRequest {
 public:
  PushRequest(PushEngine* engine, absl::Span<const PushEngine::SentPart> parts)
      : engine_(engine), parts_(parts.begin(), parts.end()) {}
  void Done(const absl::Status& transport, const Reply* reply) override {
    engine_->OnReply(parts_, transport, reply, /*written=*/true);
  }
  void NotSent(const absl::Status& why) override {
    engine_->OnReply(parts_, why, nullptr, /*written=*/false);
  }

 private:
  PushEngine* const engine_;
  const std::vector<PushEngine::SentPart> parts_;
};

Future<PushResult> PushEngine::Refuse(uint64_t step, absl::Status status) {
  PushResult result;
  result.outcome = PushResult::Outcome::kFailed;
  result.status = std::move(status);
  result.step = step;
  return Future<PushResult>::Ready(std::move(result));
}

Future<PushResult> PushEngine::Start(uint64_t step, absl::Span<const PushFeature> features,
                                     const PushOptions& options) {
  auto call = std::make_unique<PushCall>();
  absl::Status prepared = Prepare(step, features, options, call.get());
  if (prepared.ok() && !call->parts.empty()) prepared = EnsureSession(call->deadline_ns);
  if (!prepared.ok()) return Refuse(step, std::move(prepared));
  if (call->parts.empty()) return Future<PushResult>::Ready(call->Result());
  Resolutions resolutions;
  Future<PushResult> future;
  {
    absl::MutexLock lock(&mu_);
    if (!WaitForRoom(*call)) {
      return Refuse(step, absl::DeadlineExceededError(absl::StrCat(
                              "push of step ", step, " was not sent: ", room_.ToString())));
    }
    if (shut_down_) return Refuse(step, absl::CancelledError("the client is closing"));
    absl::Status steps = CheckSteps(*call);
    if (!steps.ok()) return Refuse(step, std::move(steps));
    call->ticket = next_ticket_++;
    call->parts_left = call->parts.size();
    future = call->promise.emplace(context_->transport->driver()).future();
    call->place = room_.Enter(call->bytes, context_->clock->NowNs());
    std::vector<ShardChain*> touched;
    Chain(call.get(), &touched);
    calls_[call->ticket] = std::move(call);
    Flush(touched, &resolutions);
  }
  context_->timer->AddWatcher();
  Resolve(std::move(resolutions));
  return future;
}

absl::Status PushEngine::Prepare(uint64_t step, absl::Span<const PushFeature> features,
                                 const PushOptions& options, PushCall* call) {
  if (step > kStepMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("step ", step, " is above the limit ", kStepMax));
  }
  call->step = step;
  call->gradient_type = context_->options.push_type;
  call->has_learning_rate = options.has_learning_rate;
  call->learning_rate = options.learning_rate;
  call->assign = options.assign;
  call->deadline_ns = context_->DeadlineNs(options.deadline);
  return PreparePush(context_, features, options, call);
}

absl::Status PushEngine::EnsureSession(int64_t deadline_ns) {
  // One caller at a time asks, without the mutex; the others wait, each to its own deadline, and
  // go on with the asking where that caller's time was too short.
  const auto free = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return identity_.session != 0 || !opening_session_;
  };
  {
    absl::MutexLock lock(&mu_);
    const int64_t left_ns = deadline_ns - context_->clock->NowNs();
    if (!AwaitFor(&mu_, absl::Condition(&free), absl::Nanoseconds(std::max<int64_t>(left_ns, 0)))) {
      return absl::DeadlineExceededError(absl::StrCat(
          "session ", session_name_, " is not open yet; is the coordinator up? Nothing was sent"));
    }
    if (identity_.session != 0) return absl::OkStatus();
    opening_session_ = true;
  }
  const int64_t left_ns = std::max<int64_t>(deadline_ns - context_->clock->NowNs(), 1'000'000);
  const absl::StatusOr<SessionIdentity> opened =
      control_->OpenSession(session_name_, absl::Nanoseconds(left_ns));
  if (opened.ok()) context_->transport->SetSession(opened->session, opened->incarnation);
  absl::MutexLock lock(&mu_);
  opening_session_ = false;
  if (opened.ok()) identity_ = *opened;
  return opened.status();
}

absl::StatusOr<SessionIdentity> PushEngine::Session(int64_t deadline_ns) {
  HOTBED_RETURN_IF_ERROR(EnsureSession(deadline_ns));
  absl::MutexLock lock(&mu_);
  return identity_;
}

absl::Status PushEngine::AwaitStep(uint64_t step, int64_t deadline_ns) {
  absl::MutexLock lock(&mu_);
  const auto open = [this, step](const auto& call) { return call.second->step <= step; };
  const auto answered = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return shut_down_ || std::none_of(calls_.begin(), calls_.end(), open);
  };
  if (!answered() && !context_->Await(&mu_, absl::Condition(&answered), deadline_ns)) {
    return absl::DeadlineExceededError(absl::StrCat(
        "pushes of step ", step, " or earlier are not answered yet; end the step again"));
  }
  return shut_down_ ? absl::CancelledError("the client is closing") : absl::OkStatus();
}

bool PushEngine::WaitForRoom(const PushCall& call) {
  const auto room = [this, &call]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return shut_down_ || room_.Has(call.bytes, call.deadline_ns - context_->clock->NowNs());
  };
  return room() || context_->Await(&mu_, absl::Condition(&room), call.deadline_ns);
}

absl::Status PushEngine::CheckSteps(const PushCall& call) const {
  for (const PushPart& part : call.parts) {
    const auto it = last_step_.find(part.table);
    if (it != last_step_.end() && call.step <= it->second) {
      return absl::InvalidArgumentError(absl::StrCat(
          "table ", part.table->name(), ": step ", call.step, " after step ", it->second,
          "; steps of a table must grow, one push a table and step (put all its features in one "
          "call)"));
    }
  }
  return absl::OkStatus();
}

void PushEngine::Chain(PushCall* call, std::vector<ShardChain*>* touched) {
  // Parts of one shard stand together and in order.
  ShardChain* chain = nullptr;
  for (PushPart& part : call->parts) {
    last_step_[part.table] = call->step;
    if (chain == nullptr || !(chain->shard == part.shard_id())) {
      std::unique_ptr<ShardChain>& slot = chains_[part.shard_id().packed()];
      if (slot == nullptr) {
        slot = std::make_unique<ShardChain>();
        slot->shard = part.shard_id();
      }
      chain = slot.get();
      touched->push_back(chain);
    }
    chain->chain.Append(&part);
  }
}

void PushEngine::Flush(absl::Span<ShardChain* const> chains, Resolutions* resolutions) {
  if (shut_down_) return;
  const ClusterMapPtr map = context_->map->Get();
  std::vector<SentPart> message;
  std::vector<ShardChain*> without_server;
  const ServerAddress* to = nullptr;
  const uint64_t bytes_max = context_->MessageBytesMax(*map);
  uint64_t bytes = 0;
  for (ShardChain* chain : chains) {
    const ShardRecord* record = map->Shard(chain->shard);
    const ServerAddress* server = record == nullptr ? nullptr : map->Server(record->primary.server);
    while (auto* part = static_cast<PushPart*>(chain->chain.NextToSend())) {
      part->DropThrough(chain->chain.known_seq());
      const PushChain::Stamp stamp = chain->chain.Send();
      if (record == nullptr) {
        chain->chain.OnRefused(part, 0);
        Finish(part,
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
      message.push_back({chain, part, stamp, record->epoch});
    }
  }
  if (!message.empty()) SendMessage(to->address, message);
  if (!without_server.empty()) {
    context_->follower->RequestRefresh();
    RestartLater(std::move(without_server));
  }
}

void PushEngine::SendMessage(const std::string& address, absl::Span<const SentPart> parts) {
  thread_local v1::PushHeader header;  // keeps its segments' memory
  header.Clear();
  header.set_gradient_type(ToProto(context_->options.push_type));
  header.set_session(identity_.session);
  header.set_incarnation(identity_.incarnation);
  OutgoingMessage message;
  OutgoingMessage::Bulk ids{v1::PushRequest::kIdsFieldNumber, {}};
  OutgoingMessage::Bulk gradients{v1::PushRequest::kGradientsFieldNumber, {}};
  const auto append = [](OutgoingMessage::Bulk* bulk, const BytesRef& piece) {
    if (!bulk->pieces.empty() &&
        bulk->pieces.back().data + bulk->pieces.back().size == piece.data) {
      bulk->pieces.back().size += piece.size;
    } else {
      bulk->pieces.push_back(piece);
    }
  };
  for (const SentPart& sent : parts) {
    const PushPart& part = *sent.part;
    v1::PushSegment* segment = header.add_segments();
    segment->set_shard(part.shard_id().packed());
    segment->set_epoch(sent.epoch);
    segment->set_id_count(part.rows);
    segment->set_seq(part.seq);
    segment->set_prev_seq(sent.stamp.prev_seq);
    segment->set_open(sent.stamp.open);
    segment->set_has_learning_rate(part.call->has_learning_rate);
    segment->set_learning_rate(part.call->learning_rate);
    segment->set_assign(part.call->assign);
    segment->set_last_part(part.last_of_shard);
    segment->set_dim(part.columns);
    append(&ids, part.ids);
    append(&gradients, part.gradients);
  }
  message.header = header.SerializeAsString();
  message.segments = static_cast<uint32_t>(parts.size());
  message.join_key = 1;  // one session, one gradient type: the headers always agree
  message.bulk.push_back(std::move(ids));
  message.bulk.push_back(std::move(gradients));
  context_->retry->CountRequest();
  context_->transport->Send(address, Lane::kPush, std::move(message),
                            std::make_shared<PushRequest>(this, parts));
}

void PushEngine::Settle(std::vector<ShardChain*> chains, Resolutions* resolutions) {
  std::vector<ShardChain*> now;
  std::vector<ShardChain*> later;
  for (ShardChain* chain : chains) {
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
  const int64_t delay_ns = busy ? context_->retry->DelayNs(attempt, retry_after_ms)
                                : context_->retry->SoonNs(attempt, retry_after_ms);
  context_->timer->RunAfter(delay_ns, [this, chains = std::move(chains)] {
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
    Resolve(std::move(resolutions));
  });
}

void PushEngine::Finish(PushPart* part, const absl::Status& status, Resolutions* resolutions) {
  PushCall* const call = part->call;
  if (!status.ok()) call->refused.push_back({part->table->name(), part->shard, part->seq, status});
  if (--call->parts_left > 0) return;
  PushResult result = call->Result();
  if (call->promise.has_value()) {
    resolutions->emplace_back(*std::move(call->promise), std::move(result));
  } else {
    unclaimed_.push_back(std::move(result));
    if (unclaimed_.size() > kUnclaimedMax) unclaimed_.pop_front();
  }
  Forget(call);
}

void PushEngine::Forget(PushCall* call) {
  room_.Leave(call->place, context_->clock->NowNs());
  context_->timer->RemoveWatcher();
  calls_.erase(call->ticket);
}

void PushEngine::Resolve(Resolutions resolutions) {
  for (auto& [promise, result] : resolutions) promise.Set(std::move(result));
}

Future<PushResult> PushEngine::Retry(const PushResult& result, absl::Duration deadline) {
  // Unknown: nobody will ever tell.
  if (result.outcome != PushResult::Outcome::kIndeterminate || absl::IsUnknown(result.status)) {
    return Future<PushResult>::Ready(result);
  }
  absl::MutexLock lock(&mu_);
  const auto open = calls_.find(result.ticket);
  if (open != calls_.end()) {
    PushCall& call = *open->second;
    call.deadline_ns = context_->DeadlineNs(deadline);
    if (!call.promise.has_value()) call.promise.emplace(context_->transport->driver());
    return call.promise->future();
  }
  for (auto it = unclaimed_.begin(); it != unclaimed_.end(); ++it) {
    if (it->ticket != result.ticket) continue;
    PushResult found = std::move(*it);
    unclaimed_.erase(it);
    return Future<PushResult>::Ready(std::move(found));
  }
  PushResult unknown = result;
  unknown.status = absl::NotFoundError(
      absl::StrCat("no push with ticket ", result.ticket, " is known to this client any more"));
  return Future<PushResult>::Ready(std::move(unknown));
}

void PushEngine::Tick() {
  const int64_t now = context_->clock->NowNs();
  Resolutions resolutions;
  {
    absl::MutexLock lock(&mu_);
    for (auto& [ticket, call] : calls_) {
      if (call->deadline_ns > now || !call->promise.has_value()) continue;
      resolutions.emplace_back(*std::move(call->promise), call->Result());
      call->promise.reset();
    }
  }
  Resolve(std::move(resolutions));
}

void PushEngine::Shutdown() {
  Resolutions resolutions;
  {
    absl::MutexLock lock(&mu_);
    shut_down_ = true;
    for (auto& [ticket, call] : calls_) {
      if (!call->promise.has_value()) continue;
      resolutions.emplace_back(*std::move(call->promise), call->Result());
      call->promise.reset();
    }
  }
  Resolve(std::move(resolutions));
}

}  // namespace hotbed
