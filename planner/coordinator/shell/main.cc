// hotbed-coordinator: places shards on servers, tells everybody who owns which, and survives its
// own death.
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <iostream>
#include <memory>
#include <random>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "admin/admin_server.h"
#include "common/clock.h"
#include "common/daemon.h"
#include "common/file_system.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/status_macros.h"
#include "config/config.h"
#include "planner/coordinator/shell/coordinator.h"
#include "planner/coordinator/shell/service.h"
#include "planner/coordinator/shell/status_page.h"
#include "planner/coordinator/store/data_dir.h"
#include "proto/protobuf_log.h"

namespace hotbed {
namespace {

struct Options {
  std::string listen = "127.0.0.1:7400";
  std::string admin_listen = "127.0.0.1:7401";
  std::string data_dir = "hotbed-coordinator-data";
  int64_t lease_ttl_ms = 3000;
  int64_t heartbeat_interval_ms = 500;
  int64_t trainer_lease_ms = 5000;
  int64_t refill_wait_ms = 10000;
  int64_t copies_per_server = 2;
  std::string log_format = "text";
};

volatile sig_atomic_t stop_signal = 0;
void OnSignal(int signal) { stop_signal = signal; }

void CatchSignals() {
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a file size limit must be an error of the write
}

std::string RandomHex(int bytes) {
  std::random_device device;
  std::string out;
  for (int i = 0; i < bytes; ++i) absl::StrAppendFormat(&out, "%02x", device() & 0xff);
  return out;
}

void WarnIfWide(const std::string& flag, const std::string& address) {
  if (absl::StartsWith(address, "127.") || absl::StartsWith(address, "localhost:") ||
      absl::StartsWith(address, "[::1]:")) {
    return;
  }
  HOTBED_LOG(Warning) << "--" << flag << "=" << address
                      << " is reachable from other machines, without TLS or authentication";
}

absl::Status Check(const Options& options) {
  if (options.heartbeat_interval_ms * 2 > options.lease_ttl_ms) {
    return absl::InvalidArgumentError(
        absl::StrCat("--heartbeat-interval-ms is ", options.heartbeat_interval_ms,
                     ", allowed: at most half of --lease-ttl-ms, which is ", options.lease_ttl_ms));
  }
  return absl::OkStatus();
}

absl::Status Serve(const Options& options) {
  HOTBED_RETURN_IF_ERROR(Check(options));
  WarnIfWide("listen", options.listen);
  WarnIfWide("admin-listen", options.admin_listen);
  HOTBED_ASSIGN_OR_RETURN(DataDir dir, OpenDataDir(options.data_dir, FileSystem::Real()));
  CoreOptions core;
  core.token = absl::StrCat("process ", getpid(), " ", RandomHex(8));
  core.new_cluster_id = RandomHex(8);
  core.lease_ttl_ms = options.lease_ttl_ms;
  core.heartbeat_interval_ms = options.heartbeat_interval_ms;
  core.trainers.lease_ms = options.trainer_lease_ms;
  core.refill_wait_ms = options.refill_wait_ms;
  core.membership.copies_per_server = static_cast<size_t>(options.copies_per_server);
  Coordinator coordinator(core, dir.store.get(), Clock::Real());

  CoordinatorServiceOptions service_options;
  service_options.listen = options.listen;
  HOTBED_ASSIGN_OR_RETURN(std::unique_ptr<CoordinatorService> service,
                          CoordinatorService::Start(service_options, &coordinator, Clock::Real()));

  MetricSource gauges([&](std::vector<MetricSample>* samples) {
    AddGauges(coordinator.Status(), service->watches(), samples);
  });
  AdminOptions admin_options;
  admin_options.listen = options.admin_listen;
  admin_options.healthy = [&](std::string* why_not) {
    *why_not = std::string(coordinator.Fatal().message());
    return why_not->empty();
  };
  admin_options.ready = [&] {
    const absl::Status serving = coordinator.Map(coordinator.plan_revision()).status();
    return std::vector<ReadyCondition>{{"metadata store", serving.ok(),
                                        serving.ok() ? "serving" : std::string(serving.message())}};
  };
  admin_options.status = [&] {
    return MakeStatusPage(coordinator.Status(), service->address(), service->watches());
  };
  HOTBED_ASSIGN_OR_RETURN(std::unique_ptr<AdminServer> admin,
                          AdminServer::Start(std::move(admin_options)));

  std::cout << "hotbed-coordinator serving: " << service->address() << " admin " << admin->address()
            << " cluster " << coordinator.Status().map.cluster_id() << std::endl;
  absl::Status fatal;
  while (stop_signal == 0 && fatal.ok()) {
    usleep(50 * 1000);
    fatal = coordinator.Fatal();
  }
  HOTBED_LOG(Info) << (fatal.ok() ? "stopping on signal" : fatal.ToString());
  service->Shutdown();
  return fatal;
}

int Main(int argc, char** argv) {
  Options options;
  ConfigSchema schema("hotbed-coordinator",
                      "Places the shards of embedding tables on servers and says who owns which.");
  schema.AddHostPort("listen", &options.listen,
                     "Where servers, clients and the CLI connect; port 0 takes a free one.", 0);
  schema.AddHostPort("admin-listen", &options.admin_listen,
                     "Where metrics, health and the status page are served.", 0);
  schema.Add("data-dir", &options.data_dir, "directory",
             "Holds the metadata store; created if it does not exist.");
  schema.AddMillis("lease-ttl-ms", &options.lease_ttl_ms,
                   "A server without a heartbeat for so long is down.",
                   {.min = 100, .max = 600000});
  schema.AddMillis("heartbeat-interval-ms", &options.heartbeat_interval_ms,
                   "How often servers send a heartbeat; at most half the lease.",
                   {.min = 10, .max = 60000});
  schema.AddMillis("trainer-lease-ms", &options.trainer_lease_ms,
                   "A trainer of a group that is not heard of for so long is given up; the others "
                   "go on without it.",
                   {.min = 100, .max = 600000});
  schema.AddMillis("refill-wait-ms", &options.refill_wait_ms,
                   "A server that is lost may come back so long before another one is given the "
                   "copies that it had.",
                   {.min = 0, .max = 3600000});
  schema.AddInt("copies-per-server", &options.copies_per_server,
                "Shards copied from a server, and to a server, at once.", {.min = 1, .max = 64});
  schema.AddChoice("log-format", &options.log_format, {"text", "json"}, "Form of the log lines.");
  int exit_code = 0;
  if (!schema.Load(argc, argv, &exit_code)) return exit_code;
  SetLogFormat(options.log_format == "json" ? LogFormat::kJson : LogFormat::kText);
  SetLogName("coordinator");
  LimitProtobufLog();
  BeginDaemon();
  CatchSignals();
  setenv("GRPC_VERBOSITY", "NONE", 0);  // we report a port in use ourselves
  const absl::Status status = Serve(options);
  if (status.ok()) return 0;
  std::cerr << "hotbed-coordinator: " << status.message() << std::endl;
  return 1;
}

}  // namespace
}  // namespace hotbed

int main(int argc, char** argv) { return hotbed::Main(argc, argv); }
