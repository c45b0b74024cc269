#include "planner/coordinator/shell/scheduled_saves.h"

#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "absl/synchronization/notification.h"
#include "checkpoint/fold.h"
#include "checkpoint/prune.h"
#include "client/checkpoint/save_checkpoint.h"
#include "client/net/grpc_checkpoint_cluster.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "places/place_finder.h"

namespace hotbed {
namespace {

constexpr int64_t kOrphanMs = 3'600'000;

int64_t UnixMs() { return Clock::Real()->WallUs() / 1000; }

// This coordinator needs no call to itself for the map.
class OwnCluster final : public CheckpointCluster {
 public:
  OwnCluster(Coordinator* coordinator, const ClientIdentity& identity)
      : coordinator_(*coordinator),
        servers_("", identity),
        disks_([coordinator] { return coordinator->Map(0); }, identity) {}
  absl::StatusOr<v1::ClusterMap> GetMap(absl::Duration timeout) override {
    return coordinator_.Map(0);
  }
  absl::StatusOr<v1::CreateTablesReply> CreateTables(const v1::CreateTablesRequest&) override {
    return absl::UnimplementedError("a save creates no tables");
  }
  absl::Status DropTable(const std::string&) override {
    return absl::UnimplementedError("a save drops no table");
  }
  absl::StatusOr<v1::HoldStepReply> HoldStep(const v1::HoldStepRequest&) override {
    return absl::UnimplementedError("saves by a schedule are not aligned to steps");
  }
  absl::Status BeginSave(const std::string& address, const v1::BeginSaveRequest& request) override {
    return servers_.BeginSave(address, request);
  }
  absl::StatusOr<v1::WatchSaveReply> WatchSave(const std::string& address,
                                               const v1::WatchSaveRequest& request) override {
    return servers_.WatchSave(address, request);
  }
  absl::StatusOr<v1::WatchRestoreReply> WatchRestore(
      const std::string& address, const v1::WatchRestoreRequest& request) override {
    return servers_.WatchRestore(address, request);
  }
  absl::StatusOr<v1::TopKReply> TopK(const std::string&, const v1::TopKRequest&) override {
    return absl::UnimplementedError("a save ranks no rows");
  }
  absl::StatusOr<v1::SoftmaxReply> Softmax(const std::string& /*address*/, bool /*gradient*/,
                                           const v1::SoftmaxRequest& /*request*/) override {
    return absl::UnimplementedError("a coordinator has no output layer");
  }
  absl::StatusOr<Place*> ServersDisks() override { return &disks_; }

 private:
  const Coordinator& coordinator_;
  GrpcCheckpointCluster servers_;
  ServersPlace disks_;
};

// Every request is answered, also when the coordinator stops.
absl::StatusOr<v1::ScheduleCheckpointsReply> Note(Coordinator* coordinator, ScheduledSave save) {
  struct Answer {
    absl::Notification came;
    absl::StatusOr<Reply> reply;
  };
  const auto answer = std::make_shared<Answer>();
  coordinator->Submit(std::move(save), [answer](absl::StatusOr<Reply> reply) {
    answer->reply = std::move(reply);
    answer->came.Notify();
  });
  answer->came.WaitForNotification();
  HOTBED_RETURN_IF_ERROR(answer->reply.status());
  return std::get<v1::ScheduleCheckpointsReply>(*std::move(answer->reply));
}

absl::StatusOr<CheckpointScheduler::Saved> Save(OwnCluster* cluster,
                                                const v1::CheckpointSchedule& schedule,
                                                const std::function<bool()>& stop) {
  SaveOptions options;
  options.directory = schedule.place();
  options.tables = {schedule.tables().begin(), schedule.tables().end()};
  options.bytes_per_s = schedule.bytes_per_s();
  options.incremental = schedule.incremental();
  options.compress = schedule.compress();
  options.stop = stop;
  HOTBED_ASSIGN_OR_RETURN(SavedCheckpoint saved, SaveCheckpoint(cluster, options));
  return CheckpointScheduler::Saved{std::move(saved.path), saved.generation};
}

absl::StatusOr<std::string> Fold(const v1::CheckpointSchedule& schedule, const std::string& path,
                                 const std::function<bool()>& stop) {
  HOTBED_ASSIGN_OR_RETURN(Place* const place, PlaceFinder::Real()->Of(path));
  FoldOptions options;
  options.bytes_per_s = schedule.bytes_per_s();
  options.stop = stop;
  HOTBED_ASSIGN_OR_RETURN(Folded folded, FoldCheckpoint(path, options, place, Clock::Real()));
  return std::move(folded.path);
}

absl::StatusOr<uint64_t> Prune(OwnCluster* cluster, const v1::CheckpointSchedule& schedule) {
  HOTBED_ASSIGN_OR_RETURN(Place* const place, cluster->PlaceOf(schedule.place()));
  const PruneOptions options = {.keep = schedule.keep(),
                                .orphans_before_unix_ms = UnixMs() - kOrphanMs};
  HOTBED_ASSIGN_OR_RETURN(const Pruned pruned, PruneCheckpoints(schedule.place(), options, place));
  return pruned.deleted.size();
}

}  // namespace

CheckpointScheduler::Hands HandsOf(Coordinator* coordinator, const ClientIdentity& identity) {
  const auto cluster = std::make_shared<OwnCluster>(coordinator, identity);
  return {.schedule = [coordinator] { return coordinator->Schedule(); },
          .note = [coordinator](ScheduledSave save) { return Note(coordinator, std::move(save)); },
          .save =
              [cluster](const v1::CheckpointSchedule& schedule, const std::function<bool()>& stop) {
                return Save(cluster.get(), schedule, stop);
              },
          .fold = Fold,
          .prune =
              [cluster](const v1::CheckpointSchedule& schedule) {
                return Prune(cluster.get(), schedule);
              },
          .unix_ms = UnixMs};
}

}  // namespace hotbed
