#include "cli/cluster/local_cluster.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cli/cluster/http_get.h"
#include "common/status_macros.h"
#include "config/units.h"
#include "nlohmann/json.hpp"

namespace hotbed {
namespace {

constexpr int kFormat = 1;
constexpr int64_t kQuickDeathNs = 10'000'000'000;
constexpr int64_t kBackoffFirstNs = 250'000'000;
constexpr int64_t kBackoffLastNs = 8'000'000'000;
constexpr int kStartAttempts = 3;
constexpr uint64_t kLogBytesMax = 64 << 20;  // of the log of an earlier run that is kept
constexpr int kUsageExit = 2;  // exit code of a daemon with wrong flags or a wrong data directory

// A listening socket on loopback; port 0 takes a free one. Nothing is accepted from it.
class PortProbe {
 public:
  explicit PortProbe(int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(static_cast<uint16_t>(port));
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    free_ = bind(fd_, reinterpret_cast<sockaddr*>(&at), sizeof(at)) == 0 && listen(fd_, 1) == 0;
    socklen_t size = sizeof(at);
    getsockname(fd_, reinterpret_cast<sockaddr*>(&at), &size);
    port_ = ntohs(at.sin_port);
  }
  ~PortProbe() { close(fd_); }
  PortProbe(const PortProbe&) = delete;
  bool free() const { return free_; }
  int port() const { return port_; }

 private:
  const int fd_;
  bool free_ = false;
  int port_ = 0;
};

// All are held at the same time, so that no two are equal.
std::vector<int> FreePorts(size_t count) {
  std::vector<std::unique_ptr<PortProbe>> probes;
  std::vector<int> ports;
  for (size_t i = 0; i < count; ++i) {
    probes.push_back(std::make_unique<PortProbe>(0));
    ports.push_back(probes.back()->port());
  }
  return ports;
}

std::string Loopback(int port) { return absl::StrCat("127.0.0.1:", port); }

int PortOf(const std::string& address) {
  int port = 0;
  return absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port) ? port : 0;
}

absl::Status LastWords(const LocalCluster::Process& process, absl::string_view what) {
  return absl::UnavailableError(absl::StrCat(process.name, " ", what, ". Its log ",
                                             process.log_path, " ends with:\n",
                                             LastLines(process.log_path, 5)));
}

}  // namespace

LocalCluster::LocalCluster(LocalClusterOptions options, const Clock* clock)
    : options_(std::move(options)), clock_(clock) {}

LocalCluster::~LocalCluster() {
  const absl::Status stopped = Stop();
  if (!stopped.ok()) Say(std::string(stopped.message()));
}

absl::StatusOr<std::unique_ptr<LocalCluster>> LocalCluster::Start(
    const LocalClusterOptions& options, const Clock* clock) {
  std::unique_ptr<LocalCluster> cluster(new LocalCluster(options, clock));
  if (cluster->options_.program_dir.empty()) cluster->options_.program_dir = OwnDirectory();
  HOTBED_RETURN_IF_ERROR(cluster->LoadOrCreate());
  for (const Process& process : cluster->processes_) {
    HOTBED_RETURN_IF_ERROR(CheckPortsFree(process));
  }
  for (Process& process : cluster->processes_) HOTBED_RETURN_IF_ERROR(cluster->Spawn(&process));
  return cluster;
}

absl::StatusOr<std::vector<int>> LocalCluster::LoadPorts() {
  FileSystem* files = FileSystem::Real();
  const std::string path = absl::StrCat(options_.data_dir, "/cluster.json");
  if (!files->Exists(path)) return std::vector<int>();
  HOTBED_ASSIGN_OR_RETURN(const std::string text, files->ReadAll(path));
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  const auto format = json.is_object() ? json.value("format", 0) : 0;
  if (format != kFormat) {
    return absl::FailedPreconditionError(absl::StrCat(path, " has format ", format,
                                                      "; this program knows ", kFormat,
                                                      ": use the version that wrote it"));
  }
  return json.value("ports", std::vector<int>());
}

absl::Status LocalCluster::LoadOrCreate() {
  FileSystem* files = FileSystem::Real();
  const std::string& dir = options_.data_dir;
  HOTBED_RETURN_IF_ERROR(files->MakeDir(absl::StrCat(dir, "/logs")));
  absl::StatusOr<std::unique_ptr<WritableFile>> lock = files->Lock(absl::StrCat(dir, "/lock"));
  if (!lock.ok()) {
    return absl::Status(lock.status().code(),
                        absl::StrCat("data directory ", dir,
                                     " is in use or cannot be locked: ", lock.status().message()));
  }
  lock_ = std::move(*lock);
  HOTBED_ASSIGN_OR_RETURN(ports_, LoadPorts());
  const int stored = ports_.empty() ? 0 : static_cast<int>(ports_.size() / 2) - 1;
  const int servers = options_.servers != 0 ? options_.servers : std::max(stored, 1);
  if (servers < stored) {
    return absl::FailedPreconditionError(absl::StrCat(
        "data directory ", dir, " holds ", stored, " servers, --servers says ", servers,
        ": their rows would be gone. Use --servers ", stored, " or another --data-dir"));
  }
  HOTBED_RETURN_IF_ERROR(AddPorts(static_cast<size_t>(servers) + 1));
  for (size_t i = 0; i <= static_cast<size_t>(servers); ++i) processes_.push_back(Describe(i));
  return Store();
}

absl::Status LocalCluster::AddPorts(size_t processes) {
  const size_t needed = 2 * processes;
  const std::vector<int> free_ports =
      options_.port == 0 ? FreePorts(needed - ports_.size()) : std::vector<int>();
  const int base = ports_.empty() ? options_.port : ports_[0];
  while (ports_.size() < needed) {
    const size_t i = ports_.size();
    ports_.push_back(options_.port == 0 ? free_ports[free_ports.size() - (needed - i)]
                                        : base + static_cast<int>(i));
  }
  if (*std::max_element(ports_.begin(), ports_.end()) <= 65535) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--port ", options_.port, " leaves no room below 65535 for ", needed, " ports"));
}

absl::Status LocalCluster::Store() {
  nlohmann::ordered_json json = {{"format", kFormat}, {"ports", ports_}};
  for (const Process& process : processes_) {
    json["processes"].push_back({{"name", process.name},
                                 {"address", process.address},
                                 {"admin_address", process.admin_address}});
  }
  return FileSystem::Real()->WriteAtomically(absl::StrCat(options_.data_dir, "/cluster.json"),
                                             json.dump(2) + "\n");
}

LocalCluster::Process LocalCluster::Describe(size_t server) const {
  Process process;
  const bool coordinator = server == 0;
  process.name = coordinator ? "coordinator" : absl::StrCat("s", server - 1);
  process.address = Loopback(ports_[2 * server]);
  process.admin_address = Loopback(ports_[2 * server + 1]);
  process.log_path = absl::StrCat(options_.data_dir, "/logs/", process.name, ".log");
  process.argv = {
      absl::StrCat(options_.program_dir, coordinator ? "/hotbed-coordinator" : "/hotbed-server"),
      absl::StrCat("--listen=", process.address),
      absl::StrCat("--admin-listen=", process.admin_address),
      absl::StrCat("--data-dir=", options_.data_dir, "/", process.name)};
  process.argv.insert(process.argv.end(), options_.flags.begin(), options_.flags.end());
  if (coordinator) return process;
  const std::string domain =
      options_.failure_domains == 0
          ? process.name
          : absl::StrCat("d", (server - 1) % static_cast<size_t>(options_.failure_domains));
  for (const std::string& flag :
       {absl::StrCat("--name=", process.name), absl::StrCat("--coordinator=", Loopback(ports_[0])),
        absl::StrCat("--host-bytes=", ExactBytes(options_.host_bytes)),
        absl::StrCat("--failure-domain=", domain),
        absl::StrCat("--log-sync-interval-ms=", options_.log_sync_interval_ms),
        absl::StrCat("--drain-ms-max=", absl::ToInt64Milliseconds(kLocalDrainMax))}) {
    process.argv.push_back(flag);
  }
  process.argv.insert(process.argv.end(), options_.server_flags.begin(),
                      options_.server_flags.end());
  return process;
}

absl::Status LocalCluster::CheckPortsFree(const Process& process) {
  for (const std::string& address : {process.address, process.admin_address}) {
    if (PortProbe(PortOf(address)).free()) continue;
    return absl::UnavailableError(
        absl::StrCat(address, " (", process.name,
                     ") is in use by another process: stop it, or choose another --port "
                     "(0: free ones) with a new --data-dir"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> LocalCluster::AddServer() {
  const size_t servers = processes_.size() - 1;
  if (servers >= static_cast<size_t>(kLocalServersMax)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("there are ", servers, " servers, ", kLocalServersMax, " are the most here"));
  }
  const std::vector<int> before = ports_;
  absl::Status added = AddPorts(processes_.size() + 1);
  if (added.ok()) added = CheckPortsFree(Describe(processes_.size()));
  if (!added.ok()) {
    ports_ = before;
    return added;
  }
  processes_.push_back(Describe(processes_.size()));
  Process& process = processes_.back();
  HOTBED_RETURN_IF_ERROR(Store());
  HOTBED_RETURN_IF_ERROR(Spawn(&process));
  Say(absl::StrCat(process.name, " added, pid ", process.child->pid()));
  return process.name;
}

absl::StatusOr<std::vector<LocalCluster::Process*>> LocalCluster::Find(const std::string& name) {
  std::vector<Process*> meant;
  std::string known;
  for (Process& process : processes_) {
    const bool server = &process != &processes_[0];
    if (process.name == name || (name == "all" && server)) meant.push_back(&process);
    absl::StrAppend(&known, ", ", process.name);
  }
  if (!meant.empty()) return meant;
  return absl::NotFoundError(absl::StrCat("no process '", name, "'; there are: all", known));
}

absl::Status LocalCluster::KillForGood(const std::string& name) {
  HOTBED_ASSIGN_OR_RETURN(const std::vector<Process*> meant, Find(name));
  for (Process* process : meant) {
    process->given_up = true;
    process->child.reset();  // SIGKILL
  }
  return absl::OkStatus();
}

absl::Status LocalCluster::Spawn(Process* process) {
  FileSystem* files = FileSystem::Real();
  const absl::StatusOr<uint64_t> log_bytes = files->FileSize(process->log_path);
  if (log_bytes.ok() && *log_bytes > kLogBytesMax) {
    HOTBED_RETURN_IF_ERROR(files->Delete(process->log_path));
  }
  HOTBED_ASSIGN_OR_RETURN(process->child, ChildProcess::Spawn(process->argv, process->log_path));
  process->started_ns = clock_->NowNs();
  return absl::OkStatus();
}

absl::Status LocalCluster::WaitReady(absl::Duration timeout) {
  const int64_t limit_ns = clock_->NowNs() + absl::ToInt64Nanoseconds(timeout);
  for (const Process& process : processes_) {
    while (!process.given_up) {
      for (const Process& each : processes_) {
        if (each.child != nullptr && !each.child->Running() &&
            each.child->exit_code() == kUsageExit) {
          return LastWords(each, absl::StrCat("refused to start (", each.child->exit_text(), ")"));
        }
        if (each.quick_deaths >= kStartAttempts) {
          return LastWords(each, absl::StrCat("died ", each.quick_deaths, " times"));
        }
      }
      if (options_.cancelled && options_.cancelled()) return absl::CancelledError("interrupted");
      Tick();
      const absl::Status ready = GetReady(process.admin_address);
      if (ready.ok()) break;
      if (clock_->NowNs() > limit_ns) {
        return LastWords(process, absl::StrCat("is not ready after ", absl::FormatDuration(timeout),
                                               ": ", ready.message()));
      }
      clock_->SleepNs(20'000'000);
    }
  }
  return absl::OkStatus();
}

void LocalCluster::Tick() {
  const int64_t now = clock_->NowNs();
  for (Process& process : processes_) {
    if (process.given_up) continue;
    if (process.child != nullptr) {
      if (process.child->Running()) continue;
      const bool quick = now - process.started_ns < kQuickDeathNs;
      process.quick_deaths = quick ? process.quick_deaths + 1 : 0;
      const int doublings = std::clamp(process.quick_deaths - 1, 0, 5);
      const int64_t wait_ns = std::min(kBackoffFirstNs << doublings, kBackoffLastNs);
      process.restart_at_ns = now + wait_ns;
      Say(absl::StrCat(process.name, " ended: ", process.child->exit_text(),
                       "; starting it again in ", absl::FormatDuration(absl::Nanoseconds(wait_ns)),
                       " (log: ", process.log_path, ")"));
      process.child.reset();
      continue;
    }
    if (now < process.restart_at_ns) continue;
    const absl::Status spawned = Spawn(&process);
    if (!spawned.ok()) {
      process.restart_at_ns = now + kBackoffLastNs;
      Say(absl::StrCat(process.name, " cannot be started: ", spawned.message()));
      continue;
    }
    ++process.restarts;
    Say(absl::StrCat(process.name, " started again, pid ", process.child->pid()));
  }
}

absl::Status LocalCluster::Restart(const std::string& name, int signal) {
  HOTBED_ASSIGN_OR_RETURN(const std::vector<Process*> meant, Find(name));
  for (Process* process : meant) {
    if (process->child != nullptr) process->child->Signal(signal);
  }
  for (Process* process : meant) {
    if (process->child != nullptr && !process->child->WaitFor(kLocalStopMax)) {
      return absl::DeadlineExceededError(
          absl::StrCat(process->name, " did not end within ", absl::FormatDuration(kLocalStopMax)));
    }
    process->child.reset();
    process->given_up = false;
    HOTBED_RETURN_IF_ERROR(Spawn(process));
  }
  return absl::OkStatus();
}

absl::Status LocalCluster::Stop(absl::Duration timeout) {
  std::string killed;
  const auto stop = [&](size_t first, size_t last) {
    const absl::Time limit = absl::Now() + timeout;
    for (size_t i = first; i < last; ++i) {
      if (processes_[i].child != nullptr && processes_[i].child->Running()) {
        processes_[i].child->Signal(SIGTERM);
      }
    }
    for (size_t i = first; i < last; ++i) {
      std::unique_ptr<ChildProcess>& child = processes_[i].child;
      if (child != nullptr &&
          !child->WaitFor(std::max(limit - absl::Now(), absl::Milliseconds(100)))) {
        absl::StrAppend(&killed, killed.empty() ? "" : ", ", processes_[i].name);
      }
      child.reset();  // kills the process if it still runs
    }
  };
  if (!processes_.empty()) {
    stop(0, 1);
    stop(1, processes_.size());
  }
  lock_.reset();
  if (killed.empty()) return absl::OkStatus();
  return absl::DeadlineExceededError(absl::StrCat(
      "did not stop within ", absl::FormatDuration(timeout), " and was killed: ", killed));
}

void LocalCluster::Say(const std::string& text) const {
  if (options_.say) options_.say(text);
}

}  // namespace hotbed
