#include <sys/statvfs.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <set>

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
#include "config/units.h"
#include "terminal/table_printer.h"

namespace hotbed {
namespace {

constexpr uint64_t kDiskFreeMin = 1ull << 30;

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

// A page of the server's admin port. FailedPrecondition: it is out of reach, as its address shows.
absl::StatusOr<HttpReply> AdminPage(const v1::ServerInfo& server, const std::string& path,
                                    absl::Duration timeout) {
  const absl::StatusOr<HostPort> admin = SplitHostPort(server.admin_address(), 1);
  const absl::StatusOr<HostPort> data = SplitHostPort(server.address(), 1);
  // Another process of this machine might answer in its place.
  if (admin.ok() && data.ok() && IsLoopbackHost(admin->host) && !IsLoopbackHost(data->host)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "its admin port at ", server.admin_address(),
        " is for its own machine; start it with --admin-listen=0.0.0.0:", admin->port));
  }
  return HttpGet(server.admin_address(), path, timeout);
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
Check CheckHashes(const v1::ClusterMap& map, absl::Duration timeout) {
  std::string wrong;
  for (const v1::ServerInfo& server : map.servers()) {
    if (!server.live()) continue;
    const absl::StatusOr<HttpReply> reply = AdminPage(server, "/api/metrics", timeout);
    if (!reply.ok()) continue;
    const nlohmann::json metrics = nlohmann::json::parse(reply->body, nullptr, false);
    if (!metrics.is_array()) continue;
    for (const auto& metric : metrics) {
      if (metric.value("name", "") != "hotbed_server_replicas_diverged_total") continue;
      const double value = metric.value("value", 0.0);
      if (value > 0) absl::StrAppend(&wrong, " ", server.name(), ": ", value, ";");
    }
  }
  if (wrong.empty())
    return {"equal replicas", Verdict::kOk, "no replica differed from its primary"};
  return {"equal replicas", Verdict::kFailed,
          absl::StrCat("replicas that differed from their primary, since the server began:", wrong,
                       " see its log, and keep both servers' data directories")};
}

// The version of a process, from its hotbed_build_info.
std::string VersionOf(const v1::ServerInfo& server, absl::Duration timeout) {
  const absl::StatusOr<HttpReply> reply = AdminPage(server, "/api/metrics", timeout);
  if (!reply.ok()) return std::string(reply.status().message());
  const nlohmann::json metrics = nlohmann::json::parse(reply->body, nullptr, false);
  if (!metrics.is_array()) return "unreadable /api/metrics";
  for (const auto& metric : metrics) {
    if (metric.value("name", "") == "hotbed_build_info")
      return metric["labels"].value("version", "");
  }
  return "unknown";
}

// Asks /readyz of each server.
Check CheckReady(const v1::ClusterMap& map, absl::Duration timeout) {
  std::string unready;
  std::string unasked;
  int ready = 0;
  for (const v1::ServerInfo& server : map.servers()) {
    if (!server.live()) continue;
    const absl::StatusOr<HttpReply> reply = AdminPage(server, "/readyz", timeout);
    if (reply.ok() && reply->code == 200) {
      ++ready;
      continue;
    }
    const std::string said = reply.ok() ? reply->body : std::string(reply.status().message());
    absl::StrAppend(
        absl::IsFailedPrecondition(reply.status()) ? &unasked : &unready, " ", server.name(), ": ",
        absl::StrReplaceAll(absl::StripTrailingAsciiWhitespace(said), {{"\n", ", "}}), ";");
  }
  const std::string others = unready + unasked;
  if (others.empty()) return {"ready", Verdict::kOk, absl::StrCat(ready, " servers are ready")};
  return {"ready", unready.empty() ? Verdict::kWarning : Verdict::kFailed,
          others.substr(1, others.size() - 2)};
}

Check CheckVersions(const v1::ClusterMap& map, absl::Duration timeout) {
  std::string others;
  for (const v1::ServerInfo& server : map.servers()) {
    if (!server.live()) continue;
    const std::string version = VersionOf(server, timeout);
    if (version != HOTBED_VERSION) absl::StrAppend(&others, " ", server.name(), ": ", version, ";");
  }
  if (others.empty())
    return {"versions", Verdict::kOk, absl::StrCat("all servers run ", HOTBED_VERSION)};
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

absl::Status Examine(const CommandContext& context, const std::string& data_dir) {
  std::vector<Check> checks;
  CoordinatorStub coordinator(context.coordinator, context.timeout_duration());
  const absl::StatusOr<v1::ClusterMap> map = coordinator.GetClusterMap();
  if (map.ok()) {
    checks.push_back({"coordinator", Verdict::kOk,
                      absl::StrCat(context.coordinator, ", cluster ", map->cluster_id())});
    checks.push_back(CheckServers(*map));
    checks.push_back(CheckStrangers(&coordinator));
    checks.push_back(CheckShards(*map));
    checks.push_back(CheckDataPorts(*map, context.timeout_duration()));
    checks.push_back(CheckReady(*map, context.timeout_duration()));
    checks.push_back(CheckVersions(*map, context.timeout_duration()));
    checks.push_back(CheckReplicas(*map));
    checks.push_back(CheckDomains(*map));
    checks.push_back(CheckHashes(*map, context.timeout_duration()));
    checks.push_back(CheckRoom(*map));
    const absl::StatusOr<v1::ListMovesReply> moves = coordinator.ListMoves({});
    if (moves.ok()) {
      checks.push_back(CheckDoubts(*map, *moves));
      checks.push_back(CheckMoves(*map, *moves));
      checks.push_back(CheckRebalancing(*moves));
    } else {
      checks.push_back({"moves", Verdict::kFailed, std::string(moves.status().message())});
    }
  } else {
    checks.push_back({"coordinator", Verdict::kFailed, std::string(map.status().message())});
  }
  checks.push_back(CheckDisk(data_dir));
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
