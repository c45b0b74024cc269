// Puts the rows of a snapshot transfer in the place of a shard: the shard goes out of service, its
// rows are replaced, and it opens as it does after a crash (snapshot_intake.h).
//
// The calls of SnapshotIntake::Site come from the receiver's thread, one at a time. The two below
// serve the restore of a checkpoint too (shard_restorer.h), and are thread-safe.
#ifndef HOTBED_SERVER_HOST_SNAPSHOT_INSTALLER_H_
#define HOTBED_SERVER_HOST_SNAPSHOT_INSTALLER_H_

#include <functional>
#include <map>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/clock.h"
#include "common/tables/shard_record.h"
#include "server/host/assignments.h"
#include "server/host/data_directory.h"
#include "server/host/promise_keeper.h"
#include "server/host/shard_directory.h"
#include "server/host/shard_factory.h"
#include "server/host/table_checkpoints.h"
#include "server/host/transfer/snapshot_intake.h"
#include "server/shard_log/shard_log.h"
#include "server/tiers/api/host.h"

namespace hotbed {

class SnapshotInstaller : public SnapshotIntake::Site {
 public:
  struct Wiring {
    const DataDirectory* data = nullptr;
    const ShardDirectory* directory = nullptr;
    Assignments* assignments = nullptr;
    const ShardFactory* factory = nullptr;
    PromiseKeeper* promises = nullptr;
    TableCheckpoints* checkpoints = nullptr;
    TierHost* tiers = nullptr;
    ShardLog* log = nullptr;
    const Clock* clock = nullptr;
    std::function<void(ReplicaMessage)> send;
  };
  explicit SnapshotInstaller(Wiring wiring) : wiring_(std::move(wiring)) {}

  bool Wants(ShardId shard, const Member& from, Epoch epoch) const override;
  absl::Status Begin(ShardId id, const Member& from, Epoch epoch, Lsn lsn) override;
  absl::Status Write(ShardId id, absl::string_view block) override;
  absl::Status Finish(ShardId id, absl::string_view meta) override;
  void Abandon(ShardId id) override;
  void Reply(ReplicaMessage message) override { wiring_.send(std::move(message)); }

  // The rows of the shard, which is closed, go; new ones may be written.
  absl::StatusOr<std::unique_ptr<ShardRowWriter>> EmptyShard(const std::shared_ptr<Shard>& shard);
  // The rows are finished: the shard opens, brings rows into memory for at most `warm_ns_max`, and
  // learns its record.
  absl::Status OpenFilled(ShardId id, const ShardRange& range, int64_t warm_ns_max);

 private:
  // A shard whose rows are being written.
  struct Arriving {
    std::shared_ptr<Shard> shard;  // the one that it replaces, closed and without its store
    std::unique_ptr<ShardRowWriter> rows;
  };
  // The rows of the shard, which is closed, go.
  absl::Status Empty(const std::shared_ptr<Shard>& shard);
  absl::StatusOr<std::unique_ptr<ShardRowWriter>> EmptyAndReceive(
      const std::shared_ptr<Shard>& shard, Lsn lsn);
  absl::Status OpenInstalled(ShardId id, const ShardRange& range, const LogPosition& log_from,
                             int64_t warm_ns_max);

  const Wiring wiring_;
  std::map<ShardId, Arriving> arriving_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_HOST_SNAPSHOT_INSTALLER_H_
