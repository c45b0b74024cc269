#include "cli/cluster/local_cluster.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/cluster/http_get.h"
#include "common/clock.h"
#include "common/random.h"
#include "common/status_macros.h"
#include "config/units.h"
#include "nlohmann/json.hpp"

namespace hotbed {
namespace {

constexpr int kFormat = 1;
constexpr int kFormatOfEtcd = 2;  // with the numbers of coordinators and of etcd's members
constexpr int64_t kQuickDeathNs = 10'000'000'000;
constexpr int64_t kBackoffFirstNs = 250'000'000;
constexpr int64_t kBackoffLastNs = 8'000'000'000;
constexpr int kStartAttempts = 3;
constexpr uint64_t kLogBytesMax = 64 << 20;  // of the log of an earlier run that is kept
constexpr int kFreePortMin = 10240;
constexpr size_t kFreePortTries = 1000;  // then any port will do
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

// From this port on the system gives ports to connections: one that is free now may be taken a
// moment later, and a process that is started again would not get it back.
int FirstPortOfConnections() {
  int first = 32768;  // Linux's default
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first;
  return first;
}

// All are held at the same time, so that no two are equal.
std::vector<int> FreePorts(size_t count) {
  const int range = FirstPortOfConnections() - kFreePortMin;
  Random random(static_cast<uint64_t>(Clock::Real()->NowNs()) ^ static_cast<uint64_t>(getpid()));
  std::vector<std::unique_ptr<PortProbe>> probes;
  std::vector<int> ports;
  for (size_t tries = 0; ports.size() < count; ++tries) {
    const bool any = range <= 0 || tries > kFreePortTries;
    const int at = any ? 0 : static_cast<int>(random.Uniform(static_cast<uint64_t>(range)));
    auto probe = std::make_unique<PortProbe>(any ? 0 : kFreePortMin + at);
    if (!any && !probe->free()) continue;
    ports.push_back(probe->port());
    probes.push_back(std::move(probe));
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

absl::StatusOr<LocalCluster::Stored> LocalCluster::Load() const {
  FileSystem* files = FileSystem::Real();
  const std::string path = absl::StrCat(options_.data_dir, "/cluster.json");
  if (!files->Exists(path)) return Stored();
  HOTBED_ASSIGN_OR_RETURN(const std::string text, files->ReadAll(path));
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  const auto format = json.is_object() ? json.value("format", 0) : 0;
  if (format != kFormat && format != kFormatOfEtcd) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " has format ", format, "; this program knows ", kFormat, " and ",
                     kFormatOfEtcd, ": use the version that wrote it"));
  }
  Stored stored;
  stored.ports = json.value("ports", std::vector<int>());
  stored.coordinators = json.value("coordinators", 1);
  stored.etcd = json.value("etcd", 0);
  const size_t least = 2 * static_cast<size_t>(std::max(stored.coordinators + stored.etcd, 1));
  if (stored.coordinators < 1 || stored.coordinators > kLocalCoordinatorsMax || stored.etcd < 0 ||
      stored.etcd > kLocalEtcdMax || stored.ports.size() < least) {
    return absl::DataLossError(absl::StrCat(path, " is damaged: it names ", stored.ports.size(),
                                            " ports, ", stored.coordinators, " coordinators and ",
                                            stored.etcd, " members of etcd"));
  }
  return stored;
}

// Takes over the stored numbers where the caller names none.
absl::Status LocalCluster::TakeNumbers(const Stored& stored) {
  const bool is_new = stored.ports.empty();
  if (options_.coordinators < 0) options_.coordinators = is_new ? 1 : stored.coordinators;
  if (options_.etcd < 0) options_.etcd = is_new ? 0 : stored.etcd;
  if (!is_new && (options_.coordinators != stored.coordinators || options_.etcd != stored.etcd)) {
    return absl::FailedPreconditionError(
        absl::StrCat("data directory ", options_.data_dir, " holds a cluster with --coordinators ",
                     stored.coordinators, " --etcd ", stored.etcd,
                     ", asked for are --coordinators ", options_.coordinators, " --etcd ",
                     options_.etcd, ": leave the two out, or use another --data-dir"));
  }
  if (options_.coordinators > 1 && options_.etcd == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--coordinators ", options_.coordinators,
                     " needs --etcd: several coordinators have their metadata in one etcd"));
  }
  if (options_.etcd == 0) return absl::OkStatus();
  etcd_program_ = FindProgram("etcd");
  if (!etcd_program_.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "--etcd: there is no program etcd in PATH. Install it: on Debian and Ubuntu the package "
      "etcd-server");
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
  HOTBED_ASSIGN_OR_RETURN(const Stored before, Load());
  HOTBED_RETURN_IF_ERROR(TakeNumbers(before));
  ports_ = before.ports;
  const int stored = ports_.empty() ? 0 : static_cast<int>(ports_.size() / 2 - first_server());
  const int servers = options_.servers != 0 ? options_.servers : std::max(stored, 1);
  if (servers < stored) {
    return absl::FailedPreconditionError(absl::StrCat(
        "data directory ", dir, " holds ", stored, " servers, --servers says ", servers,
        ": their rows would be gone. Use --servers ", stored, " or another --data-dir"));
  }
  const size_t processes = first_server() + static_cast<size_t>(servers);
  HOTBED_RETURN_IF_ERROR(AddPorts(processes));
  for (size_t i = 0; i < processes; ++i) processes_.push_back(Describe(i));
  const std::vector<int> free_ports = FreePorts(3 * serving());
  for (int i = 0; i < options_.serving; ++i) {
    processes_.push_back(DescribeServing(i, free_ports.data() + 3 * static_cast<size_t>(i)));
  }
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
  // Programs that know one coordinator only refuse the other format.
  nlohmann::ordered_json json = {{"format", options_.etcd > 0 ? kFormatOfEtcd : kFormat},
                                 {"ports", ports_}};
  if (options_.etcd > 0) {
    json["coordinators"] = options_.coordinators;
    json["etcd"] = options_.etcd;
  }
  for (const Process& process : processes_) {
    json["processes"].push_back({{"name", process.name},
                                 {"address", process.address},
                                 {"admin_address", process.admin_address}});
  }
  return FileSystem::Real()->WriteAtomically(absl::StrCat(options_.data_dir, "/cluster.json"),
                                             json.dump(2) + "\n");
}

std::string LocalCluster::AddressesOf(Kind kind, absl::string_view separator) const {
  const size_t first = kind == Kind::kCoordinator ? 0 : static_cast<size_t>(options_.coordinators);
  const size_t count =
      static_cast<size_t>(kind == Kind::kCoordinator ? options_.coordinators : options_.etcd);
  std::vector<std::string> addresses;
  for (size_t i = first; i < first + count; ++i) addresses.push_back(Loopback(ports_[2 * i]));
  return absl::StrJoin(addresses, separator);
}

std::string LocalCluster::coordinator_address() const {
  return AddressesOf(Kind::kCoordinator, ",");
}

const LocalCluster::Process& LocalCluster::leader() const {
  for (const Process& process : processes_) {
    if (process.kind != Kind::kCoordinator) continue;
    // One that stands by has no console.
    const auto console = HttpGet(process.admin_address, "/console", absl::Seconds(1));
    if (console.ok() && console->code == 200) return process;
  }
  return processes_[0];
}

std::vector<std::string> LocalCluster::EtcdFlags(const Process& process) const {
  std::vector<std::string> peers;
  for (size_t i = 0; i < static_cast<size_t>(options_.etcd); ++i) {
    const size_t port = 2 * (static_cast<size_t>(options_.coordinators) + i) + 1;
    peers.push_back(absl::StrCat("e", i, "=http://", Loopback(ports_[port])));
  }
  return {absl::StrCat("--name=", process.name),
          absl::StrCat("--data-dir=", options_.data_dir, "/", process.name),
          absl::StrCat("--listen-client-urls=http://", process.address),
          absl::StrCat("--advertise-client-urls=http://", process.address),
          absl::StrCat("--listen-peer-urls=http://", process.admin_address),
          absl::StrCat("--initial-advertise-peer-urls=http://", process.admin_address),
          absl::StrCat("--initial-cluster=", absl::StrJoin(peers, ",")),
          "--auto-compaction-mode=revision",
          "--auto-compaction-retention=10000",
          "--logger=zap",
          "--log-level=warn"};
}

std::string LocalCluster::DomainFlag(const Process& process, size_t number) const {
  if (options_.failure_domains == 0) return absl::StrCat("--failure-domain=", process.name);
  return absl::StrCat("--failure-domain=d", number % static_cast<size_t>(options_.failure_domains));
}

std::vector<std::string> LocalCluster::ServerFlags(const Process& process, size_t server) const {
  std::vector<std::string> flags = {
      absl::StrCat("--name=", process.name),
      absl::StrCat("--coordinator=", coordinator_address()),
      absl::StrCat("--host-bytes=", ExactBytes(options_.host_bytes)),
      DomainFlag(process, server),
      absl::StrCat("--log-sync-interval-ms=", options_.log_sync_interval_ms),
      absl::StrCat("--drain-ms-max=", absl::ToInt64Milliseconds(kLocalDrainMax))};
  flags.insert(flags.end(), options_.server_flags.begin(), options_.server_flags.end());
  return flags;
}

LocalCluster::Process LocalCluster::Describe(size_t index) const {
  const size_t coordinators = static_cast<size_t>(options_.coordinators);
  Process process;
  if (index < coordinators) {
    process.kind = Kind::kCoordinator;
    process.name = coordinators == 1 ? "coordinator" : absl::StrCat("c", index);
  } else if (index < first_server()) {
    process.kind = Kind::kEtcd;
    process.name = absl::StrCat("e", index - coordinators);
  } else {
    process.name = absl::StrCat("s", index - first_server());
  }
  process.address = Loopback(ports_[2 * index]);
  process.admin_address = Loopback(ports_[2 * index + 1]);
  process.log_path = absl::StrCat(options_.data_dir, "/logs/", process.name, ".log");
  const auto append = [&](const std::vector<std::string>& flags) {
    process.argv.insert(process.argv.end(), flags.begin(), flags.end());
  };
  if (process.kind == Kind::kEtcd) {
    process.argv = {etcd_program_};
    append(EtcdFlags(process));
    return process;
  }
  const bool coordinator = process.kind == Kind::kCoordinator;
  process.argv = {
      absl::StrCat(options_.program_dir, coordinator ? "/hotbed-coordinator" : "/hotbed-server"),
      absl::StrCat("--listen=", process.address),
      absl::StrCat("--admin-listen=", process.admin_address),
      coordinator && options_.etcd > 0
          ? absl::StrCat("--metadata=etcd://", AddressesOf(Kind::kEtcd, ","))
          : absl::StrCat("--data-dir=", options_.data_dir, "/", process.name)};
  append(options_.flags);
  if (!coordinator) append(ServerFlags(process, index - first_server()));
  return process;
}

LocalCluster::Process LocalCluster::DescribeServing(int number, const int* ports) const {
  Process process;
  process.name = absl::StrCat("serving", number);
  process.address = Loopback(ports[0]);
  process.admin_address = Loopback(ports[1]);
  process.log_path = absl::StrCat(options_.data_dir, "/logs/", process.name, ".log");
  process.argv = {absl::StrCat(options_.program_dir, "/hotbed-server"),
                  "--role=serving",
                  absl::StrCat("--http-listen=", Loopback(ports[2])),
                  absl::StrCat("--name=", process.name),
                  DomainFlag(process, static_cast<size_t>(number)),
                  absl::StrCat("--listen=", process.address),
                  absl::StrCat("--admin-listen=", process.admin_address),
                  absl::StrCat("--coordinator=", coordinator_address()),
                  absl::StrCat("--data-dir=", options_.data_dir, "/", process.name),
                  absl::StrCat("--host-bytes=", ExactBytes(options_.host_bytes))};
  process.argv.insert(process.argv.end(), options_.flags.begin(), options_.flags.end());
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
  if (servers() >= static_cast<size_t>(kLocalServersMax)) {
    return absl::ResourceExhaustedError(absl::StrCat("there are ", servers(), " servers, ",
                                                     kLocalServersMax, " are the most here"));
  }
  const std::vector<int> before = ports_;
  const size_t index = first_server() + servers();
  absl::Status added = AddPorts(index + 1);
  if (added.ok()) added = CheckPortsFree(Describe(index));
  if (!added.ok()) {
    ports_ = before;
    return added;
  }
  Process& process =
      *processes_.insert(processes_.begin() + static_cast<ptrdiff_t>(index), Describe(index));
  HOTBED_RETURN_IF_ERROR(Store());
  HOTBED_RETURN_IF_ERROR(Spawn(&process));
  Say(absl::StrCat(process.name, " added, pid ", process.child->pid()));
  return process.name;
}

absl::StatusOr<std::vector<LocalCluster::Process*>> LocalCluster::Find(const std::string& name) {
  std::vector<Process*> meant;
  std::string known;
  for (Process& process : processes_) {
    const bool server = process.kind == Kind::kServer;
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
      if (process.kind == Kind::kEtcd) break;  // the coordinators are ready once it is
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
  const auto stop = [&](Kind kind) {
    const absl::Time limit = absl::Now() + timeout;
    for (const Process& process : processes_) {
      if (process.kind == kind && process.child != nullptr && process.child->Running()) {
        process.child->Signal(SIGTERM);
      }
    }
    for (Process& process : processes_) {
      std::unique_ptr<ChildProcess>& child = process.child;
      if (process.kind != kind) continue;
      if (child != nullptr &&
          !child->WaitFor(std::max(limit - absl::Now(), absl::Milliseconds(100)))) {
        absl::StrAppend(&killed, killed.empty() ? "" : ", ", process.name);
      }
      child.reset();  // kills the process if it still runs
    }
  };
  for (const Kind kind : {Kind::kCoordinator, Kind::kServer, Kind::kEtcd}) stop(kind);
  lock_.reset();
  if (killed.empty()) return absl::OkStatus();
  return absl::DeadlineExceededError(absl::StrCat(
      "did not stop within ", absl::FormatDuration(timeout), " and was killed: ", killed));
}

void LocalCluster::Say(const std::string& text) const {
  if (options_.say) options_.say(text);
}

}  // namespace hotbed
