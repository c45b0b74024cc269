// hotbed-kill-checker: the checker of conserved sums as a program, which tests/fault/kill_test.py
// kills, too.
//
//   hotbed-kill-checker create --coordinator HOST:PORT
//   hotbed-kill-checker worker --coordinator HOST:PORT --journal-dir D --client N [--seconds S]
//   hotbed-kill-checker verify --coordinator HOST:PORT --journal-dir D
//   hotbed-kill-checker verify-replicas --coordinator HOST:PORT --journal-dir D
//
// A worker ends at SIGTERM with all its steps applied. All modes of one run get the same --clients,
// --rows, --dim, --ids, --transfers, --tables and --seed. Exit status: 0
// exact (or done), 1 a difference was found, 2 bad usage, 3 the check could not be made.
#include <signal.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "tests/checker/check_client.h"

namespace hotbed::checker {
namespace {

int Report(const absl::Status& status) {
  if (status.ok()) return 0;
  std::printf("%s\n", status.ToString().c_str());
  return absl::IsDataLoss(status) ? 1 : 3;
}

volatile sig_atomic_t stop_signal = 0;
void OnSignal(int signal) { stop_signal = signal; }

absl::Status RunWorker(const CheckClientOptions& options, const Workload& workload,
                       double seconds) {
  signal(SIGTERM, OnSignal);
  auto opened = CheckClient::Open(options, &workload);
  if (!opened.ok()) return opened.status();
  CheckClient& c = **opened;
  const uint64_t before = c.journal().last_step();
  absl::Status status = c.Resolve();
  if (!status.ok()) return status;
  const int64_t end_ns =
      seconds > 0 ? Clock::Real()->NowNs() + static_cast<int64_t>(seconds * 1e9) : INT64_MAX;
  status = c.Work([end_ns] { return stop_signal != 0 || Clock::Real()->NowNs() >= end_ns; });
  if (status.ok()) {
    std::printf("client %u: steps %llu to %llu applied\n", options.client,
                static_cast<unsigned long long>(before) + 1,
                static_cast<unsigned long long>(c.journal().last_step()));
  }
  return status;
}

struct Arguments {
  WorkloadOptions workload;
  std::string tables = "log,log-hashed";
  std::string coordinator;
  CheckClientOptions client;
  double seconds = 0;
  int64_t slow_ms = 0;
};

void AddWorkload(CLI::App* mode, Arguments* a) {
  WorkloadOptions* const o = &a->workload;
  mode->add_option("--coordinator", a->coordinator, "HOST:PORT of the coordinator")->required();
  mode->add_option("--clients", o->clients)->check(CLI::Range(1, 1024));
  mode->add_option("--rows", o->rows, "rows of each table, even")->check(CLI::Range(64, 1 << 30));
  mode->add_option("--dim", o->dim, "columns of a row")->check(CLI::Range(4, 8192));
  mode->add_option("--ids", o->ids_per_push, "ids a push and table")->check(CLI::Range(1, 65536));
  mode->add_option("--transfers", o->transfers_per_push, "transfers a push and table")
      ->check(CLI::Range(0, 1024));
  mode->add_option("--tables", a->tables, "kinds: log, r2, r3, dp, each also with -hashed");
  mode->add_option("--seed", o->seed);
}

// Prints the error.
bool Check(Arguments* a) {
  auto kinds = ParseTableKinds(a->tables);
  if (!kinds.ok()) {
    std::fprintf(stderr, "%s\n", std::string(kinds.status().message()).c_str());
    return false;
  }
  a->workload.tables = *std::move(kinds);
  if (a->workload.dim < kColumns * a->workload.clients || a->client.client >= a->workload.clients ||
      a->workload.rows % 2 != 0) {
    std::fprintf(stderr,
                 "--dim must be at least %u x --clients, --client below --clients, --rows even\n",
                 kColumns);
    return false;
  }
  a->client.target = absl::StrCat("hotbed://", a->coordinator);
  a->client.slow_after = absl::Milliseconds(a->slow_ms);
  return true;
}

int Main(int argc, char** argv) {
  CLI::App app("Conserved-sum checker: pushes integers, survives kills, compares every weight.");
  app.require_subcommand(1);
  Arguments a;
  CLI::App* const create = app.add_subcommand("create", "create the tables");
  CLI::App* const worker = app.add_subcommand("worker", "push as one client until killed");
  CLI::App* const verify = app.add_subcommand("verify", "resolve what is open and compare");
  CLI::App* const replicas = app.add_subcommand(
      "verify-replicas", "compare replicated tables again, after a server was taken away");
  for (CLI::App* mode : {create, worker, verify, replicas}) AddWorkload(mode, &a);
  for (CLI::App* mode : {worker, verify, replicas}) {
    mode->add_option("--journal-dir", a.client.journal_dir)
        ->required()
        ->check(CLI::ExistingDirectory);
  }
  worker->add_option("--client", a.client.client, "number of this client, from 0")->required();
  worker->add_option("--flights", a.client.flights_max, "steps in flight")
      ->check(CLI::Range(1, 64));
  worker->add_option("--seconds", a.seconds, "0: until killed");
  worker
      ->add_option("--slow-ms", a.slow_ms,
                   "calls that take longer are told of in client-N.slow; 0: none")
      ->check(CLI::Range(0, 3600000));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  if (!Check(&a)) return 2;
  const Workload workload(a.workload);
  const auto print = [](const std::string& line) { std::printf("%s\n", line.c_str()); };
  if (create->parsed()) return Report(CreateTables(a.client.target, workload));
  if (worker->parsed()) return Report(RunWorker(a.client, workload, a.seconds));
  return Report(verify->parsed()
                    ? Verify(a.client.target, a.client.journal_dir, workload, print)
                    : VerifyReplicas(a.client.target, a.client.journal_dir, workload, print));
}

}  // namespace
}  // namespace hotbed::checker

int main(int argc, char** argv) { return hotbed::checker::Main(argc, argv); }
