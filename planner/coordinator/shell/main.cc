// hotbed-coordinator: places shards on servers, tells everybody who owns which, and survives its
// own death.
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "admin/admin_server.h"
#include "common/clock.h"
#include "common/daemon.h"
#include "common/files/file_system.h"
#include "common/host_port.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/resident_bound.h"
#include "common/status_macros.h"
#include "config/config.h"
#include "places/place_finder.h"
#include "planner/coordinator/console/cluster_document.h"
#include "planner/coordinator/console/console.h"
#include "planner/coordinator/console/kept.h"
#include "planner/coordinator/console/plan_document.h"
#include "planner/coordinator/etcd/election.h"
#include "planner/coordinator/etcd/history_compaction.h"
#include "planner/coordinator/metadata/metadata_flags.h"
#include "planner/coordinator/shell/backup_folder.h"
#include "planner/coordinator/shell/checkpoint_scheduler.h"
#include "planner/coordinator/shell/control_server.h"
#include "planner/coordinator/shell/coordinator.h"
#include "planner/coordinator/shell/scheduled_saves.h"
#include "planner/coordinator/shell/service.h"
#include "planner/coordinator/shell/stand_by_service.h"
#include "planner/coordinator/shell/status_page.h"
#include "planner/coordinator/state/metadata_backup.h"
#include "ports/port.h"
#include "proto/protobuf_log.h"
#include "security/server_security.h"

namespace hotbed {
namespace {

// Above it, free memory is returned to the system.
constexpr uint64_t kResidentBytes = 64ull << 20;

struct Options {
  std::string listen = "127.0.0.1:7400";
  std::string advertise;
  std::string admin_listen = "127.0.0.1:7401";
  MetadataFlags metadata;
  int64_t lease_ttl_ms = 3000;
  int64_t heartbeat_interval_ms = 500;
  int64_t trainer_lease_ms = 5000;
  int64_t refill_wait_ms = 10000;
  int64_t copy_rows_per_s_max = 1'000'000;
  int64_t copy_raise_after_ms = 30'000;
  int64_t copy_lower_after_ms = 600'000;
  int64_t parts_join_after_ms = 600'000;
  uint64_t split_above_bytes = 512ull << 20;
  int64_t split_above_rows_per_s = 1'000'000;
  uint64_t merge_below_bytes = 0;
  int64_t transfers_per_server = 2;
  std::string without_members = "continue";
  int64_t connections_max = 0;
  int64_t connections_per_peer_max = 0;
  int64_t message_timeout_ms = 60'000;
  int64_t etcd_compact_interval_ms = 300'000;
  std::string log_format = "text";
  std::string restore;
  BackupFolderOptions backups;
  SecurityFlags security;
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

absl::Status Check(const Options& options) {
  if (options.heartbeat_interval_ms * 2 > options.lease_ttl_ms) {
    return absl::InvalidArgumentError(
        absl::StrCat("--heartbeat-interval-ms is ", options.heartbeat_interval_ms,
                     ", allowed: at most half of --lease-ttl-ms, which is ", options.lease_ttl_ms));
  }
  if (options.split_above_bytes > 0 && options.merge_below_bytes > options.split_above_bytes / 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--merge-below-bytes is ", options.merge_below_bytes, ", allowed: at most half of ",
        "--split-above-bytes, which is ", options.split_above_bytes));
  }
  if (options.etcd_compact_interval_ms > 0 && options.etcd_compact_interval_ms < 10'000) {
    return absl::InvalidArgumentError(absl::StrCat("--etcd-compact-interval-ms is ",
                                                   options.etcd_compact_interval_ms,
                                                   ", allowed: 0, or at least 10000"));
  }
  return absl::OkStatus();
}

// Into a new metadata store. With metadata in it the flag does nothing, so that it may stay.
absl::Status Restore(const std::string& path, const Metadata& metadata) {
  HOTBED_ASSIGN_OR_RETURN(const std::string bytes, FileSystem::Real()->ReadAll(path));
  const absl::StatusOr<std::vector<KeyValue>> records = ParseBackup(bytes);
  if (!records.ok()) {
    return absl::Status(records.status().code(),
                        absl::StrCat("--restore=", path, ": ", records.status().message()));
  }
  HOTBED_ASSIGN_OR_RETURN(const bool restored, RestoreBackup(*records, metadata.store()));
  HOTBED_LOG(Info) << "--restore=" << path
                   << (restored
                           ? std::string(": restored. 'hotbed metadata rebuild "
                                         "--from-servers' adds the tables and servers")
                           : absl::StrCat(": not needed, ", metadata.place, " holds metadata"));
  return absl::OkStatus();
}

// Empty: nothing is worth a backup, and older ones stay.
absl::StatusOr<std::string> BackupOf(Coordinator& coordinator) {
  HOTBED_ASSIGN_OR_RETURN(v1::BackupMetadataReply reply, coordinator.Backup());
  const v1::ClusterMap map = coordinator.Status().map;
  if (map.servers().empty() && map.tables().empty()) return std::string();
  return std::move(*reply.mutable_file());
}

CoreOptions CoreOptionsOf(const Options& options) {
  CoreOptions core;
  core.token = absl::StrCat("process ", getpid(), " ", RandomHex(8));
  core.new_cluster_id = RandomHex(8);
  core.lease_ttl_ms = options.lease_ttl_ms;
  core.heartbeat_interval_ms = options.heartbeat_interval_ms;
  core.trainers.lease_ms = options.trainer_lease_ms;
  core.refill_wait_ms = options.refill_wait_ms;
  core.copy_demand = {.rows_per_s_max = static_cast<double>(options.copy_rows_per_s_max),
                      .raise_after_ns = options.copy_raise_after_ms * 1'000'000,
                      .lower_after_ns = options.copy_lower_after_ms * 1'000'000};
  core.parts_join_after_ms = options.parts_join_after_ms;
  core.split_above_bytes = options.split_above_bytes;
  core.split_above_rows_per_s = static_cast<uint64_t>(options.split_above_rows_per_s);
  core.merge_below_bytes = options.merge_below_bytes;
  core.membership.asks_person = options.without_members == "ask";
  core.membership.transfers_per_server = static_cast<size_t>(options.transfers_per_server);
  return core;
}

// Where others reach this coordinator while it leads.
absl::StatusOr<std::string> Advertised(const Options& options) {
  if (!options.advertise.empty()) return options.advertise;
  HOTBED_ASSIGN_OR_RETURN(const HostPort listen, SplitHostPort(options.listen, 0));
  if (!IsWildcardHost(listen.host)) return options.listen;
  char name[256] = {};
  if (gethostname(name, sizeof(name) - 1) != 0) return absl::ErrnoToStatus(errno, "gethostname");
  return JoinHostPort(name, listen.port);
}

std::string LeaderText(const Election& election) {
  if (const absl::Status s = election.trouble(); !s.ok()) return std::string(s.message());
  const std::string leader = election.leader();
  return leader.empty() ? "no coordinator leads now" : absl::StrCat("the leader is at ", leader);
}

ControlServerOptions ControlOptionsOf(const Options& options, const ServerSecurity& security) {
  ControlServerOptions control;
  control.port.listen = options.listen;
  control.port.limits = ConnectionLimitsOf(
      options.connections_max, options.connections_per_peer_max, RaiseDescriptorLimit());
  control.port.limits.message_timeout_ms = options.message_timeout_ms;
  control.security = security;
  return control;
}

// Waits until this coordinator leads, or a signal comes. Its control port tells callers meanwhile
// where the leader is.
absl::Status StandBy(const Options& options, const ServerSecurity& security,
                     const Election& election) {
  StandByService service([&] { return election.leader(); });
  HOTBED_ASSIGN_OR_RETURN(const std::unique_ptr<ControlServer> control,
                          ControlServer::Open(ControlOptionsOf(options, security), Clock::Real()));
  control->Serve({}, &service);
  AdminOptions admin_options;
  admin_options.listen = options.admin_listen;
  admin_options.may_read = security.admin_access();
  admin_options.healthy = [](std::string*) { return true; };
  // One that can tell callers the way is ready, so that a rolling restart goes on to the next.
  admin_options.ready = [&] {
    return std::vector<ReadyCondition>{{"leadership",
                                        election.trouble().ok() && !election.leader().empty(),
                                        absl::StrCat("stands by: ", LeaderText(election))}};
  };
  admin_options.status = [&] {
    return StatusPage{.title = "hotbed-coordinator",
                      .subtitle = absl::StrCat("stands by: ", LeaderText(election)),
                      .json = "{\"serving\": false}"};
  };
  HOTBED_ASSIGN_OR_RETURN(std::unique_ptr<AdminServer> admin,
                          AdminServer::Start(std::move(admin_options)));
  std::string said;
  while (stop_signal == 0 && !election.leads()) {
    const std::string text = LeaderText(election);
    if (text != said && (!election.leader().empty() || !election.trouble().ok())) {
      std::cout << "hotbed-coordinator stands by: " << text << std::endl;
      said = text;
    }
    usleep(20 * 1000);
  }
  return absl::OkStatus();
}

// As many squares as the console draws with ease.
constexpr uint64_t kCells = 2048;

// `entries_max` as in ClusterFacts.
std::string ClusterJson(const Coordinator& coordinator, const std::string& address,
                        uint64_t entries_max) {
  const CoordinatorStatus status = coordinator.Status();
  const absl::StatusOr<v1::ServingMap> served = coordinator.ServingTables();
  return ClusterDocument({.map = status.map,
                          .moves = status.moves,
                          .events = status.events,
                          .served = served.ok() ? *served : v1::ServingMap(),
                          .address = address,
                          .serving = status.serving,
                          .trouble = status.trouble,
                          .unix_ms = Clock::Real()->WallUs() / 1000,
                          .entries_max = entries_max});
}

PlanDocument PlanNow(const Coordinator& coordinator) {
  return PlanDocumentOf(coordinator.View(), coordinator.plan_revision(),
                        Clock::Real()->WallUs() / 1000);
}

// What the admin port shows of a leader beside what every process shows. Outlives the port.
class ConsolePages {
 public:
  ConsolePages(const Coordinator* coordinator, const std::string& address)
      : coordinator_(coordinator),
        address_(address),
        plan_(10 * kSecondNs, [this] { return PlanNow(*coordinator_); }),
        cells_(0, [this] { return ClusterJson(*coordinator_, address_, kCells); }) {}

  std::vector<AdminPage> List() {
    return {{"/console", "text/html; charset=utf-8", [] { return kConsoleHtml; }},
            {"/console.css", "text/css; charset=utf-8", [] { return kConsoleCss; }},
            {"/console.js", "text/javascript; charset=utf-8", [] { return kConsoleJs; }},
            {"/api/cluster", "application/json",
             [this] { return ClusterJson(*coordinator_, address_, /*entries_max=*/0); }},
            {"/api/cells", "application/json", [this] { return cells_.Get(); }},
            {"/api/plan", "application/json", [this] { return plan_.Get().json; }},
            {"/api/plan.svg", "image/svg+xml", [this] { return plan_.Get().svg; }}};
  }

 private:
  const Coordinator* const coordinator_;
  const std::string address_;
  Kept<PlanDocument> plan_;
  Kept<std::string> cells_;
};

// How long a leader whose lease has ended waits for etcd to confirm that it leads still. After that
// it stands by and tells callers so, that they look for another one.
constexpr int64_t kUnheardNsMax = kSecondNs;

// Until a signal comes, or it cannot go on. `election`: null where the store is its own; Aborted
// when the leadership is lost after it has served.
absl::Status Serve(const Options& options, const ServerSecurity& security, Metadata& metadata,
                   const Election* election) {
  if (!options.restore.empty()) HOTBED_RETURN_IF_ERROR(Restore(options.restore, metadata));
  Coordinator coordinator(CoreOptionsOf(options), metadata.store(), Clock::Real());
  const uint64_t term = election == nullptr ? 0 : election->term();
  if (election != nullptr) {
    coordinator.SetLeads(
        [election, term] { return election->leads() && election->term() == term; });
  }
  CoordinatorServiceOptions service_options;
  service_options.control = ControlOptionsOf(options, security);
  HOTBED_ASSIGN_OR_RETURN(std::unique_ptr<CoordinatorService> service,
                          CoordinatorService::Start(service_options, &coordinator, Clock::Real()));
  MetricSource gauges([&](std::vector<MetricSample>* samples) {
    AddGauges(coordinator.Status(), service->watches(), samples);
  });
  ConsolePages pages(&coordinator, service->address());
  AdminOptions admin_options;
  admin_options.listen = options.admin_listen;
  admin_options.may_read = security.admin_access();
  admin_options.healthy = [&](std::string* why_not) {
    *why_not = std::string(coordinator.Fatal().message());
    return why_not->empty() && service->port().Answers(why_not);
  };
  admin_options.ready = [&] {
    const absl::Status serving = coordinator.Map(coordinator.plan_revision()).status();
    ReadyCondition port = {.name = "control port", .found = "answers"};
    port.holds = service->port().Answers(&port.found);
    return std::vector<ReadyCondition>{
        {"metadata store", serving.ok(), serving.ok() ? "serving" : std::string(serving.message())},
        std::move(port)};
  };
  admin_options.status = [&] {
    return MakeStatusPage(coordinator.Status(), service->address(), service->watches());
  };
  admin_options.pages = pages.List();
  HOTBED_ASSIGN_OR_RETURN(std::unique_ptr<AdminServer> admin,
                          AdminServer::Start(std::move(admin_options)));
  coordinator.SetAdminAddress(admin->address());

  std::cout << "hotbed-coordinator serving: " << service->address() << " admin " << admin->address()
            << " cluster " << coordinator.Status().map.cluster_id() << std::endl;
  absl::Status fatal;
  int64_t led_ns = Clock::Real()->NowNs();
  const CheckpointScheduler scheduler(HandsOf(&coordinator, security.identity()));
  BackupFolder backups(
      options.backups, [&] { return BackupOf(coordinator); }, FileSystem::Real());
  ResidentBound resident(kResidentBytes, ResidentBound::Real());
  for (int ticks = 1; stop_signal == 0 && fatal.ok(); ++ticks) {
    usleep(50 * 1000);
    fatal = coordinator.Fatal();
    // Not at once when etcd does not answer: where it finds the key unchanged afterwards, nobody
    // has led meanwhile, and what is in memory holds.
    const int64_t now_ns = Clock::Real()->NowNs();
    if (election == nullptr || election->leads()) led_ns = now_ns;
    if (fatal.ok() && election != nullptr && election->term() != term) {
      fatal = absl::UnavailableError("the leadership is lost");
    } else if (fatal.ok() && now_ns - led_ns > kUnheardNsMax) {
      fatal = absl::UnavailableError("etcd does not answer, so that another one may lead");
    }
    backups.Tick(Clock::Real()->NowNs(), Clock::Real()->WallUs() / 1000);
    if (ticks % 20 == 0) resident.Check();
  }
  HOTBED_LOG(Info) << (fatal.ok() ? "stopping on signal" : fatal.ToString());
  if (stop_signal != 0) PlaceFinder::Real()->Stop();
  service->Shutdown();
  if (election != nullptr && absl::IsUnavailable(fatal)) {
    return absl::AbortedError(fatal.message());
  }
  return fatal;
}

absl::Status Run(const Options& options) {
  HOTBED_RETURN_IF_ERROR(Check(options));
  HOTBED_ASSIGN_OR_RETURN(const ServerSecurity security,
                          OpenServerSecurity(options.security, options.listen));
  WarnIfPlain(security, options.listen);
  WarnIfAdminWide(security, options.admin_listen);
  HOTBED_ASSIGN_OR_RETURN(
      Metadata metadata,
      OpenMetadata(options.metadata, options.security.secure == "off-beyond-loopback",
                   FileSystem::Real()));
  if (metadata.etcd == nullptr) return Serve(options, security, metadata, nullptr);
  HOTBED_ASSIGN_OR_RETURN(const std::string advertised, Advertised(options));
  const Election election(metadata.for_election.get(), advertised);
  const bool alone = metadata.etcd->address().prefix.empty();
  const HistoryCompaction compaction(
      metadata.etcd.get(), absl::Milliseconds(alone ? options.etcd_compact_interval_ms : 0),
      [&] { return election.leads(); });
  while (true) {
    HOTBED_RETURN_IF_ERROR(StandBy(options, security, election));
    if (stop_signal != 0) return absl::OkStatus();
    const absl::Status status = Serve(options, security, metadata, &election);
    // While etcd does not answer, this one tries again as soon as it leads.
    const bool again =
        absl::IsAborted(status) || absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
    if (!again || stop_signal != 0) return status;
    HOTBED_LOG(Warning) << "stands by again: " << status;
    usleep(200 * 1000);
  }
}

void BeginProcess(const Options& options) {
  SetLogFormat(options.log_format == "json" ? LogFormat::kJson : LogFormat::kText);
  SetLogName("coordinator");
  LimitProtobufLog();
  BeginDaemon();
  CatchSignals();
  setenv("GRPC_VERBOSITY", "NONE", 0);  // we report a port in use ourselves
}

// When servers and trainers count as gone, and what becomes of their shards.
void AddMembershipFlags(ConfigSchema* schema, Options* options) {
  schema->AddMillis("lease-ttl-ms", &options->lease_ttl_ms,
                    "A server that sends no heartbeat for this long counts as down.",
                    {.min = 100, .max = 600000});
  schema->AddMillis("heartbeat-interval-ms", &options->heartbeat_interval_ms,
                    "How often servers send a heartbeat; at most half the lease.",
                    {.min = 10, .max = 60000});
  schema->AddMillis("trainer-lease-ms", &options->trainer_lease_ms,
                    "A trainer of a group that is silent for this long is given up; the others "
                    "continue without it.",
                    {.min = 100, .max = 600000});
  schema->AddMillis("refill-wait-ms", &options->refill_wait_ms,
                    "How long a lost server may take to come back before its replicas are made on "
                    "other servers; and how long a shard that has lost all its members waits for "
                    "the others once the first of them is back.",
                    {.min = 0, .max = 3600000});
  schema->AddInt("copy-rows-per-s-max", &options->copy_rows_per_s_max,
                 "A table that is served by MIN..MAX copies gets another one while lookups ask "
                 "each copy for more rows per second than this, and loses one while the others "
                 "would be asked for less than seven tenths of it.",
                 {.min = 1, .max = 1'000'000'000});
  schema->AddMillis("copy-raise-after-ms", &options->copy_raise_after_ms,
                    "For how long lookups must ask for more before there is another copy.",
                    {.min = 0, .max = 86'400'000});
  schema->AddMillis("copy-lower-after-ms", &options->copy_lower_after_ms,
                    "For how long lookups must ask for less before a copy goes.",
                    {.min = 0, .max = 86'400'000});
  schema->AddMillis("parts-join-after-ms", &options->parts_join_after_ms,
                    "For how long serving servers must have had ample room for a served table in "
                    "fewer parts before its parts are joined.",
                    {.min = 0, .max = 86'400'000});
  schema->AddBytes("split-above-bytes", &options->split_above_bytes,
                   "A shard of a hashed table that takes more than this is cut in two while it is "
                   "used; 0: none is.");
  schema->AddInt(
      "split-above-rows-per-s", &options->split_above_rows_per_s,
      "A shard of a hashed table that serves more rows per second than this for a minute, "
      "pulled and pushed, is cut in two while it is used. So is one whose load keeps "
      "servers from being evened out. 0: none is.",
      {.min = 0, .max = 1'000'000'000});
  schema->AddBytes("merge-below-bytes", &options->merge_below_bytes,
                   "Two neighbouring shards of a hashed table that take no more than this "
                   "together, and serve little, are merged while they are used, down to 8 shards "
                   "of a table. At most half of --split-above-bytes; 0: none are.");
  schema->AddChoice("without-members", &options->without_members, {"continue", "ask"},
                    "What a shard that has lost all its members does when not all of them are back "
                    "within --refill-wait-ms: continue with the one whose log ends last, or stay "
                    "stopped until they are back or a person chooses (hotbed shard choose).");
  schema->AddInt("transfers-per-server", &options->transfers_per_server,
                 "Snapshot transfers from a server, and to a server, at once.",
                 {.min = 1, .max = 64});
}

int Main(int argc, char** argv) {
  RaiseDescriptorLimit();
  Options options;
  ConfigSchema schema("hotbed-coordinator",
                      "Places the shards of embedding tables on servers and says who owns which.");
  schema.AddHostPort("listen", &options.listen,
                     "Where servers, clients and the CLI connect; port 0 takes a free one.", 0);
  schema.AddHostPort("advertise", &options.advertise,
                     "Where others reach it as the leader, with etcd; default: as --listen.", 1);
  schema.AddHostPort("admin-listen", &options.admin_listen,
                     "Where metrics, health and the status page are served.", 0);
  AddMetadataFlags(&schema, &options.metadata);
  schema.AddMillis("etcd-compact-interval-ms", &options.etcd_compact_interval_ms,
                   "With etcd and no path in --metadata: the whole etcd's history that is older "
                   "than this is dropped, as often. With a path (others may use the etcd too), or "
                   "with 0, it stays, and whoever runs etcd must see to it.",
                   {.min = 0, .max = 7 * 86'400'000});
  schema.Add("backup-dir", &options.backups.path, "directory",
             "Where backups of the metadata are written, best on another disk; created if it does "
             "not exist. Empty: nowhere.");
  schema.AddMillis("backup-interval-ms", &options.backups.interval_ms,
                   "How often a backup is written, if the metadata have changed.",
                   {.min = 1000, .max = 7 * 86'400'000});
  schema.AddInt("backup-keep", &options.backups.keep, "Backups kept in --backup-dir.",
                {.min = 1, .max = 100'000});
  schema.Add("restore", &options.restore, "file",
             "A backup of the metadata to begin with, if the metadata store holds none. Tables and "
             "servers are then added by 'hotbed metadata rebuild --from-servers'.");
  AddMembershipFlags(&schema, &options);
  schema.AddInt("connections-max", &options.connections_max,
                "Connections open to the port; beyond it one that is idle makes room, or the new "
                "one is closed. 0: the limit of open files less 768, at most 8192.",
                {.min = 0, .max = 100'000});
  schema.AddInt("connections-per-peer-max", &options.connections_per_peer_max,
                "The same limit for one address. 0: half of connections-max.",
                {.min = 0, .max = 100'000});
  schema.AddMillis("message-timeout-ms", &options.message_timeout_ms,
                   "A connection is closed if a message on it is not complete this long after its "
                   "first byte.",
                   {.min = 1000});
  schema.AddChoice("log-format", &options.log_format, {"text", "json"}, "Form of the log lines.");
  AddSecurityFlags(&schema, &options.security);
  int exit_code = 0;
  if (!schema.Load(argc, argv, &exit_code)) return exit_code;
  BeginProcess(options);
  const absl::Status status = Run(options);
  if (status.ok()) return 0;
  std::cerr << "hotbed-coordinator: " << status.message() << std::endl;
  return 1;
}

}  // namespace
}  // namespace hotbed

int main(int argc, char** argv) { return hotbed::Main(argc, argv); }
