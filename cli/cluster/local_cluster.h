// One coordinator, or several on etcd, and N shard servers as child processes on loopback, kept in
// one directory:
//
//   D/cluster.json      format and the ports of every process: a restart uses the same addresses
//   D/lock              held while the cluster runs
//   D/coordinator, D/s0, D/s1, ...   data directories; with etcd D/e0, ... instead of the first
//   D/logs/NAME.log     output of each process
//
// Thread-compatible: one thread calls everything, Tick at least ten times a second.
#ifndef HOTBED_CLI_CLUSTER_LOCAL_CLUSTER_H_
#define HOTBED_CLI_CLUSTER_LOCAL_CLUSTER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/cluster/child_process.h"
#include "common/clock.h"
#include "common/files/file_system.h"

namespace hotbed {

constexpr int kLocalServersMax = 64;
constexpr int kLocalCoordinatorsMax = 7;
constexpr int kLocalEtcdMax = 7;
constexpr int kLocalServingMax = 16;
constexpr absl::Duration kLocalDrainMax = absl::Seconds(30);  // for a server to stop
// Longer than that: a server killed during its write back would have more to recover.
constexpr absl::Duration kLocalStopMax = absl::Seconds(40);

struct LocalClusterOptions {
  std::string data_dir;  // absolute
  int servers = 0;       // 0: as stored, or 1 in a new directory
  // Fixed once the directory is made; -1: as stored, or one coordinator and no etcd. Several
  // coordinators need a member of etcd at least.
  int coordinators = -1;
  int etcd = -1;  // members
  // Serving servers, beside the others and at free ports: they have nothing to come back to.
  int serving = 0;
  // The port of the coordinator; the ports of the others follow it. 0: free ports. Used only in a
  // new directory.
  int port = 7400;
  uint64_t host_bytes = 256u << 20;  // per server
  // Failure domains "d0", "d1", ..., among which the servers, and the serving servers, are spread
  // in turn. 0: each server is a domain of its own, named after it, so that replicas of a shard
  // are on different servers.
  int failure_domains = 0;
  int64_t log_sync_interval_ms = 1000;
  std::vector<std::string> flags;         // of every process, such as --tls-cert=FILE
  std::vector<std::string> server_flags;  // in addition, such as --log-bytes-max=16MiB
  // The directory of hotbed-coordinator and hotbed-server; empty: that of this program.
  std::string program_dir;
  // Called with a text when a process has died or was started again. May be empty.
  std::function<void(const std::string&)> say;
  // Polled during waits; true ends the wait. May be empty.
  std::function<bool()> cancelled;
};

class LocalCluster {
 public:
  enum class Kind { kCoordinator, kEtcd, kServer };
  struct Process {
    Kind kind = Kind::kServer;
    std::string name;  // "coordinator" (several: "c0", ...), "e0", ..., "s0", ...
    std::string address;
    std::string admin_address;  // of etcd: where its members speak with each other
    std::string log_path;
    std::vector<std::string> argv;
    std::unique_ptr<ChildProcess> child;  // null before a restart and after giving up
    bool given_up = false;                // not started again
    int restarts = 0;
    int quick_deaths = 0;  // in a row
    int64_t started_ns = 0;
    int64_t restart_at_ns = 0;
  };

  // Locks the directory and spawns all processes. `clock` must outlive the result. AlreadyExists:
  // the directory is in use; PermissionDenied: not writable; FailedPrecondition: it has another
  // version, more servers than requested, or other numbers of coordinators and of etcd's members;
  // etcd is not installed; Unavailable: a port is in use.
  static absl::StatusOr<std::unique_ptr<LocalCluster>> Start(const LocalClusterOptions& options,
                                                             const Clock* clock);
  ~LocalCluster();  // Stop

  // Waits until /readyz of every server and coordinator answers 200. A process that exits with a
  // usage error, or three times, ends the wait with an error that quotes its last output.
  absl::Status WaitReady(absl::Duration timeout);
  // Restarts processes that died, after 0.25 s, doubling to 8 s while one keeps dying within ten
  // seconds.
  void Tick();
  // Ends a process ("s0", "coordinator"; "all": the servers) by `signal` and starts it again. This
  // does not count as a death. NotFound names the processes; DeadlineExceeded: it did not end.
  absl::Status Restart(const std::string& name, int signal);
  // Spawns one more server, which joins the cluster by itself and belongs to it after a restart
  // too. Returns its name. ResourceExhausted: there are kLocalServersMax already. Invalidates
  // references to processes().
  absl::StatusOr<std::string> AddServer();
  // Kills the process (or "all": the servers), which is not restarted for the life of this object.
  absl::Status KillForGood(const std::string& name);
  // SIGTERM to the coordinators, then to the servers, then to etcd; SIGKILL after `timeout`, with
  // an error that names the process. The coordinators go first: otherwise each server would try to
  // hand its shards over, and no server stays that could take them.
  absl::Status Stop(absl::Duration timeout = kLocalStopMax);

  const std::vector<Process>& processes() const { return processes_; }
  // With commas between, where there are several.
  std::string coordinator_address() const;
  // The coordinator that has the console now; without one, the first.
  const Process& leader() const;

 private:
  LocalCluster(LocalClusterOptions options, const Clock* clock);
  absl::Status LoadOrCreate();
  // Ports and numbers as stored; an empty one: none are.
  struct Stored {
    std::vector<int> ports;
    int coordinators = 1;
    int etcd = 0;
  };
  absl::StatusOr<Stored> Load() const;
  absl::Status TakeNumbers(const Stored& stored);
  // Adds ports until there are enough for `processes`.
  absl::Status AddPorts(size_t processes);
  static absl::Status CheckPortsFree(const Process& process);
  absl::Status Store();
  // The coordinators come first, then etcd, then the servers.
  Process Describe(size_t index) const;
  // Serving server number `number`, at three free ports: data, admin, HTTP.
  Process DescribeServing(int number, const int* ports) const;
  size_t servers() const { return processes_.size() - first_server() - serving(); }
  size_t serving() const { return static_cast<size_t>(options_.serving); }
  std::vector<std::string> EtcdFlags(const Process& process) const;
  std::string DomainFlag(const Process& process, size_t number) const;
  std::vector<std::string> ServerFlags(const Process& process, size_t server) const;
  std::string AddressesOf(Kind kind, absl::string_view separator) const;
  size_t first_server() const {
    return static_cast<size_t>(options_.coordinators) + static_cast<size_t>(options_.etcd);
  }
  absl::StatusOr<std::vector<Process*>> Find(const std::string& name);  // not empty
  absl::Status Spawn(Process* process);
  void Say(const std::string& text) const;

  LocalClusterOptions options_;
  const Clock* const clock_;
  std::unique_ptr<WritableFile> lock_;
  std::string etcd_program_;
  std::vector<int> ports_;  // data and admin port of each process
  std::vector<Process> processes_;
};

}  // namespace hotbed

#endif  // HOTBED_CLI_CLUSTER_LOCAL_CLUSTER_H_
