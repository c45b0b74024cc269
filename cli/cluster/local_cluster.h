// One coordinator and N shard servers as child processes on loopback, kept in one directory:
//
//   D/cluster.json      format, ports of every process: a restart comes back at the same addresses
//   D/lock              held while the cluster runs
//   D/coordinator, D/s0, D/s1, ...   data directories
//   D/logs/NAME.log     what each process said
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
#include "common/file_system.h"

namespace hotbed {

constexpr int kLocalServersMax = 64;
constexpr absl::Duration kLocalDrainMax = absl::Seconds(30);  // what a server may take to stop
// Longer: a server that is killed while it still writes back would come back with less.
constexpr absl::Duration kLocalStopMax = absl::Seconds(40);

struct LocalClusterOptions {
  std::string data_dir;  // absolute
  int servers = 0;       // 0: as stored, or 1 in a new directory
  // Of the coordinator; the ports of the others follow it. 0: free ones. Only in a new directory.
  int port = 7400;
  uint64_t host_bytes = 256u << 20;  // of each server
  // Of failure, "d0", "d1", ..., among which the servers are spread in turn; 0: each server is one
  // of its own, called by its name, so that copies of a shard are on different servers.
  int failure_domains = 0;
  int64_t log_sync_interval_ms = 1000;
  std::vector<std::string> server_flags;  // more of them, as --log-bytes-max=16MiB
  // Where hotbed-coordinator and hotbed-server are; empty: beside this program.
  std::string program_dir;
  // Hears what happened: a process died, was started again. May be empty.
  std::function<void(const std::string&)> say;
  // Asked while waiting; true ends the wait. May be empty.
  std::function<bool()> cancelled;
};

class LocalCluster {
 public:
  struct Process {
    std::string name;  // "coordinator", "s0", ...
    std::string address;
    std::string admin_address;
    std::string log_path;
    std::vector<std::string> argv;
    std::unique_ptr<ChildProcess> child;  // null while it waits for its restart, or is given up
    bool given_up = false;                // not started again
    int restarts = 0;
    int quick_deaths = 0;  // in a row
    int64_t started_ns = 0;
    int64_t restart_at_ns = 0;
  };

  // Locks the directory, spawns all. `clock` must outlive the result. AlreadyExists: in use;
  // PermissionDenied: not writable; FailedPrecondition: of another version, or holds more servers
  // than asked for; Unavailable: a port is in use.
  static absl::StatusOr<std::unique_ptr<LocalCluster>> Start(const LocalClusterOptions& options,
                                                             const Clock* clock);
  ~LocalCluster();  // Stop

  // Until every process says /readyz 200. A process that ends meanwhile with a usage error, or
  // three times, ends the wait with its last words.
  absl::Status WaitReady(absl::Duration timeout);
  // Starts again what died, after 0.25 s, doubling to 8 s while it keeps dying within ten seconds.
  void Tick();
  // Ends a process ("s0", "coordinator"; "all": the servers) by `signal` and starts it again:
  // meant, so it counts for no death. NotFound names the processes; DeadlineExceeded: it did not
  // end.
  absl::Status Restart(const std::string& name, int signal);
  // One more server, spawned at once; it joins the cluster by itself, and is there after a restart
  // too. Its name. ResourceExhausted: there are kLocalServersMax. References to processes() end.
  absl::StatusOr<std::string> AddServer();
  // SIGKILL, and it stays dead for as long as this object lives.
  absl::Status KillForGood(const std::string& name);
  // SIGTERM to the coordinator, then to the servers; SIGKILL to what is left of either after
  // `timeout` (an error that names it). In this order, because a server that stops alone hands its
  // shards over, and here nobody stays who could take them.
  absl::Status Stop(absl::Duration timeout = kLocalStopMax);

  // Whether the process says /readyz 200 now.
  bool Ready(const Process& process) const;
  const std::vector<Process>& processes() const { return processes_; }
  const std::string& coordinator_address() const { return processes_[0].address; }

 private:
  LocalCluster(LocalClusterOptions options, const Clock* clock);
  absl::Status LoadOrCreate();
  absl::StatusOr<std::vector<int>> LoadPorts();
  // Until there are enough for so many processes.
  absl::Status AddPorts(size_t processes);
  static absl::Status CheckPortsFree(const Process& process);
  absl::Status Store();
  // `server` 0 is the coordinator, then s0, s1, ...
  Process Describe(size_t server) const;
  absl::StatusOr<Process*> Find(const std::string& name, const char* what);
  absl::Status Spawn(Process* process);
  void Say(const std::string& text) const;

  LocalClusterOptions options_;
  const Clock* const clock_;
  std::unique_ptr<WritableFile> lock_;
  std::vector<int> ports_;          // data and admin port of the coordinator, then of each server
  std::vector<Process> processes_;  // the coordinator first
};

}  // namespace hotbed

#endif  // HOTBED_CLI_CLUSTER_LOCAL_CLUSTER_H_
