// hotbed::Client over its two seams, transport and control plane: makes the engines, gives each
// what it uses, and turns the deadlines of calls into points in time. Thread-safe.
#ifndef HOTBED_CLIENT_CLIENT_IMPL_H_
#define HOTBED_CLIENT_CLIENT_IMPL_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "client/composed/composed_handle.h"
#include "client/map/cluster_map.h"
#include "client/map/control_plane.h"
#include "client/map/map_follower.h"
#include "client/map/read_choice.h"
#include "client/map/table_handle.h"
#include "client/net/client_counters.h"
#include "client/net/retry.h"
#include "client/net/timer.h"
#include "client/net/transport.h"
#include "client/pull/pull_engine.h"
#include "client/push/push_engine.h"
#include "client/push/push_session.h"
#include "client/trainers/commit_delivery.h"
#include "client/trainers/trainer_member.h"
#include "common/clock.h"
#include "hotbed/client.h"

namespace hotbed {

// OK, or InvalidArgument naming the option, its value and the allowed range.
absl::Status ValidateClientOptions(const ClientOptions& options);

class ClientImpl final : public Client {
 public:
  // `options` are valid. `seed` determines jitter and, where the options name no session, its name.
  ClientImpl(const ClientOptions& options, std::unique_ptr<ControlPlane> control,
             std::unique_ptr<Transport> transport, const Clock* clock, uint64_t seed);
  ~ClientImpl() override;

  // Fetches the first map. Call once, before anything else.
  absl::Status Start();

  absl::StatusOr<const Table*> CreateTable(const TableOptions& options,
                                           bool if_not_exists) override;
  // Creates the parts of a composed table, all or none. Those of kFrequency lack an order yet.
  absl::Status CreateParts(const TableOptions& composed, bool if_not_exists);
  absl::StatusOr<const Table*> OpenTable(const std::string& name) override;
  absl::Status DropTable(const std::string& name) override;
  absl::StatusOr<std::vector<TableOptions>> ListTables() override;
  Future<absl::Status> Pull(absl::Span<const PullFeature> features,
                            const PullOptions& options) override;
  Future<PushResult> Push(uint64_t step, absl::Span<const PushFeature> features,
                          const PushOptions& options) override;
  Future<PushResult> Delete(uint64_t step, const Table* table, absl::Span<const uint64_t> ids,
                            absl::Duration deadline) override;
  Future<PushResult> Retry(const PushResult& result, absl::Duration deadline) override;
  std::vector<PushResult> UnansweredPushes(absl::Duration at_least) const override;
  absl::StatusOr<uint64_t> JoinTrainers(absl::Duration deadline) override;
  absl::Status BeginStep(uint64_t step, absl::Duration deadline) override;
  absl::Status EndStep(uint64_t step, absl::Duration deadline) override;
  absl::Status LeaveTrainers(absl::Duration deadline) override;
  uint32_t TrainersInGroup() const override { return trainer_.Members(); }
  Future<absl::Status> Lookup(absl::Span<const PullFeature> features,
                              const PullOptions& options) override;
  ClientStats Stats() const override;
  std::string cluster_id() const override { return map_.Get()->cluster_id(); }
  std::unique_ptr<CheckpointCluster> WholeTables() { return control_->WholeTables(); }
  // The same one for all callers, so that its connections last.
  CheckpointCluster* KeptWholeTables();
  ClusterMapHolder* map() { return &map_; }
  MapFollower* follower() { return &follower_; }
  const Clock* clock() const { return clock_; }
  // When a call that begins now ends; zero: after the client's own deadline.
  int64_t DeadlineNs(absl::Duration deadline) const;
  TrainerSteps trainer_steps() const { return trainer_.Steps(); }
  ClientCounters* counters() { return &counters_; }
  const ClientOptions& options() const { return options_; }
  // A further session of this client, for pushes that do not go through its Push: that of its own
  // name with `part` behind it.
  absl::StatusOr<SessionIdentity> OpenSession(const std::string& part);

 private:
  const Table* HandleOf(const TableRoute& route);
  // The composed table of that name, in the map as it is; null: there is none.
  absl::StatusOr<const Table*> OpenComposed(const std::string& name);
  absl::StatusOr<std::vector<uint32_t>> ReadRanks(const Table* index);
  Future<absl::Status> PullRows(absl::Span<const PullFeature> features, const PullOptions& options,
                                Lane lane);
  std::vector<const TableHandle*> Handles();

  const ClientOptions options_;
  const Clock* const clock_;
  ClientCounters counters_;
  const std::unique_ptr<ControlPlane> control_;
  std::unique_ptr<Transport> transport_;
  ClusterMapHolder map_;
  MapFollower follower_;
  RetryPolicy retry_;
  ReadChoice reads_;
  const EngineParts parts_;
  PullEngine pulls_;
  PushSession session_;
  PushEngine pushes_;
  CommitDelivery delivery_;
  TrainerMember trainer_;
  Timer timer_;  // last: its thread calls the engines

  absl::Mutex mu_;
  std::unique_ptr<CheckpointCluster> whole_tables_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<TableId, std::unique_ptr<TableHandle>> tables_ ABSL_GUARDED_BY(mu_);
  // By the id of the first part.
  absl::flat_hash_map<TableId, std::unique_ptr<ComposedHandle>> composed_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_CLIENT_IMPL_H_
