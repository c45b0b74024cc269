#include <CLI/App.hpp>
#include <CLI/Validators.hpp>
#include <filesystem>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cli/base/command.h"
#include "cli/base/interrupt.h"
#include "cli/cluster/add_server_request.h"
#include "cli/cluster/http_get.h"
#include "cli/cluster/local_cluster.h"
#include "common/files/file_system.h"
#include "common/status_macros.h"
#include "config/units.h"
#include "nlohmann/json.hpp"
#include "security/certificate.h"
#include "terminal/table_printer.h"

namespace hotbed {
namespace {

constexpr absl::Duration kReadyMax = absl::Seconds(60);
constexpr int64_t kCertificateDays = 3650;

struct UpFlags {
  LocalClusterOptions cluster;
  std::string host_bytes = "256MiB";
  std::string log_sync_interval = "1000";
  bool add_server = false;
  bool tls = false;
  std::string access_rules;
};

// DIR/tls holds an authority and one certificate per role; a restart finds them there.
absl::Status MakeCertificates(const std::string& tls_dir) {
  const int64_t now_s = absl::ToUnixSeconds(absl::Now());
  HOTBED_RETURN_IF_ERROR(CreateAuthority(tls_dir, "hotbed-up", kCertificateDays, now_s));
  for (const AccessRole role : kAccessRoles) {
    HOTBED_RETURN_IF_ERROR(CreateCertificate(tls_dir,
                                             {.name = AccessRoleName(role),
                                              .role = role,
                                              .hosts = {"localhost", "127.0.0.1"},
                                              .days = kCertificateDays},
                                             /*replace=*/false, now_s));
  }
  return absl::OkStatus();
}

std::string TlsDirOf(const LocalClusterOptions& cluster) {
  return absl::StrCat(cluster.data_dir, "/tls");
}

absl::Status PrepareTls(UpFlags* flags) {
  FileSystem* const files = FileSystem::Real();
  const std::string dir = TlsDirOf(flags->cluster);
  const bool made = files->Exists(absl::StrCat(dir, "/server.crt"));
  if (!made && !flags->tls) {
    // The environment may name the caller's own files, for another cluster.
    flags->cluster.flags = {"--tls-cert=", "--tls-key=", "--tls-ca="};
    return absl::OkStatus();
  }
  if (!made) {
    HOTBED_RETURN_IF_ERROR(files->MakeDir(flags->cluster.data_dir));
    HOTBED_RETURN_IF_ERROR(MakeCertificates(dir));
  }
  flags->tls = true;
  flags->cluster.flags = {"--secure=on", absl::StrCat("--tls-cert=", dir, "/server.crt"),
                          absl::StrCat("--tls-key=", dir, "/server.key"),
                          absl::StrCat("--tls-ca=", dir, "/ca.crt")};
  if (flags->access_rules.empty()) return absl::OkStatus();
  const std::string rules = std::filesystem::absolute(flags->access_rules).string();
  flags->cluster.flags.push_back(absl::StrCat("--access-rules=", rules));
  return absl::OkStatus();
}

// How to call a cluster with TLS.
std::string TlsHint(const std::string& dir) {
  return absl::StrCat("TLS is on. As operator (or reader, trainer): export HOTBED_TLS_CA=", dir,
                      "/ca.crt HOTBED_TLS_CERT=", dir, "/operator.crt HOTBED_TLS_KEY=", dir,
                      "/operator.key\n");
}

std::string PortsJson(const LocalCluster& cluster) {
  nlohmann::ordered_json json = {{"coordinator", cluster.coordinator_address()},
                                 {"processes", nlohmann::ordered_json::array()}};
  for (const LocalCluster::Process& process : cluster.processes()) {
    json["processes"].push_back({{"name", process.name},
                                 {"pid", process.child == nullptr ? 0 : process.child->pid()},
                                 {"address", process.address},
                                 {"admin_address", process.admin_address},
                                 {"log", process.log_path}});
  }
  return json.dump() + "\n";
}

std::string PageOf(const LocalCluster::Process& process) {
  switch (process.kind) {
    case LocalCluster::Kind::kCoordinator:
      return absl::StrCat("http://", process.admin_address, "/console");
    case LocalCluster::Kind::kEtcd:
      return absl::StrCat("http://", process.address, "/health");
    case LocalCluster::Kind::kServer:
      break;
  }
  return absl::StrCat("http://", process.admin_address, "/statusz");
}

std::string Greeting(const LocalCluster& cluster, absl::Duration took) {
  TablePrinter table({"process", "pid", "address", "status page", "log"});
  for (const LocalCluster::Process& process : cluster.processes()) {
    table.AddRow({process.name, absl::StrCat(process.child == nullptr ? 0 : process.child->pid()),
                  process.address, PageOf(process), process.log_path});
  }
  const std::string address = cluster.coordinator_address();
  const std::string flag =
      address == CommandContext().coordinator ? "" : absl::StrCat(" --coordinator ", address);
  return absl::StrCat(table.ToText(), "\nHotbed is up at hotbed://", address, " after ",
                      ShortSeconds(absl::ToDoubleSeconds(took)), ". Console: http://",
                      cluster.leader().admin_address,
                      "/console\nIn another terminal: hotbed status", flag,
                      "\nCtrl-C stops it; the data stays.\n");
}

// Waits until the server reports that it serves.
absl::Status WaitReady(const AddedServer& server, const InterruptScope& interrupt) {
  const absl::Time limit = absl::Now() + kReadyMax;
  while (absl::Now() < limit) {
    if (GetReady(server.admin_address).ok()) return absl::OkStatus();
    if (interrupt.interrupted())
      return absl::CancelledError("interrupted; the server keeps running");
    absl::SleepFor(absl::Milliseconds(50));
  }
  return absl::UnavailableError(
      absl::StrCat(server.name, " is not ready after ", absl::FormatDuration(kReadyMax),
                   ". Its log ", server.log_path, " ends with:\n", LastLines(server.log_path, 5)));
}

absl::Status AddServer(const CommandContext& context, const UpFlags& flags,
                       const InterruptScope& interrupt) {
  HOTBED_ASSIGN_OR_RETURN(
      const AddedServer server,
      AskForServer(flags.cluster.data_dir, kReadyMax, flags.cluster.cancelled, Clock::Real()));
  HOTBED_RETURN_IF_ERROR(WaitReady(server, interrupt));
  if (context.json()) {
    *context.out << ToJson(server).dump() << "\n";
    return absl::OkStatus();
  }
  *context.out << server.name << " serves at " << server.address << ". Status page: http://"
               << server.admin_address << "/statusz\nShards come to it by rebalancing "
               << "('hotbed rebalance status'), or by 'hotbed shard move SHARDS --to "
               << server.name << "' or 'hotbed plan apply'\n";
  return absl::OkStatus();
}

absl::Status Up(const CommandContext& context, UpFlags flags) {
  const absl::Time start = absl::Now();
  HOTBED_ASSIGN_OR_RETURN(flags.cluster.host_bytes, ParseBytes(flags.host_bytes));
  HOTBED_ASSIGN_OR_RETURN(flags.cluster.log_sync_interval_ms, ParseMillis(flags.log_sync_interval));
  flags.cluster.data_dir =
      std::filesystem::absolute(flags.cluster.data_dir).lexically_normal().string();
  flags.cluster.say = [&context](const std::string& text) {
    *context.err << "hotbed up: " << text << std::endl;
  };
  const InterruptScope interrupt;
  flags.cluster.cancelled = [&interrupt] { return interrupt.interrupted(); };
  if (flags.add_server) return AddServer(context, flags, interrupt);
  HOTBED_RETURN_IF_ERROR(PrepareTls(&flags));
  HOTBED_ASSIGN_OR_RETURN(const std::unique_ptr<LocalCluster> cluster,
                          LocalCluster::Start(flags.cluster, Clock::Real()));
  ForgetServerRequests(flags.cluster.data_dir);
  HOTBED_RETURN_IF_ERROR(cluster->WaitReady(kReadyMax));
  *context.out << (context.json() ? PortsJson(*cluster) : Greeting(*cluster, absl::Now() - start));
  if (flags.tls && !context.json()) *context.out << TlsHint(TlsDirOf(flags.cluster));
  *context.out << std::flush;
  while (!interrupt.interrupted()) {
    cluster->Tick();
    const absl::Status answered = AnswerServerRequest(flags.cluster.data_dir, cluster.get());
    if (!answered.ok()) flags.cluster.say(std::string(answered.message()));
    absl::SleepFor(absl::Milliseconds(50));
  }
  if (!context.json()) *context.out << "\nstopping ..." << std::endl;
  HOTBED_RETURN_IF_ERROR(cluster->Stop());
  if (!context.json()) *context.out << "stopped\n";
  return absl::OkStatus();
}

}  // namespace

void AddUpCommand(CLI::App* root, CommandContext* context) {
  auto flags = std::make_shared<UpFlags>();
  LocalClusterOptions& cluster = flags->cluster;
  cluster.servers = 0;
  CLI::App* app = root->add_subcommand("up", "Run a cluster on this machine, in the foreground");
  app->add_option("--servers", cluster.servers,
                  "Number of shard servers; default: as stored in the directory, or 1")
      ->check(CLI::Range(1, kLocalServersMax));
  app->add_option("--coordinators", cluster.coordinators,
                  "Number of coordinators, of which one leads; several need --etcd; default: as "
                  "stored in the directory, or 1")
      ->check(CLI::Range(1, kLocalCoordinatorsMax));
  app->add_option("--etcd", cluster.etcd,
                  "Number of members of etcd that keep the metadata; 0: the coordinator keeps them "
                  "itself; default: as stored in the directory, or 0")
      ->check(CLI::Range(0, kLocalEtcdMax));
  app->add_option("--serving", cluster.serving,
                  "Number of serving servers, which have read copies for inference ('hotbed "
                  "serve'), by gRPC "
                  "and HTTP ('hotbed serve status' has the ports)")
      ->check(CLI::Range(0, kLocalServingMax))
      ->capture_default_str();
  app->add_flag("--add-server", flags->add_server,
                "Add one server to the cluster that another 'hotbed up' runs in --data-dir")
      ->excludes("--servers");
  app->add_option("--failure-domains", cluster.failure_domains,
                  "Number of failure domains for the servers, and for the serving servers; 0: "
                  "each server is its own")
      ->check(CLI::Range(0, kLocalServersMax))
      ->capture_default_str();
  app->add_flag(
      "--tls", flags->tls,
      "TLS between all parts, with certificates made in the data directory (DIR/tls), one "
      "per role; later starts have it by themselves");
  app->add_option("--access-rules", flags->access_rules,
                  "With --tls: YAML file of roles, their methods, and tokens (docs/security.md)")
      ->check(CLI::ExistingFile);
  app->add_option("--data-dir", cluster.data_dir,
                  "Directory of the cluster; a restart continues from it")
      ->required();
  app->add_option(
         "--port", cluster.port,
         "Port of the coordinator, for a new directory; the others follow it; 0: free ports")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  app->add_option("--host-bytes", flags->host_bytes,
                  "Memory of each server for rows, caches and buffers")
      ->check(
          [](const std::string& text) { return std::string(ParseBytes(text).status().message()); })
      ->capture_default_str();
  app->add_option("--log-sync-interval-ms", flags->log_sync_interval,
                  "How often logs are synced to disk; 0: before each acknowledgement")
      ->check(
          [](const std::string& text) { return std::string(ParseMillis(text).status().message()); })
      ->capture_default_str();
  context->Runs(app, [context, flags] { return Up(*context, *flags); });
}

}  // namespace hotbed
