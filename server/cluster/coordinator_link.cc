#include "server/cluster/coordinator_link.h"

#include <grpcpp/create_channel.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/await_for.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "proto/grpc_tuning.h"
#include "proto/wire.h"

namespace hotbed {
namespace {

constexpr int kControlMessageBytesMax = 256 << 20;  // a map of every shard of a large cluster
constexpr int kCallsBeforeAttend = 10;
constexpr int64_t kDrainStepNs = 5'000'000;
// Of a coordinator that does not answer, a server that drains waits no longer than this.
constexpr int64_t kDrainUnansweredNs = 1'000'000'000;
// Nor where nothing was handed over for so long: all that could take over may be stopping, too.
constexpr int64_t kDrainIdleNs = 3'000'000'000;

std::unique_ptr<v1::Coordinator::Stub> Connect(const std::string& coordinator) {
  grpc::ChannelArguments args;
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 500);
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  args.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  SetKeepalive(kAttendKeepalive, &args);
  args.SetMaxReceiveMessageSize(kControlMessageBytesMax);
  return v1::Coordinator::NewStub(
      grpc::CreateCustomChannel(coordinator, grpc::InsecureChannelCredentials(), args));
}

absl::Status FromGrpc(const char* call, const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      absl::StrCat(call, ": ", status.error_message()));
}

// What trying again cannot change.
bool IsFinal(const absl::Status& status) {
  return absl::IsFailedPrecondition(status) || absl::IsAlreadyExists(status) ||
         absl::IsInvalidArgument(status) || absl::IsPermissionDenied(status);
}

void SetDeadline(int64_t timeout_ms, grpc::ClientContext* context) {
  context->set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(timeout_ms));
}

}  // namespace

CoordinatorLink::CoordinatorLink(CoordinatorLinkOptions options, ShardHost* host,
                                 const Clock* clock)
    : options_(std::move(options)),
      host_(host),
      clock_(clock),
      stub_(Connect(options_.coordinator)),
      applier_(host, options_.network),
      random_(options_.jitter_seed) {
  host_->SetActivationListener([this] { Nudge(); });
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

LinkStatus CoordinatorLink::status() const {
  const uint64_t plan_revision = applier_.plan_revision();
  absl::MutexLock lock(&mu_);
  LinkStatus status = status_;
  status.plan_revision = plan_revision;
  return status;
}

void CoordinatorLink::Kick() {
  absl::MutexLock lock(&mu_);
  kicked_ = true;
}

void CoordinatorLink::Nudge() {
  absl::MutexLock lock(&mu_);
  nudged_ = true;
  activate_ = true;
}

bool CoordinatorLink::Drain(int64_t wait_ms) {
  Member self;
  {
    absl::MutexLock lock(&mu_);
    draining_ = true;
    kicked_ = true;
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
    if (joined_) return;
    joined_ = true;
    stop_ = true;
    for (grpc::ClientContext* context : calling_) context->TryCancel();
    if (stream_ != nullptr) stream_->Cancel();
  }
  thread_.join();
  activations_.join();
  host_->SetActivationListener(nullptr);
  EndStream();
  if (!leased_) return;
  const absl::Status told = BeatByCall(/*last=*/true);
  if (!told.ok()) HOTBED_LOG(Warning) << "could not tell the coordinator of the stop: " << told;
}

void CoordinatorLink::Run() {
  for (;;) {
    Turn();
    Sleep(NextDelayMs());
    absl::MutexLock lock(&mu_);
    if (stop_ || !final_error_.ok()) return;
  }
}

void CoordinatorLink::Turn() {
  bool lost = false;
  {
    absl::MutexLock lock(&mu_);
    lost = std::exchange(lease_lost_, false);
    if (lost) status_.registered = false;
  }
  if (lost) {
    HOTBED_LOG(Warning) << "the lease was lost: registering again as a new incarnation";
    EndStream();
    leased_ = false;
    backoff_ms_ = 0;
  }
  absl::Status status;
  if (!leased_) {
    status = Register();
    if (status.ok()) attends_ = true;
  }
  if (status.ok() && attends_) status = BeatOnStream();
  if (status.ok() && !attends_) {
    status = BeatByCall(/*last=*/false);
    if (status.ok()) Heard(status);
    // The next coordinator may know more.
    attends_ = !status.ok() || ++calls_ % kCallsBeforeAttend == 0;
  }
  failed_ = !status.ok();
  if (failed_) Heard(status);
}

// Keeps the outcome for the status page and says it where people look: once in a while, not at each
// try.
void CoordinatorLink::Heard(const absl::Status& status) {
  absl::MutexLock lock(&mu_);
  const bool back = status.ok() && !answered_;
  answered_ = status.ok();
  status_.error = std::string(status.message());
  if (status.ok()) {
    timeout_ms_ = 0;
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

int64_t CoordinatorLink::TimeoutMs() const {
  const int64_t shards = static_cast<int64_t>(host_->Status().shards.size());
  absl::MutexLock lock(&mu_);
  return std::min(std::max(options_.rpc_timeout_ms + shards, timeout_ms_),
                  options_.rpc_timeout_ms_max);
}

template <typename Method, typename Request, typename Reply>
absl::Status CoordinatorLink::Call(const char* name, Method method, const Request& request,
                                   Reply* reply, bool last) {
  const int64_t timeout_ms = last ? options_.rpc_timeout_ms : TimeoutMs();
  grpc::ClientContext context;
  SetDeadline(timeout_ms, &context);
  {
    absl::MutexLock lock(&mu_);
    if (stop_ && !last) return absl::CancelledError(absl::StrCat(name, ": stopping"));
    calling_.insert(&context);
  }
  const grpc::Status status = (stub_.get()->*method)(&context, request, reply);
  absl::MutexLock lock(&mu_);
  calling_.erase(&context);
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) timeout_ms_ = 2 * timeout_ms;
  return FromGrpc(name, status);
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
  v1::RegisterServerReply reply;
  HOTBED_RETURN_IF_ERROR(
      Call("registering", &v1::Coordinator::Stub::RegisterServer, request, &reply));
  HOTBED_RETURN_IF_ERROR(host_->SetIdentity({reply.server(), reply.cluster_id()}));
  applier_.BeginAnew();
  host_->SetIncarnation(reply.incarnation());
  if (options_.network != nullptr) {
    options_.network->SetSelf({reply.server(), reply.incarnation()}, reply.cluster_id());
  }
  leased_ = true;
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

absl::Status CoordinatorLink::BeatByCall(bool last) {
  v1::HeartbeatRequest request;
  FillHeartbeat(&request);
  if (last) request.set_draining(true);
  v1::HeartbeatReply reply;
  const int64_t sent_ns = clock_->NowNs();
  HOTBED_RETURN_IF_ERROR(
      Call("heartbeat", &v1::Coordinator::Stub::Heartbeat, request, &reply, last));
  if (last) return absl::OkStatus();
  const absl::Status taken = TakeReply(reply);
  RenewLease(reply, sent_ns);
  return taken;
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
  return applier_.TakeRecords(reply.records());
}

// The next heartbeat, or after a failure a wait that doubles; jittered, so that servers do not come
// all at once.
int64_t CoordinatorLink::NextDelayMs() {
  {
    absl::MutexLock lock(&mu_);
    if (std::exchange(replied_, false)) backoff_ms_ = 0;
  }
  if (!failed_ && leased_) return heartbeat_interval_ms_;
  backoff_ms_ = std::clamp(2 * backoff_ms_, options_.backoff_min_ms, options_.backoff_max_ms);
  // While the lease may still hold, a missed heartbeat is repeated no later than the next one is
  // due.
  const int64_t longest =
      leased_ ? std::max(options_.backoff_min_ms, std::min(backoff_ms_, heartbeat_interval_ms_))
              : backoff_ms_;
  return longest / 2 + static_cast<int64_t>(random_.Uniform(longest / 2 + 1));
}

void CoordinatorLink::Sleep(int64_t ms) {
  const int64_t until_ns = clock_->NowNs() + ms * 1'000'000;
  for (;;) {
    {
      absl::MutexLock lock(&mu_);
      const auto awake = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
        return kicked_ || nudged_ || stop_;
      };
      const bool woken =
          AwaitFor(&mu_, absl::Condition(&awake), absl::Nanoseconds(until_ns - clock_->NowNs()));
      const bool nudged = std::exchange(nudged_, false);
      if (std::exchange(kicked_, false) || stop_ || !woken || !nudged) return;
    }
    if (HasNews()) return;
  }
}

}  // namespace hotbed
