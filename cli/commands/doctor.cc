// hotbed doctor: everything that tells a well cluster from one that is not, in one table.
#include <CLI/App.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/base/command.h"
#include "cli/base/coordinator_stub.h"
#include "cli/doctor/cluster_checks.h"
#include "cli/doctor/machine_checks.h"
#include "cli/doctor/process_checks.h"
#include "cli/doctor/serving_check.h"
#include "leader/serving_calls.h"
#include "nlohmann/json.hpp"
#include "terminal/table_printer.h"

namespace hotbed {
namespace {

constexpr const char* kVerdictWords[] = {"ok", "warning", "FAILED"};

void ExamineCluster(const v1::ClusterMap& map, const CommandContext& context,
                    CoordinatorStub* coordinator, std::vector<Check>* checks) {
  const absl::Duration timeout = context.timeout_duration();
  checks->push_back({"coordinator", Verdict::kOk,
                     absl::StrCat(coordinator->leader(), ", cluster ", map.cluster_id())});
  checks->push_back(CheckServers(map));
  checks->push_back(CheckStrangers(coordinator));
  checks->push_back(CheckShards(map));
  checks->push_back(CheckDataPorts(map, timeout));
  std::vector<ProcessPorts> processes = LiveProcesses(map, coordinator->leader());
  const absl::StatusOr<v1::ServingMap> serving =
      ServingCalls(context.coordinator, context.identity).Get(timeout);
  if (serving.ok()) {
    for (ProcessPorts& one : LiveServingProcesses(*serving)) processes.push_back(std::move(one));
    checks->push_back(CheckServing(*serving));
  } else if (!absl::IsUnimplemented(serving.status())) {
    checks->push_back({"serving", Verdict::kFailed, std::string(serving.status().message())});
  }
  const std::vector<Report> reports = AskAll(processes, timeout);
  checks->push_back(CheckReady(reports));
  checks->push_back(CheckVersions(reports));
  checks->push_back(CheckKernels(reports));
  checks->push_back(CheckLogs(reports));
  checks->push_back(CheckDamage(reports));
  checks->push_back(CheckReplicas(map));
  checks->push_back(CheckDomains(map));
  checks->push_back(CheckHashes(reports));
  checks->push_back(CheckRoom(map));
  checks->push_back(CheckMemory(reports));
  checks->push_back(CheckInFlight(reports));
  checks->push_back(CheckPeers(reports));
  checks->push_back(CheckOpenFiles(reports));
  checks->push_back(CheckClocks(reports));
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
