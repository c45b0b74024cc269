// The network between servers of one process, which a test slows, cuts and damages.
#ifndef HOTBED_TESTS_SHARD_TEST_NETWORK_H_
#define HOTBED_TESTS_SHARD_TEST_NETWORK_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/random.h"
#include "server/shard/replica/replica_message.h"

namespace hotbed {

// Messages between two servers are delivered in order, one at a time, by a thread that draws whose
// turn it is; a lost one takes its connection with it, as TCP does.
class TestNetwork {
 public:
  explicit TestNetwork(uint64_t seed);
  ~TestNetwork();

  // One life of a server. Lasts until Detach, which waits for what is being delivered.
  ReplicaNetwork* Attach(const Member& self, ReplicaSink* sink);
  void Detach(const Member& self);
  // Nothing of `kind` is delivered that `stop` says true of: its connection is cut instead.
  void SetFault(std::function<bool(const Member& from, const ReplicaMessage&)> stop);
  // May change what is delivered.
  void SetDamage(std::function<void(ReplicaMessage*)> damage);
  void CutOneIn(uint64_t messages);  // 0: never
  void DelayMost(int64_t us);        // of a message
  // Messages from one server to another wait (a one-way cut that nobody notices).
  void Hold(ServerId from, ServerId to, bool held);
  uint64_t delivered() const;
  uint64_t cuts() const;

 private:
  class Port;
  using Pair = std::pair<ServerId, ServerId>;

  void Queue(const Member& from, ReplicaMessage message);
  uint64_t QueuedBytes(const Member& from, const Member& to) const;
  void Deliver();
  void Cut(const Pair& pair) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable absl::Mutex mu_;
  Random random_ ABSL_GUARDED_BY(mu_);
  std::map<ServerId, std::pair<Member, ReplicaSink*>> sinks_ ABSL_GUARDED_BY(mu_);
  std::map<Pair, std::deque<std::pair<Member, ReplicaMessage>>> queues_ ABSL_GUARDED_BY(mu_);
  std::set<Pair> held_ ABSL_GUARDED_BY(mu_);
  std::vector<std::pair<ServerId, Member>> lost_ ABSL_GUARDED_BY(mu_);  // who is told of whom
  std::function<bool(const Member&, const ReplicaMessage&)> stop_ ABSL_GUARDED_BY(mu_);
  std::function<void(ReplicaMessage*)> damage_ ABSL_GUARDED_BY(mu_);
  uint64_t cut_one_in_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t delay_us_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t delivered_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t cuts_ ABSL_GUARDED_BY(mu_) = 0;
  bool stops_ ABSL_GUARDED_BY(mu_) = false;
  ServerId delivering_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<std::unique_ptr<Port>> ports_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace hotbed

#endif  // HOTBED_TESTS_SHARD_TEST_NETWORK_H_
