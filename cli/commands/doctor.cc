#include <sys/statvfs.h>

#include <CLI/App.hpp>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "cli/coordinator_stub.h"
#include "cli/http_get.h"
#include "cli/table_printer.h"
#include "cli/table_text.h"
#include "config/units.h"

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

// hotbed_build_info of one process says its version.
std::string VersionAt(const std::string& admin_address, absl::Duration timeout) {
  const absl::StatusOr<HttpReply> reply = HttpGet(admin_address, "/api/metrics", timeout);
  if (!reply.ok()) return std::string(reply.status().message());
  const nlohmann::json metrics = nlohmann::json::parse(reply->body, nullptr, false);
  if (!metrics.is_array()) return "unreadable /api/metrics";
  for (const auto& metric : metrics) {
    if (metric.value("name", "") == "hotbed_build_info")
      return metric["labels"].value("version", "");
  }
  return "unknown";
}

Check CheckVersions(const v1::ClusterMap& map, absl::Duration timeout) {
  std::string others;
  for (const v1::ServerInfo& server : map.servers()) {
    if (!server.live()) continue;
    const std::string version = VersionAt(server.admin_address(), timeout);
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
    return {"huge pages", Verdict::kWarning, "this kernel tells nothing about them"};
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
    checks.push_back(CheckShards(*map));
    checks.push_back(CheckVersions(*map, context.timeout_duration()));
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
  CLI::App* app =
      root->add_subcommand("doctor", "Look for what is wrong with the cluster and this machine");
  app->add_option("--data-dir", *data_dir, "Whose disk is looked at")->capture_default_str();
  app->callback([context, data_dir] {
    context->run = [context, data_dir] { return Examine(*context, *data_dir); };
  });
}

}  // namespace hotbed
