// Several shard hosts in one process, each over a real log and real tiers in a directory of its
// own, joined by a network that a test slows, cuts and damages; with the coordinator and clients
// played by the test.
#ifndef HOTBED_TESTS_SHARD_REPLICA_FIXTURE_H_
#define HOTBED_TESTS_SHARD_REPLICA_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/fault_file_system.h"
#include "common/random.h"
#include "server/shard_host.h"
#include "tests/shard/host_fixture.h"

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

// Servers 1 to n. Records change by the test's word alone; joins and activations that servers ask
// for are granted by Settle.
class ReplicaCluster {
 public:
  ReplicaCluster(const std::vector<TableSpec>& tables, uint32_t shards, uint64_t seed,
                 const ShardHostOptions& options = DefaultOptions());
  ~ReplicaCluster();
  static ShardHostOptions DefaultOptions();

  // A new life of a server.
  void Start(ServerId server, FileSystem* files = nullptr);
  // As kill -9 leaves it (but in order).
  void Kill(ServerId server);
  absl::Status Stop(ServerId server);
  // From any thread, also while servers come and go: `use` must not wait for anything.
  template <typename Use>
  bool WithHost(ServerId server, Use use) {
    absl::ReaderMutexLock lock(&hosts_mu_);
    const auto it = servers_.find(server);
    if (it == servers_.end()) return false;
    use(it->second.host.get());
    return true;
  }
  bool up(ServerId server) const { return servers_.contains(server); }
  ShardHost* host(ServerId server) { return servers_.at(server).host.get(); }
  Member member(ServerId server) const { return servers_.at(server).self; }
  TestNetwork* network() { return &network_; }
  std::string data_dir(ServerId server) const;

  // All shards on `members`, the primary first, in a new epoch.
  void Assign(const std::vector<ServerId>& members);
  ShardRecord record(ShardId shard) const;
  std::vector<ShardId> shards() const;
  const TableSpec& table(TableId id) const { return tables_.at(id); }
  // One compare-and-set, told to all: what `change` makes of the record. `bump`: a new epoch.
  void Change(ShardId shard, bool bump, const std::function<void(ShardRecord*)>& change);
  void AddLearner(ShardId shard, ServerId server);
  // A move's last step: `to`, a member, is the primary; `from` leaves.
  void SwitchAndDrop(ShardId shard, ServerId to, ServerId from);
  // Dead members leave, dead learners too; a live member becomes primary.
  void FailOver();
  // Grants what servers ask for, until `done` (tested between) or the time is over.
  void SettleUntil(const std::function<bool()>& done, const char* what);
  void Settle() {
    SettleUntil([this] { return AllActive(); }, "all shards are active");
  }
  // Moves a shard with all its steps.
  void Move(ShardId shard, ServerId from, ServerId to);
  bool AllActive() const;
  bool IsMember(ShardId shard, ServerId server) const;

  ShardId ShardOf(TableId table, uint64_t id) const;
  // Fp32 rows as `server` has them; unset when it does not answer so.
  struct Rows {
    SegmentCode code = SegmentCode::kOk;
    std::vector<float> rows;
  };
  Rows Pull(ServerId server, ShardId shard, const std::vector<uint64_t>& ids, Lsn lsn_min = 0,
            bool strict = false, uint32_t staleness_ms_max = 0);
  // Rows of the primaries; the test fails where one does not answer.
  std::vector<float> PullAll(TableId table, const std::vector<uint64_t>& ids);
  // Every copy of every shard has the same rows and state, byte by byte. Stops all servers; names
  // those that are compared by the records.
  void ExpectCopiesEqual();

 private:
  struct Server {
    Member self;
    std::unique_ptr<ShardHost> host;
  };
  void Tell(const std::vector<ShardRecord>& records);
  void Grant();

  const std::map<TableId, TableSpec> tables_;
  const ShardHostOptions options_;
  TempDir dir_;
  TestNetwork network_;
  absl::Mutex hosts_mu_;  // held by the test's thread to change servers_, by others to read it
  std::map<ServerId, Server> servers_;
  std::map<ServerId, Incarnation> incarnations_;
  Incarnation incarnation_ = 0;
  mutable absl::Mutex mu_;
  std::map<ShardId, ShardRecord> records_ ABSL_GUARDED_BY(mu_);
  uint64_t revision_ ABSL_GUARDED_BY(mu_) = 0;
};

// A client with one chain of sequences a shard. Retries until its push is acknowledged.
class ReplicaClient {
 public:
  ReplicaClient(ReplicaCluster* cluster, SessionId session)
      : cluster_(cluster), session_(session) {}

  // One push of one shard's rows; `ids` are of it. The reply's LSN.
  Lsn Push(ShardId shard, uint64_t step, const std::vector<uint64_t>& ids,
           const std::vector<float>& gradients);
  // Once, without retries.
  SegmentResult TryPush(ShardId shard, uint64_t seq, uint64_t prev_seq, bool open,
                        const std::vector<uint64_t>& ids, const std::vector<float>& gradients);
  SegmentResult CommitStep(ShardId shard, uint64_t step, const std::vector<SessionId>& sessions);
  int64_t longest_ns() const { return longest_ns_; }

 private:
  ReplicaCluster* const cluster_;
  const SessionId session_;
  std::map<ShardId, uint64_t> chain_;
  int64_t longest_ns_ = 0;
};

}  // namespace hotbed

#endif  // HOTBED_TESTS_SHARD_REPLICA_FIXTURE_H_
