#include "server/cluster/coordinator_link.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "common/threads/await_for.h"
#include "proto/wire.h"

namespace hotbed {
namespace {

// A heartbeat that is due while this many are unanswered is skipped.
constexpr size_t kUnansweredMax = 4;
// The record of an activation may be lost with its answer, so the host is asked again this often.
constexpr absl::Duration kActivationsAgain = absl::Milliseconds(200);
constexpr absl::Duration kActivationsRetry = absl::Milliseconds(50);
// Looking for shards that no map has named takes a while with very many shards.
constexpr int64_t kUnnamedNsPerShard = 100'000;
constexpr int64_t kDrainStepNs = 5'000'000;
// A draining server waits no longer than this for a coordinator that does not answer.
constexpr int64_t kDrainUnansweredNs = 1'000'000'000;
// It waits no longer than this without a hand-over: all possible successors may be stopping too.
constexpr int64_t kDrainIdleNs = 3'000'000'000;

// Whether a retry cannot change the outcome.
bool IsFinal(const absl::Status& status) {
  return absl::IsFailedPrecondition(status) || absl::IsAlreadyExists(status) ||
         absl::IsInvalidArgument(status) || absl::IsPermissionDenied(status);
}

}  // namespace

CoordinatorLink::CoordinatorLink(CoordinatorLinkOptions options, ShardHost* host,
                                 const Clock* clock)
    : options_(std::move(options)),
      host_(host),
      clock_(clock),
      calls_(options_.coordinator, options_.identity, options_.timeouts),
      applier_(host, options_.network),
      report_(host, clock),
      random_(options_.jitter_seed) {
  host_->SetActivationListener([this] { RequestActivation(); });
  cuts_ = std::make_unique<CutLink>(
      host_, &applier_, [this](v1::CommitCutRequest* request, v1::CommitCutReply* reply) {
        {
          absl::MutexLock lock(&mu_);
          request->set_server(status_.server);
          request->set_incarnation(status_.incarnation);
        }
        return Call("committing a cut", &v1::Coordinator::Stub::CommitCut, *request, reply);
      });
  thread_ = std::thread([this] { Run(); });
  activations_ = std::thread([this] { RunActivations(); });
}

CoordinatorLink::~CoordinatorLink() { Stop(); }

absl::Status CoordinatorLink::WaitRegistered() {
  absl::MutexLock lock(&mu_);
  const auto decided = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return status_.registrations > 0 || !final_error_.ok() || stop_;
  };
  mu_.Await(absl::Condition(&decided));
  if (!final_error_.ok()) return final_error_;
  if (status_.registrations == 0) {
    return absl::CancelledError("stopped before the coordinator answered");
  }
  return absl::OkStatus();
}

absl::Status CoordinatorLink::WaitRefused() {
  absl::MutexLock lock(&mu_);
  const auto ended = [this]()
                         ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return !final_error_.ok() || stop_; };
  mu_.Await(absl::Condition(&ended));
  return final_error_;
}

LinkStatus CoordinatorLink::status() const {
  const uint64_t plan_revision = applier_.plan_revision();
  absl::MutexLock lock(&mu_);
  LinkStatus status = status_;
  status.plan_revision = plan_revision;
  return status;
}

void CoordinatorLink::HeartbeatNow() {
  absl::MutexLock lock(&mu_);
  heartbeat_now_ = true;
}

void CoordinatorLink::RequestActivation() {
  absl::MutexLock lock(&mu_);
  host_news_ = true;
  activate_ = true;
}

bool CoordinatorLink::Drain(int64_t wait_ms) {
  Member self;
  {
    absl::MutexLock lock(&mu_);
    draining_ = true;
    heartbeat_now_ = true;
    self = {status_.server, status_.incarnation};
  }
  const int64_t begin_ns = clock_->NowNs();
  const int64_t until_ns = begin_ns + wait_ms * 1'000'000;
  int64_t heard_ns = begin_ns;
  int64_t progress_ns = begin_ns;
  size_t least = SIZE_MAX;
  size_t left = 0;
  while ((left = applier_.NotHandedOver(self)) > 0) {
    const int64_t now_ns = clock_->NowNs();
    {
      absl::MutexLock lock(&mu_);
      if (stop_ || !status_.registered) return false;
      heard_ns = std::max(heard_ns, status_.heard_ns);
    }
    if (left < least) {
      least = left;
      progress_ns = now_ns;
    }
    if (now_ns >= until_ns || now_ns - heard_ns > kDrainUnansweredNs ||
        now_ns - progress_ns > kDrainIdleNs) {
      HOTBED_LOG(Warning) << left << " shards were not handed over within "
                          << (now_ns - begin_ns) / 1'000'000
                          << " ms: their other members take over once this server is gone";
      return false;
    }
    clock_->SleepNs(kDrainStepNs);
  }
  return true;
}

void CoordinatorLink::Stop() {
  {
    absl::MutexLock lock(&mu_);
    if (stop_) return;
    stop_ = true;
    if (stream_ != nullptr) stream_->Cancel();
  }
  calls_.Stop();
  thread_.join();
  activations_.join();
  cuts_->Stop();
  host_->SetActivationListener(nullptr);
  EndStream();
  if (!status().registered) return;
  const absl::Status told = TellOfStop();
  if (!told.ok()) HOTBED_LOG(Warning) << "could not tell the coordinator of the stop: " << told;
}

absl::Status CoordinatorLink::TellOfStop() {
  grpc::ClientContext context;
  CoordinatorCalls::SetDeadline(options_.timeouts.ms, &context);
  v1::HeartbeatRequest request;
  FillHeartbeat(&request);
  request.set_draining(true);
  request.set_number(1);
  request.set_plan_revision_known(applier_.plan_revision());
  v1::HeartbeatReply reply;
  const auto place = calls_.leader()->Find(absl::ZeroDuration(), /*patient=*/false);
  const auto stream = place->stub->Attend(&context);
  if (stream->Write(request) && stream->Read(&reply)) {
    context.TryCancel();
    stream->Finish();
    return absl::OkStatus();
  }
  return CoordinatorCalls::FromGrpc("attending", stream->Finish());
}

void CoordinatorLink::Run() {
  for (;;) {
    const absl::Status status = RegisterAndBeat();
    if (!status.ok()) Heard(status);
    Sleep(NextDelayMs(!status.ok()));
    absl::MutexLock lock(&mu_);
    if (stop_ || !final_error_.ok()) return;
  }
}

absl::Status CoordinatorLink::RegisterAndBeat() {
  bool lost = false;
  bool registered = false;
  {
    absl::MutexLock lock(&mu_);
    lost = std::exchange(lease_lost_, false);
    if (lost) status_.registered = false;
    registered = status_.registered;
  }
  if (lost) {
    HOTBED_LOG(Warning) << "the lease was lost: registering again as a new incarnation";
    EndStream();
    backoff_ms_ = 0;
  }
  if (!registered) HOTBED_RETURN_IF_ERROR(Register());
  return Beat();
}

absl::Status CoordinatorLink::Register() {
  const ShardHost::Identity identity = host_->identity();
  v1::RegisterServerRequest request;
  request.set_server(identity.server);
  request.set_cluster_id(identity.cluster_id);
  request.set_name(options_.name);
  request.set_address(options_.address);
  request.set_admin_address(options_.admin_address);
  request.set_failure_domain(options_.failure_domain);
  request.set_host_bytes(options_.host_bytes);
  request.set_message_bytes_max(options_.message_bytes_max);
  request.set_feature_level(kFeatureLevel);
  report_.FillHeld(/*asked_for=*/false, request.mutable_held());
  request.set_start(identity.start);
  request.set_run(identity.run);
  request.set_generation(identity.generation);
  if (recollect_) report_.FillRecollection(request.mutable_recollection());
  for (const uint64_t run : identity.runs_before) request.add_runs_before(run);
  {
    absl::MutexLock lock(&mu_);  // said once: a lease that is lost later changes nothing about it
    if (status_.registrations == 0) request.set_gave_up(identity.gave_up);
  }
  v1::RegisterServerReply reply;
  const absl::Status called =
      Call("registering", &v1::Coordinator::Stub::RegisterServer, request, &reply);
  if (absl::IsAlreadyExists(called)) {  // also later: a copy of the data directory has taken over
    absl::MutexLock lock(&mu_);
    final_error_ = called;
  }
  recollect_ = !called.ok() && !identity.cluster_id.empty();
  HOTBED_RETURN_IF_ERROR(called);
  HOTBED_RETURN_IF_ERROR(host_->SetIdentity({.server = reply.server(),
                                             .cluster_id = reply.cluster_id(),
                                             .generation = reply.generation()}));
  applier_.BeginIncarnation();
  report_.TellLoad();
  host_->SetIncarnation(reply.incarnation());
  if (options_.network != nullptr) {
    options_.network->SetSelf({reply.server(), reply.incarnation()}, reply.cluster_id());
  }
  heartbeat_interval_ms_ = std::max<int64_t>(1, reply.heartbeat_interval_ms());
  HOTBED_LOG(Info) << "registered at " << options_.coordinator << " as server " << reply.server()
                   << " incarnation " << reply.incarnation() << " of cluster "
                   << reply.cluster_id();
  absl::MutexLock lock(&mu_);
  lease_ttl_ms_ = reply.lease_ttl_ms();
  ++status_.registrations;
  status_.registered = true;
  status_.server = reply.server();
  status_.incarnation = reply.incarnation();
  status_.cluster_id = reply.cluster_id();
  return absl::OkStatus();
}

absl::Status CoordinatorLink::StreamToUse(AttendStream** stream) {
  {
    absl::MutexLock lock(&mu_);
    *stream = stream_.get();
  }
  if (*stream != nullptr && !(*stream)->broken()) return absl::OkStatus();
  if (*stream != nullptr) {
    const grpc::Status ended = (*stream)->status();
    EndStream();
    return absl::UnavailableError(absl::StrCat("attending: ", ended.error_message()));
  }
  auto opened = std::make_unique<AttendStream>(
      calls_.leader(), clock_,
      [this](const v1::HeartbeatReply& reply, int64_t sent_ns) { return OnReply(reply, sent_ns); },
      [this] { HeartbeatNow(); });
  report_.TellLoad();
  *stream = opened.get();
  absl::MutexLock lock(&mu_);
  if (stop_) opened->Cancel();
  stream_ = std::move(opened);
  status_.attending = true;
  return absl::OkStatus();
}

void CoordinatorLink::EndStream() {
  std::unique_ptr<AttendStream> stream;
  {
    absl::MutexLock lock(&mu_);
    stream = std::move(stream_);
    status_.attending = false;
  }
  // Without the lock: the destructor waits for the reply that is being applied, which may want it.
  stream.reset();
}

void CoordinatorLink::FillHeartbeat(v1::HeartbeatRequest* request) {
  report_.Fill(request);
  if (const int64_t now_ns = clock_->NowNs(); now_ns >= unnamed_at_ns_) {
    unnamed_ = applier_.Unnamed();
    unnamed_at_ns_ = now_ns + kUnnamedNsPerShard * ShardsHeld();
  }
  for (const ShardId shard : unnamed_) request->add_held_unnamed(shard.packed());
  for (const ShardId shard : host_->PartsWanted()) request->add_parts_wanted(shard.packed());
  absl::MutexLock lock(&mu_);
  request->set_server(status_.server);
  request->set_incarnation(status_.incarnation);
  request->set_draining(draining_);
}

absl::Status CoordinatorLink::Beat() {
  AttendStream* stream = nullptr;
  HOTBED_RETURN_IF_ERROR(StreamToUse(&stream));
  const uint64_t applied = applier_.plan_revision();
  const bool knows_map = applied != 0 || stream->revision_received() != 0;
  // The whole map is asked for once.
  if (stream->unanswered() >= (knows_map ? kUnansweredMax : 1)) return absl::OkStatus();
  v1::HeartbeatRequest request;
  FillHeartbeat(&request);
  stream->Send(applied, &request);  // a stream that breaks here wakes this thread again
  return absl::OkStatus();
}

// The next heartbeat, or after a failure a wait that doubles; jittered, so that servers do not come
// all at once.
int64_t CoordinatorLink::NextDelayMs(bool failed) {
  bool registered = false;
  {
    absl::MutexLock lock(&mu_);
    registered = status_.registered;
    if (std::exchange(replied_, false)) backoff_ms_ = 0;
  }
  if (!failed && registered) return heartbeat_interval_ms_;
  backoff_ms_ = std::clamp(2 * backoff_ms_, options_.backoff_min_ms, options_.backoff_max_ms);
  // While the lease may still hold, a missed heartbeat is repeated no later than the next one is
  // due.
  const int64_t longest =
      registered ? std::max(options_.backoff_min_ms, std::min(backoff_ms_, heartbeat_interval_ms_))
                 : backoff_ms_;
  return longest / 2 + static_cast<int64_t>(random_.Uniform(longest / 2 + 1));
}

void CoordinatorLink::Sleep(int64_t ms) {
  const int64_t until_ns = clock_->NowNs() + ms * 1'000'000;
  for (;;) {
    {
      absl::MutexLock lock(&mu_);
      const auto awake = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
        return heartbeat_now_ || host_news_ || stop_;
      };
      const bool woken =
          AwaitFor(&mu_, absl::Condition(&awake), absl::Nanoseconds(until_ns - clock_->NowNs()));
      const bool host_news = std::exchange(host_news_, false);
      if (std::exchange(heartbeat_now_, false) || stop_ || !woken || !host_news) return;
    }
    if (report_.HasNews()) return;
  }
}

absl::Status CoordinatorLink::OnReply(const v1::HeartbeatReply& reply, int64_t sent_ns) {
  const absl::Status taken = TakeReply(reply);
  if (sent_ns != 0) RenewLease(reply, sent_ns);
  if (!taken.ok()) {  // the next heartbeat asks for it again
    HOTBED_LOG_EVERY_S(Error, 5) << "what the coordinator says: " << taken;
  }
  Heard(taken);
  return taken;
}

absl::Status CoordinatorLink::TakeReply(const v1::HeartbeatReply& reply) {
  if (!reply.lease_held()) {
    host_->SetLease(0);
    absl::MutexLock lock(&mu_);
    status_.lease_until_ns = 0;
    lease_lost_ = true;
    heartbeat_now_ = true;
    return absl::OkStatus();
  }
  if (reply.has_transfer_limits()) {
    const v1::TransferLimits& limits = reply.transfer_limits();
    host_->SetTransferLimits({limits.bytes_per_s(), limits.paused(), limits.pull_p99_ms_max()});
  }
  if (reply.has_given()) {  // before the map: a shard that it activates knows them
    std::vector<GivenOut::TableStep> steps;
    for (const v1::TableStep& step : reply.given().steps()) {
      steps.push_back({step.table(), step.step()});
    }
    host_->LearnGivenOut(reply.given().session(), steps);
  }
  HOTBED_RETURN_IF_ERROR(applier_.Apply(reply.map()));
  cuts_->Learn(reply.cuts());
  return absl::OkStatus();
}

// Strict pulls rest on this. The lease runs from before the heartbeat left, by a clock that also
// counts while the process or the machine is stopped. A new incarnation gets its first lease only
// after its first map: until then its shards may take themselves for primaries that others have
// replaced.
void CoordinatorLink::RenewLease(const v1::HeartbeatReply& reply, int64_t sent_ns) {
  if (applier_.plan_revision() == 0) return;
  int64_t ttl_ns = int64_t{1'000'000} * reply.lease_ttl_ms();
  if (ttl_ns == 0) {
    absl::MutexLock lock(&mu_);
    ttl_ns = 1'000'000 * lease_ttl_ms_;
  }
  if (!reply.lease_held() || ttl_ns <= 0) return;
  const int64_t until_ns = sent_ns + ttl_ns - LeaseMarginNs(ttl_ns);
  host_->SetLease(until_ns);
  absl::MutexLock lock(&mu_);
  status_.lease_until_ns = until_ns;
}

void CoordinatorLink::RunActivations() {
  absl::Duration wait = kActivationsAgain;
  for (;;) {
    bool registered = false;
    {
      absl::MutexLock lock(&mu_);
      const auto awake = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return activate_ || stop_; };
      AwaitFor(&mu_, absl::Condition(&awake), wait);
      if (stop_) return;
      activate_ = false;
      registered = status_.registered;
    }
    EndStreamIfUnanswered();
    wait = kActivationsAgain;
    if (!registered) continue;
    const absl::Status status = Activate();
    if (status.ok()) continue;
    HOTBED_LOG_EVERY_S(Warning, 10) << "coordinator at " << options_.coordinator << ": "
                                    << status.message() << "; trying again";
    wait = kActivationsRetry;
  }
}

absl::Status CoordinatorLink::Activate() {
  const std::vector<ShardHost::ShardEpoch> waiting = host_->ShardsToActivate();
  if (waiting.empty()) return absl::OkStatus();
  v1::ActivateShardsRequest request;
  {
    absl::MutexLock lock(&mu_);
    request.set_server(status_.server);
    request.set_incarnation(status_.incarnation);
  }
  for (const ShardHost::ShardEpoch& shard : waiting) {
    v1::ShardEpoch* const message = request.add_shards();
    message->set_shard(shard.shard.packed());
    message->set_epoch(shard.epoch);
  }
  v1::ActivateShardsReply reply;
  HOTBED_RETURN_IF_ERROR(
      Call("activating shards", &v1::Coordinator::Stub::ActivateShards, request, &reply));
  return applier_.ApplyRecords(reply.records());
}

// Done here because the first thread may be blocked in a write on that very stream.
void CoordinatorLink::EndStreamIfUnanswered() {
  const auto waits_longer = [this](int64_t timeout_ms) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const int64_t sent_ns = stream_ == nullptr ? 0 : stream_->oldest_unanswered_ns();
    return sent_ns != 0 && clock_->NowNs() - sent_ns > 1'000'000 * timeout_ms;
  };
  {
    absl::MutexLock lock(&mu_);
    if (!waits_longer(calls_.TimeoutMs(0))) return;
  }
  const int64_t timeout_ms = calls_.TimeoutMs(ShardsHeld());
  absl::MutexLock lock(&mu_);
  if (waits_longer(timeout_ms)) stream_->Cancel();
}

// Keeps the outcome for the status page and logs changes and, once in a while, failures.
void CoordinatorLink::Heard(const absl::Status& status) {
  absl::MutexLock lock(&mu_);
  const bool back = status.ok() && !answered_;
  answered_ = status.ok();
  status_.error = std::string(status.message());
  if (status.ok()) {
    calls_.ResetTimeout();
    replied_ = true;
    status_.heard_ns = clock_->NowNs();
    if (back) HOTBED_LOG(Info) << "the coordinator at " << options_.coordinator << " answers again";
  } else if (status_.registrations == 0 && IsFinal(status)) {
    final_error_ = status;
  } else if (!stop_) {
    HOTBED_LOG_EVERY_S(Warning, 10) << "coordinator at " << options_.coordinator << ": "
                                    << status.message() << "; serving on, trying again";
  }
}

}  // namespace hotbed
