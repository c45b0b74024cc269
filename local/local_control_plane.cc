#include "local/local_control_plane.h"

#include <string>
#include <utility>

#include "client/map/map_messages.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "proto/convert.h"
#include "server/export/checkpoint_calls.h"
#include "server/export/row_life.h"
#include "server/export/top_k_calls.h"

namespace hotbed {
namespace {

constexpr absl::Duration kCallTimeout = absl::Seconds(60);

// The engine is the only server, and its address does not matter.
class LocalCheckpointCluster final : public CheckpointCluster {
 public:
  explicit LocalCheckpointCluster(std::shared_ptr<LocalEngine> engine)
      : engine_(std::move(engine)) {}

  absl::StatusOr<v1::ClusterMap> GetMap(absl::Duration /*timeout*/) override {
    return engine_->coordinator()->Map(0);
  }
  absl::StatusOr<v1::CreateTablesReply> CreateTables(
      const v1::CreateTablesRequest& request) override {
    HOTBED_ASSIGN_OR_RETURN(auto reply, engine_->Call<v1::CreateTablesReply>(
                                            v1::CreateTablesRequest(request), kCallTimeout));
    HOTBED_RETURN_IF_ERROR(engine_->TakeUp());
    return reply;
  }
  absl::Status DropTable(const std::string& name) override {
    v1::DropTableRequest request;
    request.set_name(name);
    HOTBED_RETURN_IF_ERROR(
        engine_->Call<v1::DropTableReply>(std::move(request), kCallTimeout).status());
    return engine_->TakeUp();
  }
  absl::StatusOr<v1::HoldStepReply> HoldStep(const v1::HoldStepRequest& request) override {
    return engine_->Call<v1::HoldStepReply>(v1::HoldStepRequest(request), kCallTimeout);
  }
  absl::Status BeginSave(const std::string& /*address*/,
                         const v1::BeginSaveRequest& request) override {
    return engine_->saves()->Begin(request);
  }
  absl::StatusOr<v1::WatchSaveReply> WatchSave(const std::string& /*address*/,
                                               const v1::WatchSaveRequest& request) override {
    return engine_->saves()->Watch(request);
  }
  absl::StatusOr<v1::WatchRestoreReply> WatchRestore(
      const std::string& /*address*/, const v1::WatchRestoreRequest& request) override {
    return RestoreState(engine_->host(), request.table());
  }
  absl::StatusOr<v1::TopKReply> TopK(const std::string& /*address*/,
                                     const v1::TopKRequest& request) override {
    const Clock& clock = *Clock::Real();
    const int64_t until_ns = clock.NowNs() + request.timeout_ms() * kMillisecondNs;
    return AnswerTopK(engine_->host(), request, [&clock, until_ns] {
      return clock.NowNs() < until_ns ? absl::OkStatus()
                                      : absl::DeadlineExceededError("no time is left");
    });
  }
  absl::StatusOr<v1::SoftmaxReply> Softmax(const std::string& /*address*/, bool gradient,
                                           const v1::SoftmaxRequest& request) override {
    return engine_->softmax()->Answer(SoftmaxCalls::WhatOf(gradient, request), request);
  }
  absl::StatusOr<v1::NumberReply> Number(const std::string& /*address*/,
                                         const v1::NumberRequest& request) override {
    return engine_->Number(request);
  }
  absl::StatusOr<v1::RowLifeReply> RowLife(const std::string& /*address*/,
                                           const v1::RowLifeRequest& request,
                                           absl::Duration /*timeout*/) override {
    return AnswerRowLife(engine_->host(), request, [] { return absl::OkStatus(); });
  }

 private:
  const std::shared_ptr<LocalEngine> engine_;
};

class LocalControlPlane final : public ControlPlane {
 public:
  explicit LocalControlPlane(std::shared_ptr<LocalEngine> engine) : engine_(std::move(engine)) {}

  absl::StatusOr<MapUpdate> GetMap(uint64_t revision_known, absl::Duration /*timeout*/) override {
    HOTBED_ASSIGN_OR_RETURN(const v1::ClusterMap map, engine_->coordinator()->Map(revision_known));
    return MapUpdateOf(map);
  }

  absl::Status Watch(uint64_t revision_known,
                     const std::function<void(const MapUpdate&)>& news) override {
    uint64_t seen = 0;
    while (engine_->AwaitNews(&seen, &stopped_)) {
      HOTBED_ASSIGN_OR_RETURN(const auto map, engine_->coordinator()->MapToFollow(revision_known));
      if (map == nullptr || map->plan_revision() == revision_known) continue;
      HOTBED_ASSIGN_OR_RETURN(const MapUpdate update, MapUpdateOf(*map));
      revision_known = update.plan_revision;
      news(update);
    }
    return absl::CancelledError("stopped");
  }

  void StopWatching() override { engine_->Wake(&stopped_); }

  absl::StatusOr<MapUpdate> CreateTable(const TableSpec& spec, bool if_not_exists,
                                        absl::Duration timeout) override {
    v1::CreateTableRequest request;
    *request.mutable_spec() = ToProto(spec);
    request.set_if_not_exists(if_not_exists);
    HOTBED_ASSIGN_OR_RETURN(const auto reply,
                            engine_->Call<v1::CreateTableReply>(std::move(request), timeout));
    HOTBED_RETURN_IF_ERROR(engine_->TakeUp());
    return MapUpdateOf(reply);
  }

  absl::StatusOr<MapUpdate> CreateTables(const std::vector<TableSpec>& specs, bool if_not_exists,
                                         absl::Duration timeout) override {
    v1::CreateTablesRequest request;
    for (const TableSpec& spec : specs) *request.add_tables()->mutable_spec() = ToProto(spec);
    request.set_if_not_exists(if_not_exists);
    HOTBED_ASSIGN_OR_RETURN(const auto reply,
                            engine_->Call<v1::CreateTablesReply>(std::move(request), timeout));
    HOTBED_RETURN_IF_ERROR(engine_->TakeUp());
    return MapUpdateOf(reply);
  }

  absl::StatusOr<MapUpdate> DropTable(const std::string& name, absl::Duration timeout) override {
    v1::DropTableRequest request;
    request.set_name(name);
    HOTBED_ASSIGN_OR_RETURN(const auto reply,
                            engine_->Call<v1::DropTableReply>(std::move(request), timeout));
    HOTBED_RETURN_IF_ERROR(engine_->TakeUp());
    return MapUpdateOf(reply);
  }

  absl::StatusOr<SessionIdentity> OpenSession(const std::string& name,
                                              absl::Duration timeout) override {
    v1::OpenSessionRequest request;
    request.set_name(name);
    HOTBED_ASSIGN_OR_RETURN(const auto reply,
                            engine_->Call<v1::OpenSessionReply>(std::move(request), timeout));
    HOTBED_RETURN_IF_ERROR(engine_->TakeUp());
    return SessionIdentity{reply.session(), reply.incarnation()};
  }

  absl::StatusOr<v1::TrainReply> Train(const v1::TrainRequest& request,
                                       absl::Duration timeout) override {
    return engine_->Call<v1::TrainReply>(request, timeout);
  }

  std::unique_ptr<CheckpointCluster> WholeTables() override {
    return std::make_unique<LocalCheckpointCluster>(engine_);
  }

 private:
  const std::shared_ptr<LocalEngine> engine_;
  bool stopped_ = false;  // guarded by the engine: see AwaitNews
};

}  // namespace

std::unique_ptr<ControlPlane> NewLocalControlPlane(std::shared_ptr<LocalEngine> engine) {
  return std::make_unique<LocalControlPlane>(std::move(engine));
}

}  // namespace hotbed
