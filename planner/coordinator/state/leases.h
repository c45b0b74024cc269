// Which server processes are alive, as far as the coordinator can tell: by their heartbeats, and
// by a direct probe of the data port if a heartbeat stream broke or too many servers fall silent
// at once. This is for liveness only: a wrong verdict costs time and never safety.
//
// A lease ends
//   - at once, when the server's stream broke and its data port refuses connections: the process
//     is gone, so its shards need not wait for the TTL;
//   - after the TTL without a heartbeat. But if more than one server, and more than a fifth of
//     them, fall silent within one TTL, this process (or its network, or the store) is as likely
//     the cause: each is then probed, and only those that do not answer lose their lease.
//
// Pure; thread-compatible.
#ifndef HOTBED_PLANNER_COORDINATOR_STATE_LEASES_H_
#define HOTBED_PLANNER_COORDINATOR_STATE_LEASES_H_

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "planner/coordinator/state/cluster_state.h"
#include "proto/control.pb.h"

namespace hotbed {

struct LeaseOptions {
  int64_t ttl_ns = 3'000'000'000;
  // A server that has been gone for no longer is awaited: it may come back with its replicas.
  int64_t awaited_ns = 10'000'000'000;
};

// Servers that are stopped within this time of each other are stopped together and do not hand
// their shards to each other.
constexpr int64_t kStopsTogetherNs = 500'000'000;

// Asks whether a server's data port answers.
struct ProbeRequest {
  ServerId server = 0;
  Incarnation incarnation = 0;
  std::string address;
};
enum class ProbeAnswer : uint8_t {
  kRefused,  // its machine says that nobody listens on the port
  kSilent,   // no answer in time
  kAnswers,
};

inline Member MemberOf(const v1::Member& message) {
  return {message.server(), message.incarnation()};
}
// State of the process that holds a server's lease while another process asks to register.
enum class Rival : uint8_t {
  kGone,    // there is none
  kMayRun,  // its lease holds, but it may have ended without a word
  kRuns,    // its heartbeats have come for a while since the other one asked first
};
// Heartbeats may have been on their way when their process ended, so a rival runs if it is heard of
// this long after.
constexpr int64_t kRivalRunsNs = 1'000'000'000;
// Processes that ask for one lease at a time; each asks every 2 s or more often, and further ones
// wait until one has been silent for kAskerSilentNs.
constexpr size_t kAskersMax = 8;
constexpr int64_t kAskerSilentNs = 10'000'000'000;

class Leases {
 public:
  // A process that asks to register while another one holds the lease.
  struct Asker {
    uint64_t run = 0;
    int64_t since_ns = 0;
    int64_t last_ns = 0;
  };
  struct Lease {
    Incarnation incarnation = 0;
    std::string address;
    int64_t deadline_ns = 0;
    int64_t heard_ns = 0;   // the last heartbeat; 0: none yet
    bool ended = false;     // the lease stays until the store shows the server as down
    bool told = false;      // TakeEnded returned it
    bool stopping = false;  // the process said that it is about to stop
    bool probing = false;
    bool guarded = false;  // the answer to the probe decides
    std::string why;       // why it ended
    v1::ServerLoad load;
    std::vector<v1::TransferProgress> transfers;  // snapshot transfers that it sends
    int64_t stopping_since_ns = 0;
    int64_t since_ns = 0;  // this process knows of the lease
    std::vector<Asker> askers;
  };
  struct Ended {
    ServerId server = 0;
    Incarnation incarnation = 0;
    std::string why;  // for people
  };

  explicit Leases(LeaseOptions options) : options_(options) {}

  // The state has changed: keeps leases for the processes that it shows as live, and no others.
  void Sync(int64_t now_ns, const ClusterState& state);
  // This process was held up, or has just started: gives every live server a full term.
  void RenewAll(int64_t now_ns);
  void Renew(int64_t now_ns, ServerId server);
  // False if the process has no lease and must register again. The load comes by TakeLoad.
  bool OnHeartbeat(int64_t now_ns, const v1::HeartbeatRequest& request);
  // The load that a heartbeat reported; its server has a lease.
  void TakeLoad(ServerId server, v1::ServerLoad load);
  // A process asks to register. While another one may use its data directory, at another address,
  // that one's data port is probed.
  void OnRegistering(int64_t now_ns, const ClusterState& state,
                     const v1::RegisterServerRequest& request);
  // State of the process that registered as `server`, as heard since `run` asked first.
  Rival RivalOf(ServerId server, uint64_t run) const;
  void OnStreamBroken(ServerId server, Incarnation incarnation);
  void OnProbed(int64_t now_ns, ServerId server, Incarnation incarnation, ProbeAnswer answer);
  void Tick(int64_t now_ns);
  // The leases that ended since the last call. ForgetTold makes it return them all again.
  std::vector<Ended> TakeEnded();
  void ForgetTold();
  std::vector<ProbeRequest> TakeProbes();

  bool Held(ServerId server) const { return LiveIncarnation(server) != 0; }
  Incarnation LiveIncarnation(ServerId server) const;  // 0: none
  bool Stopping(ServerId server) const;
  // Live, and not about to stop: it may take shards.
  bool Placeable(ServerId server) const { return Held(server) && !Stopping(server); }
  // True if the server announced its stop at least kStopsTogetherNs ago: by now, servers that were
  // stopped together with it have announced theirs.
  bool StopsAlone(int64_t now_ns, ServerId server) const;
  // True if the server's process has been live for awaited_ns, as far as this process knows.
  bool LiveForAwaited(int64_t now_ns, ServerId server) const;
  // True if the server is about to stop, or is gone for less than awaited_ns as far as this process
  // knows. A server that is told to stop is expected back as one that died is.
  bool Awaited(int64_t now_ns, ServerId server) const;
  // When the server was found gone; 0: it is not gone.
  int64_t GoneSinceNs(ServerId server) const;
  // Whether any server is awaited.
  bool AnyAwaited(int64_t now_ns) const;
  // nullptr: none.
  const Lease* Find(ServerId server) const;
  // The snapshot transfer to `to` that the record's primary reports; nullptr: none.
  const v1::TransferProgress* ProgressOf(const ShardRecord& record, const Member& to) const;
  const absl::btree_map<ServerId, Lease>& all() const { return leases_; }

 private:
  void End(int64_t now_ns, ServerId server, Lease* lease, std::string why);
  void Probe(ServerId server, Lease* lease);
  bool TooMany(size_t silent) const;

  const LeaseOptions options_;
  absl::btree_map<ServerId, Lease> leases_;
  absl::btree_map<ServerId, int64_t> gone_since_ns_;
  std::deque<int64_t> silent_ends_ns_;  // times within the last TTL when a lease ended by silence
  std::vector<ProbeRequest> probes_;
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_STATE_LEASES_H_
