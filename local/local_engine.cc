#include "local/local_engine.h"

#include <unistd.h>

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "proto/wire.h"
#include "server/host/host_budget.h"
#include "server/machine_memory.h"
#include "server/shard/shard.h"
#include "server/vocabulary/number_answer.h"

namespace hotbed {
namespace {

constexpr uint64_t kHostBytesMin = 64ull << 20;
constexpr uint64_t kHostBytesUnknown = 1ull << 30;  // where the machine does not say what it has
// Nothing can lose this server but the end of the process, which takes the coordinator along.
constexpr int64_t kLeaseMs = int64_t{10} * 365 * 24 * 3600 * 1000;
constexpr absl::Duration kBeat = absl::Seconds(1);
constexpr absl::Duration kTick = absl::Milliseconds(100);  // of requests that wait for a budget
constexpr absl::Duration kStart = absl::Seconds(60);
constexpr absl::Duration kActivation = absl::Milliseconds(1);
// The log of an engine in memory takes memory.
constexpr uint64_t kMemoryLogBytes = 256ull << 20;
constexpr uint64_t kMemoryLogSegmentBytes = 16ull << 20;

absl::StatusOr<uint64_t> HostBytesOf(const LocalOptions& options) {
  if (options.host_bytes == 0) {
    const uint64_t machine = MachineMemoryBytes();
    return machine == 0 ? kHostBytesUnknown : std::max(machine / 2, kHostBytesMin);
  }
  if (options.host_bytes >= kHostBytesMin) return options.host_bytes;
  return absl::InvalidArgumentError(absl::StrCat("host_bytes is ", options.host_bytes,
                                                 "; allowed: ", kHostBytesMin, " and more, or 0"));
}

DataPlaneLimits LimitsOf(uint64_t host_bytes) {
  const uint64_t half = CarveHostBytes(host_bytes).message_bytes / 2;
  DataPlaneLimits limits;
  limits.pull_bytes_in_flight_max = half;
  limits.push_bytes_in_flight_max = half / 5 * 4;
  limits.push_bytes_waiting_max = limits.push_bytes_in_flight_max / 4;
  return limits;
}

}  // namespace

absl::StatusOr<std::shared_ptr<LocalEngine>> LocalEngine::Open(const std::string& directory,
                                                               const LocalOptions& options,
                                                               uint64_t seed) {
  for (const auto& [name, value] : {std::pair("log_sync_interval_ms", options.log_sync_interval_ms),
                                    {"checkpoint_interval_ms", options.checkpoint_interval_ms}}) {
    if (value < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, " is ", value, "; allowed: 0 and more milliseconds"));
    }
  }
  auto engine = std::shared_ptr<LocalEngine>(new LocalEngine);
  std::string path = directory;
  if (directory.empty()) {
    HOTBED_ASSIGN_OR_RETURN(engine->memory_, MemoryDirectory::Make());
    path = engine->memory_->path();
  }
  HOTBED_RETURN_IF_ERROR(engine->Start(path, options, directory.empty(), seed));
  return engine;
}

absl::Status LocalEngine::Start(const std::string& path, const LocalOptions& options,
                                bool in_memory, uint64_t seed) {
  HOTBED_ASSIGN_OR_RETURN(const uint64_t host_bytes, HostBytesOf(options));
  LocalOptions resolved = options;
  resolved.host_bytes = host_bytes;
  HOTBED_RETURN_IF_ERROR(FileSystem::Real()->MakeDir(path));
  HOTBED_RETURN_IF_ERROR(StartCoordinator(absl::StrCat(path, "/coordinator"), seed));
  HOTBED_RETURN_IF_ERROR(StartHost(absl::StrCat(path, "/server"), resolved, in_memory));
  HOTBED_RETURN_IF_ERROR(Register(host_bytes));
  const int64_t until_ns = clock_->NowNs() + absl::ToInt64Nanoseconds(kStart);
  for (;;) {
    HOTBED_RETURN_IF_ERROR(TakeUp());
    if (host_->CountPrimaries().waiting == 0) break;
    if (clock_->NowNs() > until_ns) {
      return absl::DeadlineExceededError(absl::StrCat(
          path, ": ", host_->CountPrimaries().waiting, " shards are not recovered after ",
          absl::FormatDuration(kStart), "; see the log of this process for the reason"));
    }
    clock_->SleepNs(absl::ToInt64Nanoseconds(kActivation));
  }
  host_->SetActivationListener([this] {
    absl::MutexLock lock(&mu_);
    take_up_ = true;
  });
  thread_ = std::thread([this] { Run(); });
  return absl::OkStatus();
}

absl::Status LocalEngine::StartCoordinator(const std::string& path, uint64_t seed) {
  HOTBED_ASSIGN_OR_RETURN(metadata_, OpenDataDir(path, FileSystem::Real()));
  CoreOptions core;
  core.token = absl::StrFormat("process %d %016x", getpid(), seed);
  core.new_cluster_id = absl::StrFormat("%016x", seed);
  core.lease_ttl_ms = kLeaseMs;
  core.split_above_bytes = 0;  // one process holds all shards, and nobody here would cut them
  core.split_above_rows_per_s = 0;
  coordinator_ = std::make_unique<Coordinator>(core, metadata_.store.get(), clock_);
  coordinator_->SetNewsListener([this](bool) {
    absl::MutexLock lock(&mu_);
    ++news_;
    take_up_ = true;
  });
  return coordinator_->Start();
}

absl::Status LocalEngine::StartHost(const std::string& path, const LocalOptions& options,
                                    bool in_memory) {
  ShardHostOptions host;
  host.data_dir = path;
  host.host_bytes = options.host_bytes;
  host.spill_bytes_max = options.spill_bytes_max;
  host.log_sync_interval_ms = options.log_sync_interval_ms;
  host.checkpoint_interval_ms = options.checkpoint_interval_ms;
  if (in_memory) {
    host.log_bytes_max = kMemoryLogBytes;
    host.log_segment_bytes = kMemoryLogSegmentBytes;
    host.log_sync_interval_ms = std::max<int64_t>(host.log_sync_interval_ms, 1000);
    host.checkpoint_interval_ms = 0;  // nothing survives the process
  }
  host.restores = &restored_;
  HOTBED_ASSIGN_OR_RETURN(host_, ShardHost::Open(host, clock_));
  saves_ = std::make_unique<SaveJobs>(host_.get(), &places_, clock_);
  plane_ = std::make_unique<DataPlane>(LimitsOf(options.host_bytes), host_.get(), clock_);
  applier_.emplace(host_.get(), nullptr);
  absl::MutexLock lock(&taking_up_);
  report_.emplace(host_.get(), clock_);
  return absl::OkStatus();
}

absl::Status LocalEngine::Register(uint64_t host_bytes) {
  const ShardHost::Identity identity = host_->identity();
  v1::RegisterServerRequest request;
  request.set_server(identity.server);
  request.set_cluster_id(identity.cluster_id);
  request.set_name("local");
  request.set_address(kAddress);
  request.set_host_bytes(host_bytes);
  request.set_message_bytes_max(plane_->limits.message_bytes_max);
  request.set_feature_level(kFeatureLevel);
  request.set_start(identity.start);
  request.set_run(identity.run);
  request.set_generation(identity.generation);
  for (const uint64_t run : identity.runs_before) request.add_runs_before(run);
  {
    absl::MutexLock lock(&taking_up_);
    report_->FillHeld(/*asked_for=*/false, request.mutable_held());
  }
  HOTBED_ASSIGN_OR_RETURN(const auto reply,
                          Call<v1::RegisterServerReply>(std::move(request), kStart));
  server_ = reply.server();
  incarnation_ = reply.incarnation();
  HOTBED_RETURN_IF_ERROR(host_->SetIdentity(
      {.server = server_, .cluster_id = reply.cluster_id(), .generation = reply.generation()}));
  applier_->BeginIncarnation();
  host_->SetIncarnation(incarnation_);
  return absl::OkStatus();
}

absl::Status LocalEngine::TakeUp() {
  absl::MutexLock lock(&taking_up_);
  HOTBED_RETURN_IF_ERROR(Beat());
  return Activate();
}

absl::Status LocalEngine::Beat() {
  v1::HeartbeatRequest request;
  report_->Fill(&request);
  for (const ShardId shard : applier_->Unnamed()) request.add_held_unnamed(shard.packed());
  request.set_server(server_);
  request.set_incarnation(incarnation_);
  request.set_plan_revision_known(applier_->plan_revision());
  HOTBED_ASSIGN_OR_RETURN(const auto reply, Call<v1::HeartbeatReply>(std::move(request), kStart));
  std::vector<GivenOut::TableStep> steps;
  for (const v1::TableStep& step : reply.given().steps()) {
    steps.push_back({step.table(), step.step()});
  }
  host_->LearnGivenOut(reply.given().session(), steps);
  HOTBED_RETURN_IF_ERROR(applier_->Apply(reply.map()));
  host_->SetLease(clock_->NowNs() + kLeaseMs * 1'000'000);
  return absl::OkStatus();
}

// A shard that was just opened needs a moment until its promise is durable.
absl::Status LocalEngine::Activate() {
  const int64_t until_ns = clock_->NowNs() + absl::ToInt64Nanoseconds(kBeat);
  while (host_->CountPrimaries().waiting > 0 && clock_->NowNs() < until_ns) {
    const std::vector<ShardHost::ShardEpoch> waiting = host_->ShardsToActivate();
    if (waiting.empty()) {
      clock_->SleepNs(absl::ToInt64Nanoseconds(kActivation) / 4);
      continue;
    }
    v1::ActivateShardsRequest request;
    request.set_server(server_);
    request.set_incarnation(incarnation_);
    for (const ShardHost::ShardEpoch& shard : waiting) {
      v1::ShardEpoch* const message = request.add_shards();
      message->set_shard(shard.shard.packed());
      message->set_epoch(shard.epoch);
    }
    HOTBED_ASSIGN_OR_RETURN(const auto reply,
                            Call<v1::ActivateShardsReply>(std::move(request), kStart));
    HOTBED_RETURN_IF_ERROR(applier_->ApplyRecords(reply.records()));
  }
  return absl::OkStatus();
}

void LocalEngine::Run() {
  int64_t beaten_ns = clock_->NowNs();
  for (;;) {
    bool take_up = false;
    {
      absl::MutexLock lock(&mu_);
      const auto awake = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return take_up_ || stops_; };
      AwaitFor(&mu_, absl::Condition(&awake), kTick);
      if (stops_) return;
      take_up = std::exchange(take_up_, false);
    }
    const int64_t now_ns = clock_->NowNs();
    for (ByteBudget* budget :
         {&plane_->pull_budget, &plane_->lookup_budget, &plane_->push_budget}) {
      budget->Expire(now_ns);
    }
    if (!take_up && now_ns - beaten_ns < absl::ToInt64Nanoseconds(kBeat)) continue;
    beaten_ns = now_ns;
    const absl::Status taken = TakeUp();
    if (!taken.ok()) HOTBED_LOG_EVERY_S(Warning, 10) << "local engine: " << taken;
  }
}

bool LocalEngine::AwaitNews(uint64_t* seen, const bool* stopped) {
  absl::MutexLock lock(&mu_);
  const auto awake = [&]()
                         ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return *stopped || news_ != *seen; };
  mu_.Await(absl::Condition(&awake));
  *seen = news_;
  return !*stopped;
}

void LocalEngine::Wake(bool* stopped) {
  absl::MutexLock lock(&mu_);
  *stopped = true;
}

SoftmaxCalls* LocalEngine::softmax() {
  absl::MutexLock lock(&mu_);
  if (softmax_ == nullptr) {
    softmax_ = std::make_unique<SoftmaxCalls>(host_.get(), clock_);
    softmax_->SetMemory(&plane_->pull_budget);
  }
  return softmax_.get();
}

absl::StatusOr<v1::NumberReply> LocalEngine::Number(const v1::NumberRequest& request) {
  const std::shared_ptr<Shard> shard = host_->Find(ShardId::FromPacked(request.shard()));
  if (shard == nullptr) return absl::UnavailableError("the table was dropped");
  HOTBED_RETURN_IF_ERROR(CheckNumberRequest(request, shard->table()));
  absl::MutexLock lock(&numbering_);
  return AnswerNumber(host_.get(), request, *clock_,
                      clock_->NowNs() + request.timeout_ms() * kMillisecondNs);
}

LocalEngine::~LocalEngine() {
  {
    absl::MutexLock lock(&mu_);
    stops_ = true;
  }
  if (thread_.joinable()) thread_.join();
  places_.Stop();
  saves_.reset();
  {
    absl::MutexLock lock(&mu_);
    softmax_.reset();
  }
  if (host_ != nullptr) {
    host_->SetActivationListener(nullptr);
    // An engine in memory leaves nothing behind, so its rows need not be written back.
    const absl::Status written = memory_ == nullptr ? host_->Shutdown() : absl::OkStatus();
    if (!written.ok()) HOTBED_LOG(Error) << "local engine: rows are not written back: " << written;
  }
  if (coordinator_ != nullptr) coordinator_->Stop();
  plane_.reset();
  host_.reset();
}

}  // namespace hotbed
