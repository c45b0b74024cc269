// Several shard hosts in one process, each over a real log and real tiers in a directory of its
// own, joined by a network that a test slows, cuts and damages; with the coordinator and clients
// played by the test.
#ifndef HOTBED_TESTS_SHARD_REPLICA_FIXTURE_H_
#define HOTBED_TESTS_SHARD_REPLICA_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/host/shard_host.h"
#include "tests/common/fault_file_system.h"
#include "tests/shard/host_fixture.h"
#include "tests/shard/test_network.h"

namespace hotbed {

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
  // What it remembered at its last start, before it was told any record.
  const ShardHost::Recollection& remembered(ServerId server) const {
    return servers_.at(server).remembered;
  }
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
  void GrantJoins(bool grant) { grant_joins_ = grant; }
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
    Lsn lsn = 0;  // that it has seen, at least
    std::vector<float> rows;
  };
  Rows Pull(ServerId server, ShardId shard, const std::vector<uint64_t>& ids, Lsn lsn_min = 0,
            bool strict = false, uint32_t staleness_ms_max = 0);
  // Rows of the primaries; the test fails where one does not answer.
  std::vector<float> PullAll(TableId table, const std::vector<uint64_t>& ids);
  // Until every replica that is up has applied what its primary has: an acknowledgement says that
  // the others hold a record, not that they have heard of each other.
  void AwaitBackups();
  // Every replica of every shard has the same rows and state, byte by byte, once backups have
  // applied what is committed. Stops all servers; names those that are compared by the records.
  void ExpectReplicasEqual();

 private:
  struct Server {
    Member self;
    std::unique_ptr<ShardHost> host;
    ShardHost::Recollection remembered;
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
  bool grant_joins_ = true;
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
