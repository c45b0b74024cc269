// A shard host with rows that can be computed by hand, for tests of the streams above it.
//
// Row `id` of a shard is id * 1000 + column in fp32; other row types are not checked. Pooled
// segments are computed by tests/kernels/pool_twin.h from such rows. Pushes are kept as they came.
// Requests can be held back and finished later, from another thread.
#ifndef HOTBED_TESTS_SERVER_FAKE_SHARD_HOST_H_
#define HOTBED_TESTS_SERVER_FAKE_SHARD_HOST_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/host/shard_host.h"

namespace hotbed {

class FakeShardHost final : public ShardHost {
 public:
  struct PushSeen {
    ShardId shard;
    uint64_t seq = 0;
    std::vector<uint64_t> ids;
    std::vector<std::vector<uint8_t>> gradients;
  };

  static constexpr uint64_t kIdLimit = 1'000'000'000;  // larger ids are out of range in every shard
  static constexpr uint32_t kPullIdsMax = 1 << 20;

  void AddShard(ShardId shard, uint32_t dim, Epoch epoch, const std::string& table = "fake");
  static const std::string& TableOf(const Shard& shard);
  void AddRecord(const ShardRecord& record);  // known but not held

  // From now on requests wait; ReleaseHeld finishes them on the calling thread and ends the
  // waiting.
  void Hold();
  void ReleaseHeld();
  size_t held() const;
  uint64_t pulls() const;  // that came, held or not
  std::vector<PushSeen> pushes() const;
  size_t assignments() const;
  std::vector<TableId> tables_dropped() const;  // of the last assignment
  Incarnation incarnation() const;
  void Notify();  // calls the activation listener
  void SetReplicaSink(
      ReplicaSink* sink);  // receives messages of other servers; null: they are dropped
  void set_joins(std::vector<JoinReady> joins);
  void set_lost_replicas(std::vector<LostReplica> lost);
  void set_silent(std::vector<JoinReady> silent);
  void set_transfers(std::vector<TransferProgress> transfers);
  void set_held(std::vector<ShardId> held);
  void set_status(HostStatus status);  // without the shards, which AddShard adds
  int64_t lease_until_ns() const;
  int64_t lease_when_assigned_ns() const;  // the lease at the last assignment
  TransferLimits transfer_limits() const;
  uint64_t session_given() const;
  std::vector<GivenOut::TableStep> steps_given() const;
  void set_waiting(std::vector<ShardEpoch> waiting);

  std::shared_ptr<Shard> Find(ShardId shard) const override;
  std::shared_ptr<const void> FindAll(absl::Span<const ShardId> ids,
                                      std::vector<Shard*>* shards) const override;
  void Pull(PullWork* work) override;
  void Push(PushWork* work) override;
  std::optional<ShardRecord> RecordOf(ShardId shard) const override;
  Identity identity() const override;
  absl::Status SetIdentity(const Identity& identity) override;
  void SetIncarnation(Incarnation incarnation) override;
  absl::Status ApplyAssignment(const std::vector<TableSpec>& tables,
                               const std::vector<ShardRecord>& records,
                               const std::vector<TableId>& tables_dropped) override;
  std::vector<ShardEpoch> ShardsToActivate() const override;
  void SetActivationListener(std::function<void()> listener) override;
  void SetReplicaNetwork(ReplicaNetwork*) override {}
  void OnReplicaMessage(const Member& from, ReplicaMessage message) override;
  void OnPeerLost(const Member& peer) override;
  std::vector<JoinReady> JoinsReady() const override;
  std::vector<JoinReady> SilentMembers() const override;
  std::vector<TransferProgress> Transfers() const override;
  void SetTransferLimits(const TransferLimits& limits) override;
  std::vector<LostReplica> LostReplicas() const override;
  std::vector<HeldReplica> HeldReplicas(bool) const override { return {}; }
  std::vector<ShardId> Held() const override;
  void LearnGivenOut(uint64_t session, const std::vector<GivenOut::TableStep>& steps) override;
  void SetLease(int64_t until_ns) override;
  HostStatus Status() const override;
  Primaries CountPrimaries() const override { return {}; }
  absl::Status Shutdown() override { return absl::OkStatus(); }

 private:
  struct FakeShard;
  SegmentResult Check(ShardId shard, Epoch epoch, uint32_t count) const
      ABSL_SHARED_LOCKS_REQUIRED(mu_);
  void Serve(PullWork* work);
  static void ServeBags(const PullWork& work, PullSegment* segment);
  void Serve(PushWork* work);

  mutable absl::Mutex mu_;
  std::map<ShardId, std::shared_ptr<FakeShard>> shards_ ABSL_GUARDED_BY(mu_);
  std::map<ShardId, ShardRecord> records_ ABSL_GUARDED_BY(mu_);
  bool holding_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t pulls_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<PullWork*> held_pulls_ ABSL_GUARDED_BY(mu_);
  std::vector<PushWork*> held_pushes_ ABSL_GUARDED_BY(mu_);
  std::vector<PushSeen> pushes_ ABSL_GUARDED_BY(mu_);
  Identity identity_ ABSL_GUARDED_BY(mu_) = {7, "cluster-a"};
  Incarnation incarnation_ ABSL_GUARDED_BY(mu_) = 0;
  size_t assignments_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<TableId> tables_dropped_ ABSL_GUARDED_BY(mu_);
  std::vector<ShardEpoch> waiting_ ABSL_GUARDED_BY(mu_);
  std::function<void()> listener_ ABSL_GUARDED_BY(mu_);
  ReplicaSink* sink_ ABSL_GUARDED_BY(mu_) = nullptr;
  std::vector<JoinReady> joins_ ABSL_GUARDED_BY(mu_);
  std::vector<LostReplica> lost_replicas_ ABSL_GUARDED_BY(mu_);
  std::vector<JoinReady> silent_ ABSL_GUARDED_BY(mu_);
  std::vector<TransferProgress> transfers_ ABSL_GUARDED_BY(mu_);
  std::vector<ShardId> held_shards_ ABSL_GUARDED_BY(mu_);
  HostStatus status_ ABSL_GUARDED_BY(mu_);
  int64_t lease_until_ns_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t lease_when_assigned_ns_ ABSL_GUARDED_BY(mu_) = 0;
  TransferLimits transfer_limits_ ABSL_GUARDED_BY(mu_);
  uint64_t session_given_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<GivenOut::TableStep> steps_given_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hotbed

#endif  // HOTBED_TESTS_SERVER_FAKE_SHARD_HOST_H_
