#include "planner/coordinator/shell/watch_hub.h"

#include <memory>
#include <utility>

namespace hotbed {

class WatchHub::Stream final : public Streams::Stream {
 public:
  Stream(WatchHub* hub, grpc::CallbackServerContext* context, uint64_t revision_known)
      : Streams::Stream(&hub->streams_, context), hub_(hub), sent_revision_(revision_known) {}

 private:
  void Begin() override { Pump(); }

  std::shared_ptr<const v1::ClusterMap> TakeMessage() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (greeted_ && hub_->coordinator_->plan_revision() == sent_revision_) return nullptr;
    absl::StatusOr<std::shared_ptr<const v1::ClusterMap>> map =
        hub_->coordinator_->MapToFollow(sent_revision_);
    if (!map.ok()) {
      FinishLocked(ToGrpc(map.status()));
      return nullptr;
    }
    if (*map == nullptr) return nullptr;
    sent_revision_ = (*map)->plan_revision();
    greeted_ = true;
    return *std::move(map);
  }

  WatchHub* const hub_;
  uint64_t sent_revision_ ABSL_GUARDED_BY(mu_);
  bool greeted_ ABSL_GUARDED_BY(mu_) = false;
};

grpc::ServerWriteReactor<v1::ClusterMap>* WatchHub::Open(grpc::CallbackServerContext* context,
                                                         uint64_t revision_known) {
  return streams_.Open(std::make_shared<Stream>(this, context, revision_known));
}

}  // namespace hotbed
