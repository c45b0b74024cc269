// hotbed-kill-checker: the conserved-sum checker as a program (tests/fault/kill_test.py kills it,
// too).
//
//   hotbed-kill-checker create --coordinator HOST:PORT
//   hotbed-kill-checker worker --coordinator HOST:PORT --journal-dir D --client N [--seconds S]
//   hotbed-kill-checker verify --coordinator HOST:PORT --journal-dir D
//
// All modes of one run get the same --clients, --rows, --dim, --ids and --seed. Exit status: 0
// exact (or done), 1 a difference was found, 2 bad usage, 3 the check could not be made.
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

absl::Status RunWorker(const std::string& target, const std::string& journal_dir,
                       const Workload& workload, uint32_t client, double seconds) {
  auto opened = CheckClient::Open(target, journal_dir, &workload, client);
  if (!opened.ok()) return opened.status();
  CheckClient& c = **opened;
  const uint64_t before = c.journal().last_step();
  absl::Status status = c.Resolve();
  if (!status.ok()) return status;
  const int64_t end_ns =
      seconds > 0 ? Clock::Real()->NowNs() + static_cast<int64_t>(seconds * 1e9) : INT64_MAX;
  status = c.Work([end_ns] { return Clock::Real()->NowNs() >= end_ns; });
  if (status.ok()) {
    std::printf("client %u: steps %llu to %llu applied\n", client,
                static_cast<unsigned long long>(before + 1),
                static_cast<unsigned long long>(c.journal().last_step()));
  }
  return status;
}

int Main(int argc, char** argv) {
  CLI::App app("Conserved-sum checker: pushes integers, survives kills, compares every weight.");
  app.require_subcommand(1);
  WorkloadOptions options;
  std::string coordinator;
  std::string journal_dir;
  uint32_t client = 0;
  double seconds = 0;
  CLI::App* const create = app.add_subcommand("create", "create the tables");
  CLI::App* const worker = app.add_subcommand("worker", "push as one client until killed");
  CLI::App* const verify = app.add_subcommand("verify", "resolve what is open and compare");
  for (CLI::App* mode : {create, worker, verify}) {
    mode->add_option("--coordinator", coordinator, "HOST:PORT of the coordinator")->required();
    mode->add_option("--clients", options.clients)->check(CLI::Range(1, 2048));
    mode->add_option("--rows", options.rows, "rows of each table")->check(CLI::Range(64, 1 << 30));
    mode->add_option("--dim", options.dim, "columns of a row")->check(CLI::Range(4, 8192));
    mode->add_option("--ids", options.ids_per_push, "ids a push and table")
        ->check(CLI::Range(1, 65536));
    mode->add_option("--seed", options.seed);
  }
  for (CLI::App* mode : {worker, verify}) {
    mode->add_option("--journal-dir", journal_dir)->required()->check(CLI::ExistingDirectory);
  }
  worker->add_option("--client", client, "number of this client, from 0")->required();
  worker->add_option("--seconds", seconds, "0: until killed");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  if (options.dim < kColumns * options.clients || (client >= options.clients)) {
    std::fprintf(stderr, "--dim must be at least %u x --clients, --client below --clients\n",
                 kColumns);
    return 2;
  }
  const Workload workload(options);
  const std::string target = absl::StrCat("hotbed://", coordinator);
  if (create->parsed()) return Report(CreateTables(target, workload));
  if (worker->parsed()) return Report(RunWorker(target, journal_dir, workload, client, seconds));
  return Report(Verify(target, journal_dir, workload,
                       [](const std::string& line) { std::printf("%s\n", line.c_str()); }));
}

}  // namespace
}  // namespace hotbed::checker

int main(int argc, char** argv) { return hotbed::checker::Main(argc, argv); }
