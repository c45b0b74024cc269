// hotbed-server: holds shards of embedding tables and serves them.
//
// Stdout carries one line, printed once the server is registered: `hotbed-server NAME serving: data
// HOST:PORT admin HOST:PORT`, and with --http-listen ` http HOST:PORT` behind it. Exit codes: 0
// after a clean stop (SIGTERM, SIGINT), 1 after an error, 2 after a wrong flag.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "admin/admin_server.h"
#include "common/clock.h"
#include "common/daemon.h"
#include "common/log.h"
#include "common/process_tuning.h"
#include "common/resident_bound.h"
#include "config/units.h"
#include "places/servers/servers_place.h"
#include "ports/port.h"
#include "proto/protobuf_log.h"
#include "security/server_security.h"
#include "server/cluster/coordinator_link.h"
#include "server/data_server.h"
#include "server/device_choice.h"
#include "server/export/checkpoint_calls.h"
#include "server/export/checkpoint_source.h"
#include "server/export/save_jobs.h"
#include "server/host/host_budget.h"
#include "server/host/shard_host.h"
#include "server/machine_memory.h"
#include "server/output/softmax_calls.h"
#include "server/server_options.h"
#include "server/server_status.h"
#include "server/vocabulary/number_calls.h"
#include "serving/serving_process.h"

namespace hotbed {
namespace {

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "hotbed-server: %s\n", std::string(status.message()).c_str());
  return 1;
}

// All parts of the process, in the order in which they start; they stop in reverse order.
struct Process {
  ServerOptions options;
  const Clock* clock = Clock::Real();
  CheckpointSource checkpoints{PlaceFinder::Real(), clock};
  std::unique_ptr<ShardHost> host;
  std::unique_ptr<SaveJobs> saves;
  std::unique_ptr<OwnDisk> disk;
  std::unique_ptr<ChangeReads> changes;
  std::unique_ptr<RowLists> lists;
  std::unique_ptr<TopKCalls> top_k;
  std::unique_ptr<SoftmaxCalls> softmax;
  std::unique_ptr<NumberCalls> numbers;
  std::unique_ptr<DataServer> data;
  std::unique_ptr<MetricSource> metrics;
  std::unique_ptr<CoordinatorLink> link;
  std::atomic<CoordinatorLink*> link_seen{nullptr};  // for the status page; set once complete
  std::atomic<bool> draining{false};
  std::string admin_address;
  std::unique_ptr<AdminServer> admin;
};

std::vector<ReadyCondition> ConditionsOf(const Process& process) {
  ReadyFacts facts;
  facts.now_ns = process.clock->NowNs();
  facts.stopping = process.draining.load();
  const CoordinatorLink* const link = process.link_seen.load();
  if (link != nullptr) facts.link = link->status();
  facts.device_error = process.host->DeviceError();
  facts.primaries = process.host->CountPrimaries();
  std::vector<ReadyCondition> conditions = ReadyConditions(facts);
  ReadyCondition port = {.name = "data port", .found = "answers"};
  port.holds = process.data->PortAnswers(&port.found);
  conditions.push_back(std::move(port));
  ReadyCondition replicas = {.name = "replicas", .found = "the coordinator knows them all"};
  if (const std::string undecided = process.host->UndecidedText(); !undecided.empty()) {
    replicas.holds = false;
    replicas.found = undecided;
  }
  conditions.push_back(std::move(replicas));
  return conditions;
}

bool IsReady(const std::vector<ReadyCondition>& conditions) {
  return std::all_of(conditions.begin(), conditions.end(),
                     [](const ReadyCondition& condition) { return condition.holds; });
}

ServerSnapshot SnapshotOf(const Process& process) {
  const DataPlane& plane = process.data->plane();
  ServerSnapshot snapshot;
  snapshot.name = process.options.name;
  snapshot.data_address = process.data->address();
  snapshot.now_ns = process.clock->NowNs();
  snapshot.host = process.host->Status();
  const CoordinatorLink* const link = process.link_seen.load();
  if (link != nullptr) {
    snapshot.link = link->status();
    snapshot.admin_address = process.admin_address;
  }
  snapshot.ready = IsReady(ConditionsOf(process));
  snapshot.pull_bytes_in_flight = plane.pull_budget.in_flight() + plane.lookup_budget.in_flight();
  snapshot.pull_bytes_in_flight_max = plane.limits.pull_bytes_in_flight_max;
  snapshot.push_bytes_in_flight = plane.push_budget.in_flight();
  snapshot.push_bytes_in_flight_max = plane.push_budget.bytes_max();
  snapshot.streams = plane.streams.load();
  return snapshot;
}

// What takes rows out of shards and files, for clients.
void StartExports(Process* process, const std::shared_ptr<ChangeMemory>& memory) {
  process->saves = std::make_unique<SaveJobs>(process->host.get(), PlaceFinder::Real(),
                                              process->clock, OwnDiskOf(process->options));
  process->disk =
      std::make_unique<OwnDisk>(OwnDiskOf(process->options), memory, FileSystem::Real());
  process->changes = std::make_unique<ChangeReads>(process->host.get(), memory, process->clock);
  process->lists =
      std::make_unique<RowLists>(process->host.get(), process->changes.get(), process->clock);
  process->top_k = std::make_unique<TopKCalls>(process->host.get(), memory, process->clock);
  process->softmax = std::make_unique<SoftmaxCalls>(process->host.get(), process->clock);
  process->numbers = std::make_unique<NumberCalls>(process->host.get(), process->clock);
}

absl::Status StartParts(Process* process) {
  const ServerOptions& options = process->options;
  absl::StatusOr<ServerSecurity> security = OpenServerSecurity(options.security, options.listen);
  if (!security.ok()) return security.status();
  WarnIfPlain(*security, options.listen);
  WarnIfAdminWide(*security, options.admin_listen);
  ShardHostOptions host_options = HostOptionsOf(options);
  host_options.open_device = [&options] {
    return OpenChosenDevice(options.device, options.device_bytes,
                            CarveHostBytes(options.host.host_bytes).hot_bytes / 8);
  };
  host_options.restores = &process->checkpoints;
  // For shards that begin with rows of a checkpoint on other servers' disks.
  PlaceFinder::Real()->ReachServers(ServersPlace::Of(options.coordinator, security->identity()));
  auto host = ShardHost::Open(host_options, process->clock);
  if (!host.ok()) return host.status();
  process->host = *std::move(host);
  StartExports(process, host_options.change_memory);
  process->metrics = std::make_unique<MetricSource>([process](std::vector<MetricSample>* samples) {
    CollectHostMetrics(process->host->Status(), samples);
  });

  DataServerOptions data_options = DataOptionsOf(options);
  data_options.peer_streams.jitter_seed = std::random_device()();
  data_options.security = *security;
  data_options.peer_streams.identity = security->identity();
  data_options.ready = [process] {
    return process->link_seen.load() != nullptr && IsReady(ConditionsOf(*process));
  };
  data_options.calls = CheckpointCalls(process->saves.get(), process->host.get());
  data_options.slow_calls = RowCalls(process->host.get(), process->lists.get(),
                                     process->changes.get(), process->top_k.get());
  data_options.slow_calls.merge(FileCalls(process->disk.get()));
  data_options.slow_calls.merge(OutputCalls(process->softmax.get()));
  data_options.slow_calls.merge(VocabularyCalls(process->numbers.get()));
  auto data = DataServer::Start(data_options, process->host.get(), process->clock);
  if (!data.ok()) return data.status();
  process->data = *std::move(data);
  process->softmax->SetMemory(process->data->pull_budget());
  process->host->SetReplicaNetwork(process->data->network());

  AdminOptions admin_options;
  admin_options.listen = options.admin_listen;
  admin_options.healthy = [process](std::string* why) { return process->data->Healthy(why); };
  admin_options.ready = [process] { return ConditionsOf(*process); };
  admin_options.status = [process] { return RenderStatus(SnapshotOf(*process)); };
  admin_options.may_read = security->admin_access();
  auto admin = AdminServer::Start(std::move(admin_options));
  if (!admin.ok()) return admin.status();
  process->admin = *std::move(admin);
  process->admin_address = process->admin->address();

  CoordinatorLinkOptions link_options;
  link_options.coordinator = options.coordinator;
  link_options.identity = security->identity();
  link_options.name = options.name;
  link_options.address = options.advertise.empty() ? process->data->address() : options.advertise;
  link_options.admin_address =
      options.advertise_admin.empty() ? process->admin_address : options.advertise_admin;
  link_options.failure_domain = options.failure_domain;
  link_options.network = process->data->network();
  link_options.host_bytes = options.host.host_bytes;
  link_options.message_bytes_max = options.message_bytes_max;
  link_options.jitter_seed = std::random_device()();
  process->link = std::make_unique<CoordinatorLink>(std::move(link_options), process->host.get(),
                                                    process->clock);
  process->link_seen.store(process->link.get());
  return absl::OkStatus();
}

// Ends the process after `ms`, whatever it is waiting for: acknowledged pushes are in the log.
void EndAfter(int64_t ms) {
  std::thread([ms] {
    Clock::Real()->SleepNs(ms * 1'000'000);
    HOTBED_LOG(Error) << "not stopped within --drain-ms-max=" << ms
                      << "ms: ending now; rows not written back are recovered from the log";
    _exit(1);
  }).detach();
}

// Requests in flight end while other replicas still answer. Then the port is closed, and the
// coordinator learns that this server has gone: other replicas of shards that were not handed over
// can take over while rows are written back here.
absl::Status StopServing(Process* process, int64_t wait_ms) {
  // Their calls are to be answered while the port can.
  if (process->lists != nullptr) process->lists->Stop();
  if (process->changes != nullptr) process->changes->Stop();
  if (process->top_k != nullptr) process->top_k->Stop();
  if (process->softmax != nullptr) process->softmax->Stop();
  if (process->numbers != nullptr) process->numbers->Stop();
  if (process->disk != nullptr) process->disk->Stop();
  if (process->data != nullptr) process->data->Stop(wait_ms);
  if (process->link != nullptr) process->link->Stop();
  PlaceFinder::Real()->Stop();
  if (process->saves != nullptr) process->saves->Stop();
  return process->host != nullptr ? process->host->Shutdown() : absl::OkStatus();
}

int StopParts(Process* process) {
  EndAfter(process->options.drain_ms_max);
  process->draining.store(true);
  HOTBED_LOG(Info)
      << "stopping: telling the coordinator, handing over, finishing what is in flight";
  process->link->Drain(HandOverMs(process->options));
  const absl::Status written = StopServing(process, process->options.drain_ms_max / 4);
  if (!written.ok()) return Fail(written);
  HOTBED_LOG(Info) << "stopped: everything is written back";
  return 0;
}

void StopAfterFailure(Process* process) {
  EndAfter(process->options.drain_ms_max);
  const absl::Status written = StopServing(process, 0);
  if (!written.ok()) HOTBED_LOG(Error) << written;
}

// --role=serving, until a signal comes.
int Serve(const ServerOptions& options, const sigset_t& stops) {
  absl::StatusOr<ServerSecurity> security = OpenServerSecurity(options.security, options.listen);
  if (!security.ok()) return Fail(security.status());
  WarnIfPlain(*security, options.listen);
  WarnIfAdminWide(*security, options.admin_listen);
  if (options.http_secure != "on") WarnIfHttpWide(*security, options.http_listen);
  ServingOptions serving_options = ServingOptionsOf(options);
  serving_options.security = *security;
  std::random_device entropy;
  serving_options.run = uint64_t{entropy()} << 32 | entropy();
  auto device =
      OpenChosenDevice(options.device, options.device_bytes, serving_options.rows_bytes_max / 8);
  if (!device.ok()) return Fail(device.status());
  if (*device != nullptr) {
    serving_options.rows_bytes_max -=
        std::min((*device)->host_bytes(), serving_options.rows_bytes_max / 2);
    serving_options.device = std::make_shared<ServedDevice>(*std::move(device));
  }
  auto serving = ServingProcess::Start(serving_options, Clock::Real());
  if (!serving.ok()) return Fail(serving.status());
  std::thread registration([&] {
    if (!(*serving)->WaitRegistered().ok()) return;
    const std::string http = (*serving)->http_address();
    std::printf("hotbed-server %s serving: data %s admin %s%s%s\n", options.name.c_str(),
                (*serving)->address().c_str(), (*serving)->admin_address().c_str(),
                http.empty()                  ? ""
                : options.http_secure == "on" ? " https "
                                              : " http ",
                http.c_str());
    std::fflush(stdout);
  });
  ResidentBound resident(options.host.host_bytes, ResidentBound::Real());
  const timespec second = {1, 0};
  while (sigtimedwait(&stops, nullptr, &second) < 0) resident.Check();
  EndAfter(options.drain_ms_max);
  (*serving)->Stop();
  registration.join();
  return 0;
}

int Main(int argc, char** argv) {
  LimitProtobufLog();
  // Signals are received by sigtimedwait, not by handlers: block them before any thread starts.
  sigset_t stops;
  sigemptyset(&stops);
  sigaddset(&stops, SIGTERM);
  sigaddset(&stops, SIGINT);
  pthread_sigmask(SIG_BLOCK, &stops, nullptr);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a file size limit shows as an error of the write

  RaiseDescriptorLimit();
  Process process;
  int exit_code = 0;
  if (!LoadServerOptions(argc, argv, &process.options, &exit_code)) return exit_code;
  SetLogFormat(process.options.log_format == "json" ? LogFormat::kJson : LogFormat::kText);
  SetLogName(process.options.name.c_str());
  BeginDaemon();
  const uint64_t memory = MachineMemoryBytes();
  if (memory != 0 && process.options.host.host_bytes > memory) {
    HOTBED_LOG(Warning) << "--host-bytes=" << ExactBytes(process.options.host.host_bytes)
                        << " is more than the " << FormatBytes(memory)
                        << " that this machine or control group has: the process is killed before "
                           "it has filled them; give less";
  }
  if (process.options.role == "serving") return Serve(process.options, stops);
  HOTBED_LOG(Info) << "row kernels: " << KernelsText();
  absl::Status status = StartParts(&process);
  if (!status.ok()) {
    StopAfterFailure(&process);
    return Fail(status);
  }

  // Registration may take as long as the coordinator is away; a signal must end it.
  std::atomic<bool> refused{false};
  std::thread registration([&] {
    status = process.link->WaitRegistered();
    if (status.ok()) {
      std::printf("hotbed-server %s serving: data %s admin %s\n", process.options.name.c_str(),
                  process.data->address().c_str(), process.admin_address.c_str());
      std::fflush(stdout);
      status = process.link->WaitRefused();
    }
    if (!status.ok() && !absl::IsCancelled(status)) {
      refused.store(true);
      kill(getpid(), SIGTERM);
    }
  });
  ResidentBound resident(process.options.host.host_bytes, ResidentBound::Real());
  const timespec second = {1, 0};
  while (sigtimedwait(&stops, nullptr, &second) < 0) resident.Check();
  if (refused.load()) {
    registration.join();
    StopAfterFailure(&process);
    return Fail(status);
  }
  exit_code = StopParts(&process);
  registration.join();
  return exit_code;
}

}  // namespace
}  // namespace hotbed

int main(int argc, char** argv) {
  hotbed::TuneDataPlaneProcess();
  return hotbed::Main(argc, argv);
}
