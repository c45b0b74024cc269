#include <sys/types.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Validators.hpp>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/child_process.h"
#include "cli/command.h"
#include "cli/demo/conserved_sum.h"
#include "cli/demo/online_lookups.h"
#include "cli/local_cluster.h"
#include "cli/progress.h"
#include "cli/table_printer.h"
#include "common/status_macros.h"
#include "config/units.h"
#include "nlohmann/json.hpp"
#include "trainer/datagen.h"

namespace hotbed {
namespace {

constexpr char kTablePrefix[] = "ctr";
constexpr char kLedgerTable[] = "ledger";
constexpr double kKillAfterSeconds = 3;  // of training
constexpr double kTrainSecondsMax = 600;
constexpr uint64_t kLookups = 2000;

volatile std::sig_atomic_t g_interrupted = 0;
void OnSignal(int) { g_interrupted = 1; }

struct Flags {
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
  Demo(const CommandContext& context, Flags flags) : context_(context), flags_(std::move(flags)) {}
  absl::Status Run();

 private:
  absl::Status Steps();
  absl::Status StartCluster();
  absl::Status MakeData();
  absl::Status Train();
  absl::Status KillOneServer();
  void NoteRecovery(bool training);
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
  std::string target() const { return absl::StrCat("hotbed://", cluster_->coordinator_address()); }

  const CommandContext& context_;
  const Flags flags_;
  const Clock* const clock_ = Clock::Real();
  const int64_t start_ns_ = clock_->NowNs();
  int64_t step_ns_ = 0;
  int step_ = 0;
  std::string step_name_;
  std::string run_dir_;    // of this run: removed at the end
  std::string data_path_;  // of the training data: kept for the next run
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
  options.cancelled = [] { return g_interrupted != 0; };
  HOTBED_ASSIGN_OR_RETURN(cluster_, LocalCluster::Start(options, clock_));
  HOTBED_RETURN_IF_ERROR(cluster_->WaitReady(absl::Seconds(60)));
  for (const LocalCluster::Process& process : cluster_->processes()) {
    Say(absl::StrFormat("%-12s pid %-7d %s   http://%s/statusz", process.name, process.child->pid(),
                        process.address, process.admin_address));
  }
  return absl::OkStatus();
}

absl::Status Demo::MakeData() {
  data_path_ = absl::StrCat(flags_.work_dir, "/criteo-", flags_.rows, "-", flags_.seed, ".tsv");
  const std::string about_path = absl::StrCat(data_path_, ".json");
  if (FileSystem::Real()->Exists(about_path)) {
    HOTBED_ASSIGN_OR_RETURN(const std::string text, FileSystem::Real()->ReadAll(about_path));
    const nlohmann::json about = nlohmann::json::parse(text, nullptr, false);
    if (about.is_object() && std::filesystem::exists(data_path_)) {
      result_["data"] = about;
      Say(absl::StrCat("made by an earlier run: ", data_path_));
    }
  }
  if (!result_.contains("data")) {
    // Written under another name first: a run that is stopped here leaves no half file behind.
    const std::string partial = absl::StrCat(run_dir_, "/criteo.tsv");
    std::ofstream out(partial, std::ios::binary);
    Progress progress(context_.err, isatty(STDERR_FILENO) != 0, clock_, "      datagen",
                      flags_.rows);
    CriteoDatagenOptions options;
    options.rows = flags_.rows;
    options.seed = flags_.seed;
    options.progress = [&progress](uint64_t rows) { progress.Update(rows); };
    HOTBED_ASSIGN_OR_RETURN(const CriteoDatagenReport report, GenerateCriteo(options, &out));
    out.close();
    if (!out)
      return absl::UnavailableError(absl::StrCat(partial, ": the last bytes were not written"));
    std::error_code error;
    std::filesystem::rename(partial, data_path_, error);
    if (error) return absl::UnavailableError(absl::StrCat(data_path_, ": ", error.message()));
    result_["data"] = {{"rows", report.rows},
                       {"bytes", report.bytes},
                       {"positive_fraction", report.positive_fraction},
                       {"auc_best", report.auc_best},
                       {"auc_best_linear", report.auc_linear}};
    HOTBED_RETURN_IF_ERROR(
        FileSystem::Real()->WriteAtomically(about_path, result_["data"].dump(2) + "\n"));
  }
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
  if (victim.child == nullptr || victim.restarts == 0 || !cluster_->Ready(victim)) return;
  recovery_seconds_ = Elapsed(killed_ns_);
  Say(absl::StrFormat("%s serves again %s after the kill%s", victim.name,
                      ShortSeconds(recovery_seconds_),
                      training ? "; the trainer goes on by itself" : ""));
  result_["kill"]["recovery_seconds"] = recovery_seconds_;
}

absl::Status Demo::Train() {
  HOTBED_ASSIGN_OR_RETURN(ledger_,
                          ConservedSum::Start(target(), kLedgerTable, flags_.seed, clock_));
  const std::string log = absl::StrCat(run_dir_, "/train.log"),
                    json_path = absl::StrCat(run_dir_, "/train.json");
  HOTBED_ASSIGN_OR_RETURN(
      const std::unique_ptr<ChildProcess> trainer,
      ChildProcess::Spawn({absl::StrCat(OwnDirectory(), "/hotbed-train-ctr"),
                           absl::StrCat("--coordinator=", cluster_->coordinator_address()),
                           "--format=criteo", absl::StrCat("--train=", data_path_),
                           "--test-fraction=0.1", absl::StrCat("--threads=", flags_.threads),
                           absl::StrCat("--table-prefix=", kTablePrefix), "--output=json"},
                          log, json_path));
  Say(absl::StrCat("hotbed-train-ctr, ", flags_.threads,
                   " threads; beside it a ledger of integer gradients is pushed"));
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
    if (g_interrupted != 0) return absl::CancelledError("interrupted");
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
  Say(absl::StrFormat("%s examples in %.1f s: %s examples/s, %s rows pulled/s, %s rows pushed/s",
                      WithCommas(report.value("examples", uint64_t{0})),
                      report.value("seconds", 0.0),
                      ShortCount(report.value("examples_per_second", 0.0)),
                      ShortCount(report.value("rows_pulled", 0.0) / report.value("seconds", 1.0)),
                      ShortCount(report.value("rows_pushed", 0.0) / report.value("seconds", 1.0))));
  const double best = result_["data"]["auc_best"], linear = result_["data"]["auc_best_linear"];
  const double auc = report.value("auc", 0.0);
  result_["auc_gap_closed"] = (auc - linear) / (best - linear);
  Say(absl::StrFormat(
      "held-out AUC %.4f; best linear %.4f, best reachable %.4f: %.0f %% of the gap closed", auc,
      linear, best, 100 * (auc - linear) / (best - linear)));
  return absl::OkStatus();
}

absl::Status Demo::CheckLedger() {
  HOTBED_ASSIGN_OR_RETURN(const ConservedSum::Report report, ledger_->StopAndCheck());
  ledger_.reset();
  result_["ledger"] = {{"pushes", report.pushes},
                       {"rows", report.rows},
                       {"weights_checked", report.weights_checked},
                       {"retries", report.retries},
                       {"longest_push_seconds", report.longest_push_seconds}};
  Say(absl::StrFormat("%s pushes of %s rows were acknowledged, before, during and after the kill",
                      WithCommas(report.pushes), WithCommas(report.rows)));
  Say(absl::StrFormat(
      "all %s weights are exactly what they add up to: nothing lost, nothing applied twice",
      WithCommas(report.weights_checked)));
  Say(absl::StrFormat(
      "the longest push waited %s (over the kill); the client resent %s segments by itself",
      ShortSeconds(report.longest_push_seconds), WithCommas(report.retries)));
  return absl::OkStatus();
}

absl::Status Demo::LookUp() {
  HOTBED_ASSIGN_OR_RETURN(const OnlineReport report,
                          LookUpOnline(target(), data_path_, kTablePrefix, kLookups, clock_));
  result_["online"] = {{"lookups", report.lookups},
                       {"rows_a_lookup", report.rows_a_lookup},
                       {"p50_seconds", report.p50_seconds},
                       {"p99_seconds", report.p99_seconds},
                       {"lookups_per_second", report.lookups_per_second}};
  Say(absl::StrFormat("%s lookups of %d rows each, one at a time: p50 %s, p99 %s, %s/s",
                      WithCommas(report.lookups), report.rows_a_lookup,
                      ShortSeconds(report.p50_seconds), ShortSeconds(report.p99_seconds),
                      ShortCount(report.lookups_per_second)));
  std::string scored;
  for (const OnlineReport::Scored& sample : report.samples) {
    absl::StrAppendFormat(&scored, "%s%.3f (%s)", scored.empty() ? "" : ", ", sample.probability,
                          sample.clicked ? "clicked" : "not clicked");
  }
  Say(absl::StrCat("scored, for instance: ", scored));
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
      {"Check that no acknowledged push was lost", &Demo::CheckLedger},
      {"Query embeddings online", &Demo::LookUp},
      {"Stop everything", &Demo::StopCluster},
  };
  for (const Chapter& chapter : chapters) {
    if (g_interrupted != 0) return absl::CancelledError("interrupted");
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
  signal(SIGINT, OnSignal);
  signal(SIGTERM, OnSignal);
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
    std::error_code ignored;  // a directory left behind in the work directory harms nothing
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
  auto flags = std::make_shared<Flags>();
  flags->work_dir = DefaultWorkDir();
  CLI::App* app = root->add_subcommand("demo",
                                       "Start a cluster, train on it, kill a server, check, query, "
                                       "stop: the whole story in a minute");
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
                  "For the data (kept for the next run) and the cluster's files")
      ->capture_default_str();
  app->add_flag("--keep", flags->keep, "Keep the cluster's files and logs");
  app->callback([context, flags] {
    context->run = [context, flags] {
      Flags resolved = *flags;
      resolved.work_dir = std::filesystem::absolute(resolved.work_dir).lexically_normal().string();
      return Demo(*context, resolved).Run();
    };
  });
}

}  // namespace hotbed
