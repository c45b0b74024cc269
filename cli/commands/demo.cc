#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Validators.hpp>
#include <csignal>
#include <filesystem>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/base/command.h"
#include "cli/base/interrupt.h"
#include "cli/cluster/child_process.h"
#include "cli/cluster/http_get.h"
#include "cli/cluster/local_cluster.h"
#include "cli/demo/click_data.h"
#include "cli/demo/cluster_changes.h"
#include "cli/demo/conserved_sum.h"
#include "cli/demo/online_lookups.h"
#include "cli/demo/story_text.h"
#include "common/status_macros.h"
#include "config/units.h"
#include "nlohmann/json.hpp"
#include "terminal/table_printer.h"

namespace hotbed {
namespace {

constexpr char kTablePrefix[] = "ctr";
constexpr char kLedgerTable[] = "ledger";
constexpr double kKillAfterSeconds = 3;  // after the training began
constexpr double kTrainSecondsMax = 600;
constexpr uint64_t kLookups = 2000;

struct DemoFlags {
  uint64_t rows = 500000;
  uint64_t seed = 1;
  int servers = 3;
  int threads = 2;
  std::string work_dir;
  bool keep = false;
};

// The demo is a story of steps on one thread, which also keeps the cluster alive
// (LocalCluster::Tick).
class Demo {
 public:
  Demo(const CommandContext& context, DemoFlags flags)
      : context_(context), flags_(std::move(flags)) {}
  absl::Status Run();

 private:
  absl::Status Steps();
  absl::Status StartCluster();
  absl::Status MakeData();
  absl::Status Train();
  absl::Status KillOneServer();
  void NoteRecovery(bool training);
  absl::Status AddServer();
  absl::Status LoseServer();
  void SayPhase(const char* when);
  absl::Status Alive();
  absl::Status CheckLedger();
  absl::Status LookUp();
  absl::Status StopCluster();
  void PrintEnd();

  void Say(const std::string& text) const {
    if (!context_.json()) *context_.out << "      " << text << std::endl;
  }
  double Elapsed(int64_t since_ns) const {
    return static_cast<double>(clock_->NowNs() - since_ns) * 1e-9;
  }
  // Replicas of each shard of every table.
  uint32_t replicas() const { return flags_.servers > 1 ? 2 : 1; }
  std::string target() const { return absl::StrCat("hotbed://", cluster_->coordinator_address()); }

  const CommandContext& context_;
  const DemoFlags flags_;
  const InterruptScope interrupt_;
  const Clock* const clock_ = Clock::Real();
  const int64_t start_ns_ = clock_->NowNs();
  int64_t step_ns_ = 0;
  int step_ = 0;
  std::string step_name_;
  std::string run_dir_;    // for this run: removed at the end
  std::string data_path_;  // the training data: kept for the next run
  std::unique_ptr<LocalCluster> cluster_;
  std::unique_ptr<ConservedSum> ledger_;
  int64_t killed_ns_ = 0;
  double recovery_seconds_ = 0;  // from the kill until the server serves again
  nlohmann::ordered_json result_;
};

absl::Status Demo::StartCluster() {
  LocalClusterOptions options;
  options.data_dir = absl::StrCat(run_dir_, "/cluster");
  options.servers = flags_.servers;
  options.port = 0;
  options.say = [this](const std::string& text) { Say(text); };
  options.cancelled = [this] { return interrupt_.interrupted(); };
  HOTBED_ASSIGN_OR_RETURN(cluster_, LocalCluster::Start(options, clock_));
  HOTBED_RETURN_IF_ERROR(cluster_->WaitReady(absl::Seconds(60)));
  for (const LocalCluster::Process& process : cluster_->processes()) {
    Say(absl::StrFormat("%-12s pid %-7d %s   http://%s/statusz", process.name, process.child->pid(),
                        process.address, process.admin_address));
  }
  return absl::OkStatus();
}

absl::Status Demo::MakeData() {
  const ClickDataOptions options{flags_.rows, flags_.seed, flags_.work_dir, run_dir_};
  HOTBED_ASSIGN_OR_RETURN(const ClickData made, MakeClickData(options, context_.err, clock_));
  data_path_ = made.path;
  result_["data"] = made.about;
  if (!made.is_new) Say(absl::StrCat("made by an earlier run: ", data_path_));
  const auto& data = result_["data"];
  Say(absl::StrFormat("%s examples, %s, 26 categorical and 13 integer fields, %.1f %% clicks",
                      WithCommas(data["rows"]), FormatBytes(data["bytes"]),
                      100 * data["positive_fraction"].get<double>()));
  Say(absl::StrFormat("its planted model: best reachable AUC %.4f, best linear model %.4f",
                      data["auc_best"].get<double>(), data["auc_best_linear"].get<double>()));
  return absl::OkStatus();
}

absl::Status Demo::KillOneServer() {
  const LocalCluster::Process& victim = cluster_->processes().back();
  if (victim.child == nullptr)
    return absl::InternalError(absl::StrCat(victim.name, " is not running"));
  const uint64_t pushes = ledger_->pushes();
  killed_ns_ = clock_->NowNs();
  victim.child->Signal(SIGKILL);
  Say(absl::StrFormat(
      "%.1f s into training: kill -9 %s (pid %d), after %s acknowledged ledger pushes",
      Elapsed(step_ns_), victim.name, victim.child->pid(), WithCommas(pushes)));
  result_["kill"] = {
      {"server", victim.name}, {"pid", victim.child->pid()}, {"ledger_pushes_before", pushes}};
  return absl::OkStatus();
}

void Demo::NoteRecovery(bool training) {
  if (killed_ns_ == 0 || recovery_seconds_ > 0) return;
  const LocalCluster::Process& victim = cluster_->processes().back();
  if (victim.child == nullptr || victim.restarts == 0 || !GetReady(victim.admin_address).ok()) {
    return;
  }
  recovery_seconds_ = Elapsed(killed_ns_);
  Say(absl::StrFormat("%s serves again %s after the kill%s", victim.name,
                      ShortSeconds(recovery_seconds_),
                      training ? "; the trainer continues by itself" : ""));
  result_["kill"]["recovery_seconds"] = recovery_seconds_;
}

absl::Status Demo::Train() {
  HOTBED_ASSIGN_OR_RETURN(
      ledger_, ConservedSum::Start(target(), kLedgerTable, replicas(), flags_.seed, clock_));
  const std::string log = absl::StrCat(run_dir_, "/train.log"),
                    json_path = absl::StrCat(run_dir_, "/train.json");
  HOTBED_ASSIGN_OR_RETURN(
      const std::unique_ptr<ChildProcess> trainer,
      ChildProcess::Spawn({absl::StrCat(OwnDirectory(), "/hotbed-train-ctr"),
                           absl::StrCat("--coordinator=", cluster_->coordinator_address()),
                           "--format=criteo", absl::StrCat("--train=", data_path_),
                           "--test-fraction=0.1", absl::StrCat("--threads=", flags_.threads),
                           replicas() > 1 ? "--durability=replicated=2" : "--durability=log",
                           absl::StrCat("--table-prefix=", kTablePrefix), "--output=json"},
                          log, json_path));
  Say(absl::StrCat("hotbed-train-ctr, ", flags_.threads,
                   " threads; meanwhile another client pushes a ledger of integer gradients"));
  std::string shown;
  while (trainer->Running() || recovery_seconds_ == 0) {
    cluster_->Tick();
    if (killed_ns_ == 0 && (Elapsed(step_ns_) > kKillAfterSeconds || !trainer->Running())) {
      HOTBED_RETURN_IF_ERROR(KillOneServer());
    }
    NoteRecovery(trainer->Running());
    const std::string line = LastLines(log, 1);
    if (line != shown && line.find("ETA") != std::string::npos) Say(line);
    shown = line;
    if (interrupt_.interrupted()) return absl::CancelledError("interrupted");
    if (Elapsed(step_ns_) > kTrainSecondsMax) {
      return absl::DeadlineExceededError(
          absl::StrCat("training is not done after ", kTrainSecondsMax, " s; see ", log));
    }
    clock_->SleepNs(20'000'000);
  }
  if (trainer->exit_code() != 0) {
    return absl::UnavailableError(absl::StrCat("hotbed-train-ctr ended: ", trainer->exit_text(),
                                               ". Its log ends with:\n", LastLines(log, 5)));
  }
  HOTBED_ASSIGN_OR_RETURN(const std::string text, FileSystem::Real()->ReadAll(json_path));
  const nlohmann::ordered_json report = nlohmann::ordered_json::parse(text, nullptr, false);
  if (!report.is_object())
    return absl::InternalError(absl::StrCat(json_path, " is not the trainer's JSON"));
  result_["training"] = report;
  Say(TrainingText(report));
  const double best = result_["data"]["auc_best"], linear = result_["data"]["auc_best_linear"];
  const double auc = report.value("auc", 0.0);
  result_["auc_gap_closed"] = (auc - linear) / (best - linear);
  Say(AucText(auc, linear, best));
  return absl::OkStatus();
}

// Runs between two polls of a wait.
absl::Status Demo::Alive() {
  cluster_->Tick();
  return interrupt_.interrupted() ? absl::CancelledError("interrupted") : absl::OkStatus();
}

// Prints the ledger client's calls since the last time.
void Demo::SayPhase(const char* when) {
  const ConservedSum::Phase phase = ledger_->TakePhase();
  Say(absl::StrCat("the ledger ", when, ": ", PhaseText(phase)));
  result_["phases"].push_back(PhaseJson(when, phase));
}

absl::Status Demo::AddServer() {
  SayPhase("over the training and the kill");
  HOTBED_ASSIGN_OR_RETURN(const std::string server, cluster_->AddServer());
  HOTBED_RETURN_IF_ERROR(cluster_->WaitReady(absl::Seconds(60)));
  Say(absl::StrCat(server, " serves ", ShortSeconds(Elapsed(step_ns_)), " after it was asked for"));
  ledger_->TakePhase();  // count only the calls during the moves
  const Tick tick = [this] { return Alive(); };
  HOTBED_ASSIGN_OR_RETURN(const MoveReport moved,
                          MoveOnto(cluster_->coordinator_address(), server,
                                   cluster_->processes().size() - 1, tick, clock_));
  Say(absl::StrFormat("%d shards%s moved onto it in %s", moved.shards,
                      moved.bytes == 0 ? "" : absl::StrCat(" of about ", FormatBytes(moved.bytes)),
                      ShortSeconds(moved.seconds)));
  result_["moves"] = {{"server", server},
                      {"shards", moved.shards},
                      {"bytes", moved.bytes},
                      {"seconds", moved.seconds}};
  SayPhase("while they moved");
  return absl::OkStatus();
}

absl::Status Demo::LoseServer() {
  if (replicas() == 1) {
    Say("passed over: with one server from the start no table has a second replica");
    return absl::OkStatus();
  }
  const Tick tick = [this] { return Alive(); };
  // With two replicas of each shard, one server may be lost.
  HOTBED_RETURN_IF_ERROR(WaitForReplicas(cluster_->coordinator_address(), tick, clock_));
  SayPhase("until every shard had two replicas");
  const std::string server = cluster_->processes()[1].name;
  HOTBED_ASSIGN_OR_RETURN(const uint64_t shards,
                          PrimariesOf(cluster_->coordinator_address(), server));
  const int64_t killed_ns = clock_->NowNs();
  HOTBED_RETURN_IF_ERROR(cluster_->KillForGood(server));
  Say(absl::StrFormat("kill -9 %s, primary of %d shards; it does not come back", server, shards));
  HOTBED_ASSIGN_OR_RETURN(const LossReport loss, WaitOutLoss(cluster_->coordinator_address(),
                                                             server, killed_ns, tick, clock_));
  Say(absl::StrFormat(
      "all of them accept pushes elsewhere %s after the kill, and have two replicas "
      "again after %s",
      ShortSeconds(loss.fail_over_seconds), ShortSeconds(loss.refill_seconds)));
  result_["loss"] = {{"server", server},
                     {"shards", shards},
                     {"fail_over_seconds", loss.fail_over_seconds},
                     {"refill_seconds", loss.refill_seconds}};
  SayPhase("over the loss");
  return absl::OkStatus();
}

absl::Status Demo::CheckLedger() {
  HOTBED_ASSIGN_OR_RETURN(const ConservedSum::Report report, ledger_->StopAndCheck());
  ledger_.reset();
  result_["ledger"] = LedgerJson(report);
  Say(absl::StrFormat("%s pushes of %s rows were acknowledged, over all of this",
                      WithCommas(report.pushes), WithCommas(report.rows)));
  Say(absl::StrFormat(
      "all %s weights are exactly what they add up to: nothing lost, nothing applied twice",
      WithCommas(report.weights_checked)));
  Say(absl::StrFormat("the longest push of all waited %s; the client resent %s segments by itself",
                      ShortSeconds(report.longest_push_seconds), WithCommas(report.retries)));
  return absl::OkStatus();
}

absl::Status Demo::LookUp() {
  HOTBED_ASSIGN_OR_RETURN(const OnlineReport report,
                          LookUpOnline(target(), data_path_, kTablePrefix, kLookups, clock_));
  result_["online"] = LookupsJson(report);
  Say(LookupsText(report));
  Say(ScoresText(report));
  return absl::OkStatus();
}

absl::Status Demo::StopCluster() {
  HOTBED_RETURN_IF_ERROR(cluster_->Stop());
  cluster_.reset();
  return absl::OkStatus();
}

absl::Status Demo::Steps() {
  struct Chapter {
    std::string title;
    absl::Status (Demo::*run)();
  };
  const Chapter chapters[] = {
      {absl::StrCat("Start a cluster: one coordinator, ", flags_.servers,
                    " shard servers, real processes"),
       &Demo::StartCluster},
      {"Make click data in Criteo's format", &Demo::MakeData},
      {"Train a factorization machine whose embeddings live in the cluster; kill a server "
       "meanwhile",
       &Demo::Train},
      {"Add a server and move shards onto it, while they are pulled and pushed", &Demo::AddServer},
      {"Lose a server for good", &Demo::LoseServer},
      {"Check that no acknowledged push was lost", &Demo::CheckLedger},
      {"Query embeddings online", &Demo::LookUp},
      {"Stop everything", &Demo::StopCluster},
  };
  for (const Chapter& chapter : chapters) {
    if (interrupt_.interrupted()) return absl::CancelledError("interrupted");
    step_name_ = chapter.title;
    ++step_;
    step_ns_ = clock_->NowNs();
    if (!context_.json()) {
      *context_.out << "\n[" << step_ << "/" << std::size(chapters) << "] " << step_name_
                    << std::endl;
    }
    HOTBED_RETURN_IF_ERROR((this->*chapter.run)());
    result_["steps"].push_back({{"step", step_name_}, {"seconds", Elapsed(step_ns_)}});
    Say(absl::StrCat("(", ShortSeconds(Elapsed(step_ns_)), ")"));
  }
  return absl::OkStatus();
}

absl::Status Demo::Run() {
  run_dir_ = absl::StrCat(flags_.work_dir, "/run-", getpid());
  HOTBED_RETURN_IF_ERROR(FileSystem::Real()->MakeDir(run_dir_));
  absl::Status status = Steps();
  ledger_.reset();
  cluster_.reset();
  if (!status.ok()) {
    return absl::Status(status.code(), absl::StrCat("step ", step_, " (", step_name_,
                                                    ") failed: ", status.message(),
                                                    "\nLogs and data are kept in ", run_dir_));
  }
  result_["seconds"] = Elapsed(start_ns_);
  if (!flags_.keep) {
    std::error_code ignored;  // a directory left behind does no harm
    std::filesystem::remove_all(run_dir_, ignored);
  }
  PrintEnd();
  return absl::OkStatus();
}

void Demo::PrintEnd() {
  if (context_.json()) {
    *context_.out << result_.dump(2) << "\n";
    return;
  }
  *context_.out << "\nDone in " << ShortSeconds(result_["seconds"]) << ". ";
  if (flags_.keep) {
    *context_.out << "The cluster's data: hotbed up --data-dir " << run_dir_ << "/cluster\n";
  } else {
    *context_.out << "Next: hotbed up --servers 3 --data-dir DIR, then hotbed status\n";
  }
}

std::string DefaultWorkDir() {
  std::error_code ignored;
  const std::filesystem::path temp = std::filesystem::temp_directory_path(ignored);
  return absl::StrCat(temp.empty() ? "/tmp" : temp.string(), "/hotbed-demo-", getuid());
}

}  // namespace

void AddDemoCommand(CLI::App* root, CommandContext* context) {
  auto flags = std::make_shared<DemoFlags>();
  flags->work_dir = DefaultWorkDir();
  CLI::App* app = root->add_subcommand("demo",
                                       "Start a cluster, train on it, kill servers, add one, move "
                                       "shards, check, query, stop: the whole story in 90 seconds");
  app->add_option("--rows", flags->rows, "Training examples")
      ->check(CLI::Range(uint64_t{10000}, uint64_t{100'000'000}))
      ->capture_default_str();
  app->add_option("--seed", flags->seed, "Of the data")->capture_default_str();
  app->add_option("--servers", flags->servers, "Shard servers")
      ->check(CLI::Range(1, kLocalServersMax))
      ->capture_default_str();
  app->add_option("--threads", flags->threads, "Trainer threads")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app->add_option("--work-dir", flags->work_dir,
                  "Directory for the data (kept for the next run) and the cluster's files")
      ->capture_default_str();
  app->add_flag("--keep", flags->keep, "Keep the cluster's files and logs");
  context->Runs(app, [context, flags] {
    DemoFlags resolved = *flags;
    resolved.work_dir = std::filesystem::absolute(resolved.work_dir).lexically_normal().string();
    return Demo(*context, resolved).Run();
  });
}

}  // namespace hotbed
