#include <sys/statvfs.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cli/base/command.h"
#include "cli/base/coordinator_stub.h"
#include "cli/cluster/http_get.h"
#include "cli/shards/event_text.h"
#include "cli/shards/shard_replicas.h"
#include "cli/tables/table_text.h"
#include "common/clock.h"
#include "common/dial.h"
#include "common/host_port.h"
#include "common/rare_counter.h"
#include "config/units.h"
#include "security/certificate.h"
#include "terminal/table_printer.h"

namespace hotbed {
namespace {

constexpr uint64_t kDiskFreeMin = 1ull << 30;
constexpr int64_t kCertificateDaysMin = 30;

enum class Verdict { kOk, kWarning, kFailed };
constexpr const char* kVerdictWords[] = {"ok", "warning", "FAILED"};

struct Check {
  std::string name;
  Verdict verdict = Verdict::kOk;
  std::string found;
};

Check CheckServers(const v1::ClusterMap& map) {
  Check check{"servers", Verdict::kOk, absl::StrCat(map.servers_size(), " registered, all live")};
  std::string down, read_only;
  for (const v1::ServerInfo& server : map.servers()) {
    if (!server.live()) {
      absl::StrAppend(&down, " ", server.name(), " (", server.address(), ")");
    } else if (server.load().read_only()) {
      absl::StrAppend(&read_only, " ", server.name());
    }
  }
  if (map.servers().empty()) return {check.name, Verdict::kFailed, "none registered"};
  if (!down.empty()) return {check.name, Verdict::kFailed, absl::StrCat("down:", down)};
  if (!read_only.empty()) {
    return {check.name, Verdict::kFailed,
            absl::StrCat("read-only (disk full or an I/O error):", read_only)};
  }
  return check;
}

// Connects to the addresses at which the map sends clients and other servers. Which of them reach a
// server may differ from machine to machine.
Check CheckDataPorts(const v1::ClusterMap& map, absl::Duration timeout) {
  std::string closed;
  int connected = 0;
  for (const v1::ServerInfo& server : map.servers()) {
    if (!server.live()) continue;
    const absl::StatusOr<int> socket = Dial(server.address(), timeout);
    if (!socket.ok()) {
      absl::StrAppend(&closed, " ", server.name(), " at ", socket.status().message(), ";");
      continue;
    }
    close(*socket);
    ++connected;
  }
  if (closed.empty()) {
    return {"data ports", Verdict::kOk, absl::StrCat(connected, " answer this machine")};
  }
  return {"data ports", Verdict::kFailed,
          absl::StrCat("not reached from this machine:", closed,
                       " is a server to be reached at another address? Start it with --advertise")};
}

// A live server, or the coordinator.
struct ProcessPorts {
  std::string name;
  std::string address;
  std::string admin_address;
  bool is_server = true;
};

std::vector<ProcessPorts> LiveProcesses(const v1::ClusterMap& map, const std::string& coordinator) {
  std::vector<ProcessPorts> processes;
  for (const v1::ServerInfo& server : map.servers()) {
    if (!server.live()) continue;
    processes.push_back({server.name(), server.address(), server.admin_address()});
  }
  std::string admin = map.coordinator_admin_address();
  const absl::StatusOr<HostPort> listens = SplitHostPort(admin, 1);
  const absl::StatusOr<HostPort> asked = SplitHostPort(coordinator, 1);
  if (!listens.ok()) return processes;  // it is older and tells nothing
  if (asked.ok() && IsWildcardHost(listens->host)) admin = JoinHostPort(asked->host, listens->port);
  processes.push_back({"coordinator", coordinator, admin, false});
  return processes;
}

// A page of its admin port. FailedPrecondition: it is out of reach, as its address shows.
absl::StatusOr<HttpReply> AdminPage(const ProcessPorts& process, const std::string& path,
                                    absl::Duration timeout) {
  const absl::StatusOr<HostPort> admin = SplitHostPort(process.admin_address, 1);
  const absl::StatusOr<HostPort> data = SplitHostPort(process.address, 1);
  // Another process of this machine might answer in its place.
  if (admin.ok() && data.ok() && IsLoopbackHost(admin->host) && !IsLoopbackHost(data->host)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "its admin port at ", process.admin_address,
        " is for its own machine; start it with --admin-listen=0.0.0.0:", admin->port));
  }
  return HttpGet(process.admin_address, path, timeout);
}

// The report of a process about itself.
struct Report {
  ProcessPorts process;
  absl::StatusOr<HttpReply> ready;
  absl::StatusOr<nlohmann::json> metrics;  // an array

  template <typename See>  // see(labels, value)
  void ForEach(absl::string_view name, See see) const {
    if (!metrics.ok()) return;
    for (const nlohmann::json& metric : *metrics) {
      if (metric.value("name", "") == name) see(metric["labels"], metric.value("value", 0.0));
    }
  }
  double Sum(absl::string_view name) const {
    double sum = 0;
    ForEach(name, [&](const nlohmann::json&, double value) { sum += value; });
    return sum;
  }
};

std::vector<Report> AskAll(const std::vector<ProcessPorts>& processes, absl::Duration timeout) {
  std::vector<Report> reports;
  for (const ProcessPorts& process : processes) {
    Report report{process, AdminPage(process, "/readyz", timeout), nlohmann::json::array()};
    const absl::StatusOr<HttpReply> page = AdminPage(process, "/api/metrics", timeout);
    if (page.ok()) {
      report.metrics = nlohmann::json::parse(page->body, nullptr, false);
      if (!report.metrics->is_array()) {
        report.metrics = absl::DataLossError("unreadable /api/metrics");
      }
    } else {
      report.metrics = page.status();
    }
    reports.push_back(std::move(report));
  }
  return reports;
}

// Servers with data of this cluster, or of one whose metadata were lost, that are not let in yet.
Check CheckStrangers(CoordinatorStub* coordinator) {
  v1::RebuildMetadataRequest request;
  request.set_dry_run(true);
  const absl::StatusOr<v1::RebuildMetadataReply> reply = coordinator->RebuildMetadata(request);
  const absl::string_view why = reply.status().message();
  if (!reply.ok() && !absl::StrContains(why, "no server of a cluster") &&
      !absl::StrContains(why, "are not empty")) {
    return {"strangers", Verdict::kFailed, std::string(why)};
  }
  std::string names;
  if (reply.ok()) {
    for (const v1::ServerInfo& server : reply->servers()) {
      absl::StrAppend(&names, " ", server.name(), " (", server.address(), ")");
    }
  }
  if (names.empty()) return {"strangers", Verdict::kOk, "no server waits to be adopted"};
  return {"strangers", Verdict::kFailed,
          absl::StrCat("the metadata do not know", names,
                       "; 'hotbed metadata rebuild --from-servers' adopts them")};
}

Check CheckShards(const v1::ClusterMap& map) {
  int inactive = 0;
  std::string first;
  for (const v1::ShardRecord& shard : map.shards()) {
    if (shard.active()) continue;
    if (inactive++ == 0) first = ShardName(map, shard.shard());
  }
  if (inactive == 0)
    return {"shards", Verdict::kOk, absl::StrCat(map.shards_size(), ", all active")};
  return {"shards", Verdict::kFailed,
          absl::StrCat(inactive, " of ", map.shards_size(), " not active, the first is ", first)};
}

// Shards that have lost all members, and replicas that were passed over though they may hold more.
Check CheckDoubts(const v1::ClusterMap& map, const v1::ListMovesReply& list) {
  const std::string name = "complete replicas";
  if (list.doubts_total() == 0) return {name, Verdict::kOk, "no shard waits for lost members"};
  // The gravest first: one that stands still, one of which more is known to be elsewhere, the rest.
  const auto gravity = [](const v1::ShardDoubt& doubt) {
    return doubt.stopped() ? 2 : doubt.holds_more() ? 1 : 0;
  };
  const v1::ShardDoubt& worst =
      *std::max_element(list.doubts().begin(), list.doubts().end(),
                        [&](const auto& a, const auto& b) { return gravity(a) < gravity(b); });
  return {name, gravity(worst) > 0 ? Verdict::kFailed : Verdict::kWarning,
          absl::StrCat(list.doubts_total(), " in doubt, ", DoubtText(map, worst))};
}

Check CheckReplicas(const v1::ClusterMap& map) {
  const ReplicaView view(map);
  uint64_t replicated = 0, shorter = 0;
  std::string first;
  for (const v1::TableSpec& table : map.tables()) {
    const ReplicaCount count = view.CountOf(table.id());
    replicated += count.replicas > 1 ? count.shards : 0;
    if (count.replicas > 1 && count.short_of > 0 && shorter == 0) first = count.first_short;
    shorter += count.replicas > 1 ? count.short_of : 0;
  }
  if (shorter > 0) {
    return {"replicas", Verdict::kFailed,
            absl::StrCat(shorter, " of ", replicated,
                         " replicated shards have fewer replicas than wanted, the first is ", first,
                         "; 'hotbed shard moves' shows what is being filled")};
  }
  return {"replicas", Verdict::kOk,
          replicated == 0 ? "no replicated tables"
                          : absl::StrCat(replicated, " replicated shards have all replicas")};
}

Check CheckDomains(const v1::ClusterMap& map) {
  std::set<std::string> domains;
  std::string without, first;
  uint64_t replicas = 1;
  for (const v1::TableSpec& table : map.tables()) {
    replicas = std::max<uint64_t>(replicas, table.replicas());
  }
  for (const v1::ServerInfo& server : map.servers()) {
    if (!server.live()) continue;
    domains.insert(server.failure_domain());
    if (server.failure_domain().empty()) absl::StrAppend(&without, " ", server.name());
  }
  const uint64_t sharing = ReplicaView(map).SharingDomains(&first);
  if (sharing > 0) {
    return {"failure domains", Verdict::kFailed,
            absl::StrCat(sharing, " shards have two replicas in one failure domain, the first is ",
                         first)};
  }
  if (replicas > 1 && !without.empty()) {
    return {"failure domains", Verdict::kWarning,
            absl::StrCat("none said by", without, ": start them with --failure-domain")};
  }
  if (domains.size() < replicas) {
    return {"failure domains", Verdict::kWarning,
            absl::StrCat(domains.size(), " live for tables of ", replicas,
                         " replicas: a lost replica cannot be replaced until another is up")};
  }
  return {"failure domains", Verdict::kOk, absl::StrCat(domains.size(), " live")};
}

// A move that waits longer than this is reported.
constexpr int64_t kMoveWaitsMs = 60'000;

Check CheckMoves(const v1::ClusterMap& map, const v1::ListMovesReply& list) {
  const int64_t now_ms = Clock::Real()->WallUs() / 1000;
  if (list.paused()) {
    return {"moves", Verdict::kWarning,
            absl::StrCat("paused, ", list.moves_total(), " wait: 'hotbed shard resume'")};
  }
  for (const v1::ShardMove& move : list.moves()) {
    const int64_t age_ms = now_ms - move.goal().since_unix_ms();
    const bool asked = move.goal().since_unix_ms() != 0;  // a refill has no such time
    if (!asked || move.waits_for().empty() || age_ms < kMoveWaitsMs) continue;
    return {"moves", Verdict::kWarning,
            absl::StrCat(ShardName(map, move.goal().shard()), " does not go on for ",
                         ShortSeconds(static_cast<double>(age_ms) * 1e-3), ": ", move.waits_for())};
  }
  return {"moves", Verdict::kOk, absl::StrCat(list.moves_total(), " in progress or waiting")};
}

Check CheckRebalancing(const v1::ListMovesReply& list) {
  return {"rebalancing", list.rebalance().on() ? Verdict::kOk : Verdict::kWarning,
          RebalanceText(list.rebalance())};
}

// A server that holds more than this part of its memory soon reads rows from the disk.
constexpr double kFullPart = 0.9;

Check CheckRoom(const v1::ClusterMap& map) {
  std::string full;
  for (const v1::ServerInfo& server : map.servers()) {
    const v1::ServerLoad& load = server.load();
    const double limit = static_cast<double>(load.host_bytes_limit());
    if (!server.live() || limit == 0) continue;
    if (static_cast<double>(load.bytes_held()) < kFullPart * limit) continue;
    absl::StrAppend(&full, " ", server.name(), " holds ", FormatBytes(load.bytes_held()), " with ",
                    FormatBytes(load.host_bytes_limit()), " of memory;");
  }
  if (full.empty()) return {"room", Verdict::kOk, "every server holds less than its memory"};
  return {"room", Verdict::kWarning,
          absl::StrCat(full.substr(1), " the rest is read from its disk: add a server")};
}

// Counted over the servers that answer.
Check CheckHashes(const std::vector<Report>& reports) {
  std::string wrong;
  for (const Report& report : reports) {
    const double value = report.Sum("hotbed_server_replicas_diverged_total");
    if (value > 0) absl::StrAppend(&wrong, " ", report.process.name, ": ", value, ";");
  }
  if (wrong.empty())
    return {"equal replicas", Verdict::kOk, "no replica differed from its primary"};
  return {"equal replicas", Verdict::kFailed,
          absl::StrCat("replicas that differed from their primary, since the server began:", wrong,
                       " see its log, and keep both servers' data directories")};
}

// Also where other shards of the server are served, so that it is ready.
Check CheckDamage(const std::vector<Report>& reports) {
  std::string refused;
  for (const Report& report : reports) {
    const double value = report.Sum("hotbed_server_shards_refused");
    if (value > 0) absl::StrAppend(&refused, " ", report.process.name, ": ", value, ";");
  }
  if (refused.empty()) return {"damage", Verdict::kOk, "no shard is refused"};
  return {"damage", Verdict::kFailed,
          absl::StrCat("shards that are refused because their data is damaged or missing:", refused,
                       " /statusz of the server names the files")};
}

// Beyond its budget a process may have the code and heap of its libraries.
constexpr double kMemoryFactorMax = 1.15;
constexpr double kMemoryBesideBytes = 128 << 20;
constexpr double kCoordinatorMemoryBytesMax = 1 << 30;

Check CheckMemory(const std::vector<Report>& reports) {
  std::string large;
  for (const Report& report : reports) {
    const double resident = report.Sum("process_resident_memory_bytes");
    const double budget = report.Sum("hotbed_server_host_limit_bytes");
    const double most = report.process.is_server ? kMemoryFactorMax * budget + kMemoryBesideBytes
                                                 : kCoordinatorMemoryBytesMax;
    if ((report.process.is_server && budget == 0) || resident <= most) continue;
    absl::StrAppend(&large, " ", report.process.name, " has ",
                    FormatBytes(static_cast<uint64_t>(resident)), ", expected at most ",
                    FormatBytes(static_cast<uint64_t>(most)), ";");
  }
  if (large.empty()) return {"memory", Verdict::kOk, "every process keeps its budget"};
  return {"memory", Verdict::kWarning, large.substr(1, large.size() - 2)};
}

// Above this part of a budget, requests soon wait for room in it.
constexpr double kBudgetPart = 0.5;

Check CheckInFlight(const std::vector<Report>& reports) {
  std::string full;
  for (const Report& report : reports) {
    report.ForEach("hotbed_server_in_flight_bytes", [&](const nlohmann::json& labels, double used) {
      double limit = 0;
      report.ForEach("hotbed_server_in_flight_limit_bytes",
                     [&](const nlohmann::json& of, double value) {
                       if (of == labels) limit = value;
                     });
      if (limit == 0 || used < kBudgetPart * limit) return;
      absl::StrAppend(&full, " ", report.process.name, ": ", labels.value("budget", ""), " ",
                      FormatBytes(static_cast<uint64_t>(used)), " of ",
                      FormatBytes(static_cast<uint64_t>(limit)), ";");
    });
  }
  if (full.empty()) return {"in flight", Verdict::kOk, "every budget of messages has room"};
  return {"in flight", Verdict::kWarning,
          absl::StrCat("much is being sent, or clients do not read their answers:",
                       full.substr(0, full.size() - 1))};
}

// How long ago something may have been to be worth a warning.
constexpr int64_t kRecentSeconds = 600;

// Connections that were refused or ended, and requests that were refused as those of nobody.
Check CheckPeers(const std::vector<Report>& reports) {
  const double now_s = static_cast<double>(Clock::Real()->WallUs()) * 1e-6;
  std::string bad;
  for (const Report& report : reports) {
    for (const auto& [name, label, words] :
         {std::tuple("hotbed_port_ended", "reason", "connections ended or refused for "),
          std::tuple("hotbed_server_numbers_not_given", "number",
                     "requests with a number that nobody has given out: ")}) {
      report.ForEach(
          absl::StrCat(name, kLastTimeSuffix), [&](const nlohmann::json& labels, double last_s) {
            if (now_s - last_s > kRecentSeconds) return;
            if (labels.value(label, "") == "access_changed") return;  // by a person
            absl::StrAppend(&bad, " ", report.process.name, ": ", words, labels.value(label, ""),
                            ", the last ", ShortSeconds(std::max(0.0, now_s - last_s)), " ago;");
          });
    }
  }
  if (bad.empty()) return {"peers", Verdict::kOk, "no peer had to be stopped lately"};
  return {"peers", Verdict::kWarning, bad.substr(1, bad.size() - 2)};
}

// Processes that were not let in, and data that was given up.
Check CheckDirectories(const v1::ListEventsReply& events) {
  const int64_t now_ms = Clock::Real()->WallUs() / 1000;
  int count = 0;
  std::string last;
  for (const v1::ClusterEvent& event : events.events()) {
    if (event.kind() != "server_refused" && event.kind() != "data_given_up") continue;
    if (now_ms - event.unix_ms() > kRecentSeconds * 1000) continue;
    ++count;
    last = EventLine(event);
  }
  if (count == 0) return {"directories", Verdict::kOk, "none was refused or given up lately"};
  return {"directories", Verdict::kWarning,
          absl::StrCat(count, " refused or given up lately, the last: ", last)};
}

// The version of a process, from its hotbed_build_info.
std::string VersionOf(const Report& report) {
  if (!report.metrics.ok()) return std::string(report.metrics.status().message());
  std::string version = "unknown";
  report.ForEach("hotbed_build_info", [&](const nlohmann::json& labels, double) {
    version = labels.value("version", "");
  });
  return version;
}

// The answer of /readyz of each process.
Check CheckReady(const std::vector<Report>& reports) {
  std::string unready;
  std::string unasked;
  int ready = 0;
  for (const Report& report : reports) {
    const absl::StatusOr<HttpReply>& reply = report.ready;
    if (reply.ok() && reply->code == 200) {
      ready += report.process.is_server ? 1 : 0;
      continue;
    }
    const std::string said = reply.ok() ? reply->body : std::string(reply.status().message());
    // The coordinator has answered at its other port; its admin port may be for others.
    const bool warns =
        absl::IsFailedPrecondition(reply.status()) || (!reply.ok() && !report.process.is_server);
    absl::StrAppend(warns ? &unasked : &unready, " ", report.process.name, ": ",
                    absl::StrReplaceAll(absl::StripTrailingAsciiWhitespace(said), {{"\n", ", "}}),
                    ";");
  }
  const std::string others = unready + unasked;
  if (others.empty()) return {"ready", Verdict::kOk, absl::StrCat(ready, " servers are ready")};
  return {"ready", unready.empty() ? Verdict::kWarning : Verdict::kFailed,
          others.substr(1, others.size() - 2)};
}

Check CheckVersions(const std::vector<Report>& reports) {
  std::string others;
  for (const Report& report : reports) {
    const std::string version = VersionOf(report);
    if (version != HOTBED_VERSION) {
      absl::StrAppend(&others, " ", report.process.name, ": ", version, ";");
    }
  }
  if (others.empty())
    return {"versions", Verdict::kOk, absl::StrCat("all processes run ", HOTBED_VERSION)};
  return {"versions", Verdict::kWarning, absl::StrCat("this is ", HOTBED_VERSION, ";", others)};
}

Check CheckDisk(const std::string& path) {
  struct statvfs disk {};
  const std::string name = absl::StrCat("disk ", path);
  if (statvfs(path.c_str(), &disk) != 0) return {name, Verdict::kFailed, std::strerror(errno)};
  const uint64_t free_bytes = uint64_t{disk.f_bavail} * disk.f_frsize;
  const uint64_t all_bytes = uint64_t{disk.f_blocks} * disk.f_frsize;
  return {name, free_bytes < kDiskFreeMin ? Verdict::kWarning : Verdict::kOk,
          absl::StrCat(FormatBytes(free_bytes), " free of ", FormatBytes(all_bytes),
                       free_bytes < kDiskFreeMin ? "; logs and spill need more" : "")};
}

Check CheckHugePages() {
  std::ifstream in("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string modes;
  std::getline(in, modes);
  if (modes.empty())
    return {"huge pages", Verdict::kWarning, "this kernel reports nothing about them"};
  if (modes.find("[never]") != std::string::npos) {
    return {"huge pages", Verdict::kWarning,
            "off: gathers run slower; as root: echo madvise > "
            "/sys/kernel/mm/transparent_hugepage/enabled"};
  }
  return {"huge pages", Verdict::kOk, modes};
}

// The certificate of the person who asks.
Check CheckCertificate(const ClientIdentity& identity) {
  if (identity.files.certificate.empty()) {
    return {"certificate", Verdict::kOk,
            identity.files.any() ? "none: a token says who calls" : "none: the cluster has no TLS"};
  }
  const auto read = ReadCertificates(identity.files.certificate);
  if (!read.ok()) return {"certificate", Verdict::kFailed, std::string(read.status().message())};
  const Certificate& own = read->front();
  const int64_t days = (own.not_after_s - absl::ToUnixSeconds(absl::Now())) / kDayS;
  return {"certificate", days < kCertificateDaysMin ? Verdict::kWarning : Verdict::kOk,
          absl::StrCat("of \"", own.name, "\", expires in ", days, " days",
                       days < kCertificateDaysMin ? "; make a new one (hotbed cert create)" : "")};
}

void ExamineCluster(const v1::ClusterMap& map, const CommandContext& context,
                    CoordinatorStub* coordinator, std::vector<Check>* checks) {
  const absl::Duration timeout = context.timeout_duration();
  checks->push_back({"coordinator", Verdict::kOk,
                     absl::StrCat(coordinator->leader(), ", cluster ", map.cluster_id())});
  checks->push_back(CheckServers(map));
  checks->push_back(CheckStrangers(coordinator));
  checks->push_back(CheckShards(map));
  checks->push_back(CheckDataPorts(map, timeout));
  const std::vector<Report> reports = AskAll(LiveProcesses(map, coordinator->leader()), timeout);
  checks->push_back(CheckReady(reports));
  checks->push_back(CheckVersions(reports));
  checks->push_back(CheckDamage(reports));
  checks->push_back(CheckReplicas(map));
  checks->push_back(CheckDomains(map));
  checks->push_back(CheckHashes(reports));
  checks->push_back(CheckRoom(map));
  checks->push_back(CheckMemory(reports));
  checks->push_back(CheckInFlight(reports));
  checks->push_back(CheckPeers(reports));
  const absl::StatusOr<v1::ListMovesReply> moves = coordinator->ListMoves({});
  if (moves.ok()) {
    checks->push_back(CheckDoubts(map, *moves));
    checks->push_back(CheckMoves(map, *moves));
    checks->push_back(CheckRebalancing(*moves));
  } else {
    checks->push_back({"moves", Verdict::kFailed, std::string(moves.status().message())});
  }
  v1::ListEventsRequest all;
  all.set_limit(4096);
  const absl::StatusOr<v1::ListEventsReply> events = coordinator->ListEvents(all);
  if (events.ok()) checks->push_back(CheckDirectories(*events));
}

absl::Status Examine(const CommandContext& context, const std::string& data_dir) {
  std::vector<Check> checks;
  CoordinatorStub coordinator(context.coordinator, context.timeout_duration());
  const absl::StatusOr<v1::ClusterMap> map = coordinator.GetClusterMap();
  if (map.ok()) {
    ExamineCluster(*map, context, &coordinator, &checks);
  } else {
    checks.push_back({"coordinator", Verdict::kFailed, std::string(map.status().message())});
  }
  checks.push_back(CheckDisk(data_dir));
  checks.push_back(CheckCertificate(context.identity));
  checks.push_back(CheckHugePages());
  int failed = 0;
  TablePrinter table({"check", "verdict", "found"});
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const Check& check : checks) {
    failed += check.verdict == Verdict::kFailed ? 1 : 0;
    const char* verdict = kVerdictWords[static_cast<int>(check.verdict)];
    table.AddRow({check.name, verdict, check.found});
    json.push_back({{"check", check.name}, {"verdict", verdict}, {"found", check.found}});
  }
  *context.out << (context.json() ? json.dump(2) + "\n" : table.ToText());
  if (failed == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(failed, " of ", checks.size(), " checks failed"));
}

}  // namespace

void AddDoctorCommand(CLI::App* root, CommandContext* context) {
  auto data_dir = std::make_shared<std::string>(".");
  CLI::App* app = root->add_subcommand("doctor", "Check the cluster and this machine for problems");
  app->add_option("--data-dir", *data_dir, "Directory whose disk is checked")
      ->capture_default_str();
  context->Runs(app, [context, data_dir] { return Examine(*context, *data_dir); });
}

}  // namespace hotbed
