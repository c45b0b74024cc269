// hotbed-parity: runs a training case through the public client and writes what came out. See
// --help and docs/parity.md.
//
// Exit codes: 0 everything went as the case says, expected errors included; 1 it did not (the error
// is on stderr and in result.json); 2 wrong flags or a case that cannot be read.
#include <stdlib.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "cli/cluster/local_cluster.h"
#include "common/process_tuning.h"
#include "common/status_macros.h"
#include "config/units.h"
#include "tests/parity/case_run.h"

namespace hotbed::parity {
namespace {

constexpr char kAbout[] =
    "Runs one training case - tables, features, batches, output gradients - through Hotbed's\n"
    "client and writes outputs, gradients and weights, for comparison with another program.\n"
    "\n"
    "  {\"tables\": [{\"name\": \"t\", \"rows\": 10, \"dim\": 4, \"optimizer\": \"sgd\", \"lr\": "
    "0.5}],\n"
    "   \"features\": [{\"feature\": \"f\", \"table\": \"t\", \"pooling\": \"mean\"}],\n"
    "   \"steps\": [{\"batch\": {\"keys\": [\"f\"], \"lengths\": [2, 0], \"ids\": [1, 3]},\n"
    "              \"gradients\": {\"loss\": \"sum\"}}],\n"
    "   \"weights\": [\"t\"]}\n"
    "\n"
    "Every key is described in docs/parity.md.";
constexpr char kExits[] =
    "Exit codes: 0 all went as the case says (errors that it expects too), 1 it did not,\n"
    "2 wrong flags or a case that cannot be read.";

struct Flags {
  std::string case_path;
  std::string coordinator;
  int servers = 1;
  std::string host_bytes = "256MiB";
  std::vector<std::string> server_flags;
  std::string data_dir;
  std::string out;
  bool inlined = false;
  std::string pooling_at;
  uint64_t message_bytes_max = 0;
  RunOptions run;
};

absl::StatusOr<std::string> ReadInput(const std::string& path) {
  if (path == "-") {
    return std::string(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
  }
  return FileSystem::Real()->ReadAll(std::filesystem::absolute(path).string());
}

// A directory that goes when the program ends, unless it was named by the user.
class DataDir {
 public:
  explicit DataDir(const std::string& named) : path_(named), named_(!named.empty()) {
    if (named_) {
      path_ = std::filesystem::absolute(named).lexically_normal().string();
      return;
    }
    std::string pattern =
        (std::filesystem::temp_directory_path() / "hotbed-parity-XXXXXX").string();
    if (mkdtemp(pattern.data()) != nullptr) path_ = pattern;
  }
  ~DataDir() {
    std::error_code ignored;
    if (!named_ && !path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  DataDir(const DataDir&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  const bool named_;
};

absl::StatusOr<std::unique_ptr<LocalCluster>> StartCluster(const Flags& flags,
                                                           const std::string& dir) {
  LocalClusterOptions options;
  options.data_dir = dir;
  options.servers = flags.servers;
  options.port = 0;
  HOTBED_ASSIGN_OR_RETURN(options.host_bytes, ParseBytes(flags.host_bytes));
  options.server_flags = flags.server_flags;
  options.say = [](const std::string& text) {
    std::fprintf(stderr, "hotbed-parity: %s\n", text.c_str());
  };
  HOTBED_ASSIGN_OR_RETURN(std::unique_ptr<LocalCluster> cluster,
                          LocalCluster::Start(options, Clock::Real()));
  HOTBED_RETURN_IF_ERROR(cluster->WaitReady(absl::Seconds(60)));
  return cluster;
}

int Fail(int code, absl::string_view what) {
  std::fprintf(stderr, "hotbed-parity: %s\n", std::string(what).c_str());
  return code;
}

int Run(Flags flags) {
  const absl::StatusOr<std::string> text = ReadInput(flags.case_path);
  if (!text.ok()) return Fail(2, absl::StrCat("cannot read the case: ", text.status().message()));
  const std::string case_dir =
      flags.case_path == "-" ? std::filesystem::current_path().string()
                             : std::filesystem::absolute(flags.case_path).parent_path().string();
  absl::Status tables_status;
  absl::StatusOr<ParityCase> input = ReadCase(*text, case_dir, &tables_status);
  if (!input.ok()) return Fail(2, absl::StrCat("the case: ", input.status().message()));
  if (!flags.pooling_at.empty()) {
    const auto& words = kPoolingPlaceWords;
    input->options.pooling_at = static_cast<PoolingPlace>(
        std::find(words.begin(), words.end(), flags.pooling_at) - words.begin());
  }
  if (flags.message_bytes_max > 0) input->options.message_bytes_max = flags.message_bytes_max;
  if (!flags.out.empty()) {
    flags.out = std::filesystem::absolute(flags.out).string();
    const absl::Status made = FileSystem::Real()->MakeDir(flags.out);
    if (!made.ok()) return Fail(2, absl::StrCat("--out ", flags.out, ": ", made.message()));
  }
  const DataDir data_dir(flags.coordinator.empty() ? flags.data_dir : std::string("."));
  std::unique_ptr<LocalCluster> cluster;
  if (flags.coordinator.empty()) {
    auto started = StartCluster(flags, data_dir.path());
    if (!started.ok()) return Fail(1, started.status().message());
    cluster = *std::move(started);
    flags.run.cluster = cluster.get();
    flags.run.coordinator = cluster->coordinator_address();
  } else {
    flags.run.coordinator = std::string(absl::StripPrefix(flags.coordinator, "hotbed://"));
  }
  CaseResult result(flags.out, flags.inlined);
  absl::Status status;
  {
    CaseRun run(&*input, &flags.run, &result);
    status = run.Run(tables_status);
    result.WriteJson(run.json());
    if (flags.out.empty()) std::cout << run.json().dump(1) << std::endl;
  }
  if (status.ok()) status = result.status();
  return status.ok() ? 0 : Fail(1, status.message());
}

int Main(int argc, char** argv) {
  CLI::App app(kAbout, "hotbed-parity");
  app.footer(kExits);
  Flags flags;
  app.add_option("CASE", flags.case_path, "The case, a JSON file; - is stdin")->required();
  CLI::Option* coordinator =
      app.add_option("--coordinator", flags.coordinator,
                     "HOST:PORT of a running cluster; without it, one is started for this case");
  const auto own = [coordinator](CLI::Option* option) { option->excludes(coordinator); };
  own(app.add_option("--servers", flags.servers, "Shard servers of the cluster started here")
          ->check(CLI::Range(1, kLocalServersMax))
          ->capture_default_str());
  own(app.add_option("--host-bytes", flags.host_bytes,
                     "Memory of each of them; small: rows live in the spill tier")
          ->check([](const std::string& bytes) {
            return std::string(ParseBytes(bytes).status().message());
          })
          ->capture_default_str());
  own(app.add_option("--server-flag", flags.server_flags,
                     "One more flag of each of them, as in --server-flag=--log-bytes-max=16MiB")
          ->allow_extra_args(false));
  own(app.add_option("--data-dir", flags.data_dir,
                     "Where they keep their data; without it, it goes when the case is done"));
  app.add_option("--shards", flags.run.shards,
                 "At least this many shards for every table, instead of what the case says");
  app.add_option("--column-slices", flags.run.column_slices,
                 "Column slices of every table, instead of what the case says");
  app.add_option("--pooling-at", flags.pooling_at, "Instead of the case's options.pooling_at")
      ->check(CLI::IsMember(kPoolingPlaceWords));
  app.add_option("--message-bytes-max", flags.message_bytes_max,
                 "Instead of the case's options.message_bytes_max, bytes");
  app.add_option("--out", flags.out,
                 "Directory for result.json and the arrays (.npy); without it, the result is "
                 "printed with all arrays inline");
  app.add_flag("--inline", flags.inlined, "Arrays inline in result.json too");
  app.add_flag("--keep", flags.run.keep, "Leave the tables where they are, for a case to go on");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  return Run(std::move(flags));
}

}  // namespace
}  // namespace hotbed::parity

int main(int argc, char** argv) {
  hotbed::TuneDataPlaneProcess();
  signal(SIGPIPE, SIG_IGN);
  return hotbed::parity::Main(argc, argv);
}
