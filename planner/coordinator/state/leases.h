// Which server processes are alive, as far as the coordinator can tell: by their heartbeats, and
// by a direct probe of the data port where a heartbeat stream broke or where too many fall silent
// at once. Liveness only: what is decided here may be wrong, and nothing breaks.
//
// A lease ends
//   - at once, when the server's stream broke and its data port refuses connections (DECISIONS C4);
//   - after the TTL without a heartbeat. But if with it more than a fifth of the servers, and more
//     than one, fall silent within one TTL, this process (or its network, or the store) is as
//     likely the cause: each is then probed, and only those that do not answer lose their lease.
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
  // A server that is gone for no longer may come back with what it holds.
  int64_t awaited_ns = 10'000'000'000;
};

// Servers that are stopped within so long are stopped together: they do not hand over to each
// other.
constexpr int64_t kStopsTogetherNs = 500'000'000;

// To be told whether a server's data port answers.
struct ProbeRequest {
  ServerId server = 0;
  Incarnation incarnation = 0;
  std::string address;
};
enum class ProbeAnswer : uint8_t {
  kRefused,  // its machine says that nobody listens there
  kSilent,   // no answer in time
  kAnswers,
};

class Leases {
 public:
  struct Lease {
    Incarnation incarnation = 0;
    std::string address;
    int64_t deadline_ns = 0;
    bool ended = false;     // stays until the store shows the server as down
    bool told = false;      // TakeEnded gave it
    bool stopping = false;  // said that it is about to stop
    bool probing = false;
    bool guarded = false;  // the answer to the probe decides
    std::string why;       // it ended
    v1::ServerLoad load;
    std::vector<v1::CopyProgress> copies;  // on their way from it
    int64_t stopping_since_ns = 0;
  };
  struct Ended {
    ServerId server = 0;
    Incarnation incarnation = 0;
    std::string why;  // for people
  };

  explicit Leases(LeaseOptions options) : options_(options) {}

  // The state has changed: leases for the processes that it shows live, none for others.
  void Sync(int64_t now_ns, const ClusterState& state);
  // This process was held up, or began: whoever is live has a full term.
  void RenewAll(int64_t now_ns);
  void Renew(int64_t now_ns, ServerId server);
  // False: the process has no lease and must register again.
  bool OnHeartbeat(int64_t now_ns, const v1::HeartbeatRequest& request);
  void OnStreamBroken(ServerId server, Incarnation incarnation);
  void OnProbed(int64_t now_ns, ServerId server, Incarnation incarnation, ProbeAnswer answer);
  void Tick(int64_t now_ns);
  // Those that ended and were not given yet; ForgetTold makes it give them again.
  std::vector<Ended> TakeEnded();
  void ForgetTold();
  std::vector<ProbeRequest> TakeProbes();

  bool Held(ServerId server) const { return LiveIncarnation(server) != 0; }
  Incarnation LiveIncarnation(ServerId server) const;  // 0: none
  bool Stopping(ServerId server) const;
  // It said so kStopsTogetherNs ago: who was stopped with it has said so too by now.
  bool StopsAlone(int64_t now_ns, ServerId server) const;
  // Gone, but not for long; by this process's own knowledge.
  bool Awaited(int64_t now_ns, ServerId server) const;
  // When it was found gone; 0: it is not.
  int64_t GoneSinceNs(ServerId server) const;
  // Servers that are gone, but not for long.
  bool AnyAwaited(int64_t now_ns) const;
  // nullptr: none.
  const Lease* Find(ServerId server) const;
  const absl::btree_map<ServerId, Lease>& all() const { return leases_; }

 private:
  void End(int64_t now_ns, ServerId server, Lease* lease, std::string why);
  void Probe(ServerId server, Lease* lease);
  bool TooMany(size_t silent) const;

  const LeaseOptions options_;
  absl::btree_map<ServerId, Lease> leases_;
  absl::btree_map<ServerId, int64_t> gone_since_ns_;
  std::deque<int64_t> silent_ends_ns_;  // of the last TTL: leases that ended by silence
  std::vector<ProbeRequest> probes_;
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_STATE_LEASES_H_
