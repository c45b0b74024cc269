#include "server/coordinator_link.h"

#include <grpcpp/create_channel.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "proto/convert.h"
#include "proto/wire.h"

namespace hotbed {
namespace {

constexpr int kControlMessageBytesMax = 256 << 20;  // a map of every shard of a large cluster

std::unique_ptr<v1::Coordinator::Stub> Connect(const std::string& coordinator) {
  grpc::ChannelArguments args;
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 500);
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  args.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
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

void FillLoad(const HostStatus& status, v1::ServerLoad* load) {
  for (const ShardStatus& shard : status.shards) {
    load->set_rows_resident(load->rows_resident() + shard.rows_resident);
    load->set_rows_pulled_total(load->rows_pulled_total() + shard.rows_pulled);
    load->set_rows_pushed_total(load->rows_pushed_total() + shard.rows_pushed);
  }
  load->set_hot_bytes(status.hot_bytes);
  load->set_host_bytes_limit(status.host_bytes_limit);
  load->set_spill_bytes(status.spill_bytes);
  load->set_log_bytes(status.log_bytes);
  load->set_read_only(status.read_only);
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
      random_(options_.jitter_seed) {
  host_->SetActivationListener([this] { Kick(); });
  thread_ = std::thread([this] { Run(); });
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
  absl::MutexLock lock(&mu_);
  return status_;
}

void CoordinatorLink::Kick() {
  absl::MutexLock lock(&mu_);
  kicked_ = true;
}

void CoordinatorLink::Stop() {
  {
    absl::MutexLock lock(&mu_);
    if (joined_) return;
    joined_ = true;
    stop_ = true;
    if (calling_ != nullptr) calling_->TryCancel();
  }
  thread_.join();
  host_->SetActivationListener(nullptr);
  if (leased_) {
    const absl::Status told = Heartbeat(/*draining=*/true);
    if (!told.ok()) HOTBED_LOG(Warning) << "could not tell the coordinator of the stop: " << told;
  }
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
  absl::Status status;
  if (!leased_) status = Register();
  if (status.ok()) status = Heartbeat(/*draining=*/false);
  if (status.ok() && leased_) status = Activate();
  Heard(status);
}

// Keeps the outcome for the status page and says it where people look: once in a while, not at each
// try.
void CoordinatorLink::Heard(const absl::Status& status) {
  const bool back = status.ok() && !answered_;
  answered_ = status.ok();
  if (answered_) timeout_ms_ = 0;
  absl::MutexLock lock(&mu_);
  status_.registered = leased_;
  status_.error = std::string(status.message());
  if (status.ok()) {
    status_.heard_ns = clock_->NowNs();
    if (back) HOTBED_LOG(Info) << "the coordinator at " << options_.coordinator << " answers again";
  } else if (status_.registrations == 0 && IsFinal(status)) {
    final_error_ = status;
  } else {
    HOTBED_LOG_EVERY_S(Warning, 10) << "coordinator at " << options_.coordinator << ": "
                                    << status.message() << "; serving on, trying again";
  }
}

template <typename Method, typename Request, typename Reply>
absl::Status CoordinatorLink::Call(const char* name, Method method, const Request& request,
                                   Reply* reply, bool last) {
  int64_t timeout_ms = options_.rpc_timeout_ms;
  if (!last) {
    timeout_ms += static_cast<int64_t>(host_->Status().shards.size());
    timeout_ms = std::min(std::max(timeout_ms, timeout_ms_), options_.rpc_timeout_ms_max);
  }
  grpc::ClientContext context;
  SetDeadline(timeout_ms, &context);
  {
    absl::MutexLock lock(&mu_);
    if (stop_ && !last) return absl::CancelledError(absl::StrCat(name, ": stopping"));
    calling_ = &context;
  }
  const grpc::Status status = (stub_.get()->*method)(&context, request, reply);
  {
    absl::MutexLock lock(&mu_);
    calling_ = nullptr;
  }
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
  request.set_host_bytes(options_.host_bytes);
  request.set_message_bytes_max(options_.message_bytes_max);
  request.set_feature_level(kFeatureLevel);
  v1::RegisterServerReply reply;
  HOTBED_RETURN_IF_ERROR(
      Call("registering", &v1::Coordinator::Stub::RegisterServer, request, &reply));
  HOTBED_RETURN_IF_ERROR(host_->SetIdentity({reply.server(), reply.cluster_id()}));
  host_->SetIncarnation(reply.incarnation());
  leased_ = true;
  heartbeat_interval_ms_ = std::max<int64_t>(1, reply.heartbeat_interval_ms());
  HOTBED_LOG(Info) << "registered at " << options_.coordinator << " as server " << reply.server()
                   << " incarnation " << reply.incarnation() << " of cluster "
                   << reply.cluster_id();
  absl::MutexLock lock(&mu_);
  ++status_.registrations;
  status_.registered = true;
  status_.server = reply.server();
  status_.incarnation = reply.incarnation();
  status_.cluster_id = reply.cluster_id();
  status_.plan_revision = 0;  // a new incarnation hears everything anew
  return absl::OkStatus();
}

absl::Status CoordinatorLink::Heartbeat(bool draining) {
  v1::HeartbeatRequest request;
  {
    absl::MutexLock lock(&mu_);
    request.set_server(status_.server);
    request.set_incarnation(status_.incarnation);
    request.set_plan_revision_known(status_.plan_revision);
  }
  FillLoad(host_->Status(), request.mutable_load());
  request.set_draining(draining);
  v1::HeartbeatReply reply;
  HOTBED_RETURN_IF_ERROR(
      Call("heartbeat", &v1::Coordinator::Stub::Heartbeat, request, &reply, draining));
  if (draining) return absl::OkStatus();
  if (!reply.lease_held()) {
    HOTBED_LOG(Warning) << "the lease was lost: registering again as a new incarnation";
    leased_ = false;
    backoff_ms_ = 0;
    Kick();
    return absl::OkStatus();
  }
  return Apply(reply.map());
}

absl::Status CoordinatorLink::Apply(const v1::ClusterMap& map) {
  if (map.plan_revision() == 0) return absl::OkStatus();
  std::vector<TableSpec> tables;
  for (const v1::TableSpec& message : map.tables()) {
    HOTBED_ASSIGN_OR_RETURN(TableSpec spec, FromProto(message));
    tables.push_back(std::move(spec));
  }
  std::vector<ShardRecord> records;
  for (const v1::ShardRecord& message : map.shards()) {
    HOTBED_ASSIGN_OR_RETURN(ShardRecord record, FromProto(message));
    records.push_back(std::move(record));
  }
  std::vector<TableId> dropped(map.tables_dropped().begin(), map.tables_dropped().end());
  AddTablesMissing(map, &dropped);
  if (!tables.empty() || !records.empty() || !dropped.empty()) {
    HOTBED_RETURN_IF_ERROR(host_->ApplyAssignment(tables, records, dropped));
  }
  plan_revision_highest_ = std::max(plan_revision_highest_, map.plan_revision());
  absl::MutexLock lock(&mu_);
  status_.plan_revision = map.plan_revision();
  return absl::OkStatus();
}

// The coordinator remembers a bounded number of dropped tables, so a server that was long away
// learns of older ones by what a whole map lacks. Rows are deleted for it, so it counts only where
// nothing else explains it: the map is this cluster's, no older than one seen before, and names a
// dropped table (without a drop no table can be missing).
void CoordinatorLink::AddTablesMissing(const v1::ClusterMap& map,
                                       std::vector<TableId>* dropped) const {
  if (map.delta() || dropped->empty() || map.cluster_id().empty() ||
      map.cluster_id() != host_->identity().cluster_id ||
      map.plan_revision() < plan_revision_highest_) {
    return;
  }
  std::set<TableId> known(dropped->begin(), dropped->end());
  for (const v1::TableSpec& table : map.tables()) known.insert(table.id());
  for (const v1::ShardRecord& record : map.shards()) {
    known.insert(ShardId::FromPacked(record.shard()).table);
  }
  for (const ShardStatus& held : host_->Status().shards) {
    if (!known.insert(held.shard.table).second) continue;
    HOTBED_LOG(Warning) << "table " << held.table << " (id " << held.shard.table
                        << ") was dropped while this server was away: deleting its rows";
    dropped->push_back(held.shard.table);
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
  std::vector<ShardRecord> records;
  for (const v1::ShardRecord& message : reply.records()) {
    HOTBED_ASSIGN_OR_RETURN(ShardRecord record, FromProto(message));
    records.push_back(std::move(record));
  }
  return host_->ApplyAssignment({}, records, {});
}

// The next heartbeat, or after a failure a wait that doubles; jittered, so that servers do not come
// all at once.
int64_t CoordinatorLink::NextDelayMs() {
  if (answered_ && leased_) {
    backoff_ms_ = 0;
    return heartbeat_interval_ms_;
  }
  backoff_ms_ = std::clamp(2 * backoff_ms_, options_.backoff_min_ms, options_.backoff_max_ms);
  // While the lease may still hold, a missed heartbeat is repeated no later than the next one is
  // due.
  const int64_t longest =
      leased_ ? std::max(options_.backoff_min_ms, std::min(backoff_ms_, heartbeat_interval_ms_))
              : backoff_ms_;
  return longest / 2 + static_cast<int64_t>(random_() % (longest / 2 + 1));
}

void CoordinatorLink::Sleep(int64_t ms) {
  absl::MutexLock lock(&mu_);
  const auto awake = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return kicked_ || stop_; };
  mu_.AwaitWithTimeout(absl::Condition(&awake), absl::Milliseconds(ms));
  kicked_ = false;
}

}  // namespace hotbed
