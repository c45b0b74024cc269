// The core with a store and a clock: carries out the core's actions and delivers its replies to the
// callers. No gRPC here.
//
// Thread-safe. One thread of its own talks to the store and delivers replies; replies that need no
// transaction (heartbeats) come on the caller's thread. PortProbe has threads of its own.
#ifndef HOTBED_PLANNER_COORDINATOR_SHELL_COORDINATOR_H_
#define HOTBED_PLANNER_COORDINATOR_SHELL_COORDINATOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>  // NOLINT(build/c++11)
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "planner/coordinator/core/core.h"
#include "planner/coordinator/shell/port_probe.h"
#include "planner/coordinator/store/meta_store.h"

namespace hotbed {

// Whether the status was given because another coordinator may lead by now.
bool LeadsNoMore(const absl::Status& status);

// The contents of status pages and metrics at one instant.
struct CoordinatorStatus {
  bool serving = false;
  std::string trouble;  // why it does not serve, or empty
  v1::ClusterMap map;   // the whole map
  v1::ListTrainersReply trainers;
  uint64_t sessions = 0;
  uint64_t pending = 0;
  v1::ListMovesReply moves;    // the first ones only
  v1::ListEventsReply events;  // the last ones only
  Membership::Counts done;
  uint64_t shards_waiting = 0;  // for a server, or for their turn
};

class Coordinator {
 public:
  using OnReply = absl::AnyInvocable<void(absl::StatusOr<Reply> reply)>;

  // `store` and `clock` must outlive it.
  Coordinator(CoreOptions options, MetaStore* store, const Clock* clock);
  ~Coordinator();

  // Called on the store thread after the plan or the transfer limits changed. Set before Start.
  void SetNewsListener(std::function<void(bool plan_changed)> listener) {
    news_listener_ = std::move(listener);
  }
  // Called on the store thread about every 50 ms. Set before Start.
  void SetTickListener(std::function<void()> listener) { tick_listener_ = std::move(listener); }

  // Asked before each answer that rests on the leadership: one of several coordinators may have
  // been replaced without knowing, after a pause. Set before Start.
  void SetLeads(std::function<bool()> leads) { leads_ = std::move(leads); }

  // Reads the store and takes the leadership; blocks until it serves or cannot.
  absl::Status Start();
  // Answers all waiting and later requests with Unavailable. Blocks until a transaction in flight
  // ends.
  void Stop();

  // `on_reply` is called exactly once, from any thread, also from within Submit; it must not block.
  void Submit(Request request, OnReply on_reply) ABSL_LOCKS_EXCLUDED(mu_);
  // The address is told with maps.
  void SetAdminAddress(std::string address) ABSL_LOCKS_EXCLUDED(mu_);
  // Unavailable until it serves.
  absl::StatusOr<v1::ClusterMap> Map(uint64_t revision_known, bool rates = false) const
      ABSL_LOCKS_EXCLUDED(mu_);
  // As Core::MapToFollow; null: no news. Those who know the same revision share one map, since
  // thousands of clients may follow.
  absl::StatusOr<std::shared_ptr<const v1::ClusterMap>> MapToFollow(uint64_t revision_known) const
      ABSL_LOCKS_EXCLUDED(mu_);
  // The cluster as the planner sees it, with measured loads if there are any. Unavailable until it
  // serves.
  absl::StatusOr<ClusterView> View() const ABSL_LOCKS_EXCLUDED(mu_);
  bool Serving() const ABSL_LOCKS_EXCLUDED(mu_);
  // The newest revision that Map would show.
  uint64_t plan_revision() const ABSL_LOCKS_EXCLUDED(mu_);
  v1::ListTrainersReply Trainers() const ABSL_LOCKS_EXCLUDED(mu_);
  // Unavailable until it serves.
  absl::StatusOr<v1::ListMovesReply> Moves(const v1::ListMovesRequest& request) const
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<v1::ListEventsReply> Events(const v1::ListEventsRequest& request) const
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<v1::ServingMap> ServingTables() const ABSL_LOCKS_EXCLUDED(mu_);
  // Unavailable until it serves.
  absl::StatusOr<v1::ScheduleCheckpointsReply> Schedule() const ABSL_LOCKS_EXCLUDED(mu_);
  // A backup of the metadata store (state/metadata_backup.h). Unavailable until it serves.
  absl::StatusOr<v1::BackupMetadataReply> Backup() const ABSL_LOCKS_EXCLUDED(mu_);
  // News for the process of a server (Core::News).
  struct ServerNews {
    v1::HeartbeatReply reply;
    NewsKnown known;  // once the reply is read
  };
  std::optional<ServerNews> NewsFor(ServerId server, Incarnation incarnation,
                                    const NewsKnown& known) const ABSL_LOCKS_EXCLUDED(mu_);
  // The heartbeat stream of this process broke. Never blocks for long.
  void StreamBroken(ServerId server, Incarnation incarnation) ABSL_LOCKS_EXCLUDED(mu_);
  CoordinatorStatus Status() const ABSL_LOCKS_EXCLUDED(mu_);
  // Not OK once it can never serve again, because it was overtaken or the store is unreadable. The
  // process should then end.
  absl::Status Fatal() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  using Answers = std::vector<std::pair<OnReply, absl::StatusOr<Reply>>>;
  struct StoreWork {
    bool load = false;
    bool head = false;  // as in Ready
    std::optional<Transaction> commit;
  };

  void Run();
  // Passes an event to the core, at the current time.
  void StepLocked(Event event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void StepAndGive(Event event) ABSL_LOCKS_EXCLUDED(mu_);
  // Takes over the core's actions; the caller delivers the returned answers without the lock.
  Answers TakeReady() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Unready() const ABSL_SHARED_LOCKS_REQUIRED(mu_);
  // A heartbeat is answered by the leader alone: the answer is a lease.
  absl::StatusOr<Reply> Checked(absl::StatusOr<Reply> reply) const;
  static void Give(Answers&& answers);
  Event Carry(StoreWork work);

  MetaStore* const store_;
  const Clock* const clock_;
  std::function<void(bool)> news_listener_;
  std::function<void()> tick_listener_;
  std::function<bool()> leads_ = [] { return true; };

  mutable absl::Mutex mu_;
  Core core_ ABSL_GUARDED_BY(mu_);
  std::string admin_address_ ABSL_GUARDED_BY(mu_);
  // The maps that MapToFollow has made at one revision, by the revision known. Most followers know
  // the last one, or none.
  struct Followed {
    uint64_t revision = 0;
    absl::flat_hash_map<uint64_t, std::shared_ptr<const v1::ClusterMap>> since;
  };
  static constexpr size_t kFollowedMax = 4;
  mutable Followed followed_ ABSL_GUARDED_BY(mu_);
  std::optional<StoreWork> work_ ABSL_GUARDED_BY(mu_);
  CallerToken next_caller_ ABSL_GUARDED_BY(mu_) = 1;
  absl::flat_hash_map<CallerToken, OnReply> callers_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;

  std::unique_ptr<PortProbe> probe_;
  std::thread thread_;
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_SHELL_COORDINATOR_H_
