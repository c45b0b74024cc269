#include "planner/coordinator/watch_hub.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace hotbed {

class WatchHub::Stream : public grpc::ServerWriteReactor<v1::ClusterMap> {
 public:
  Stream(WatchHub* hub, grpc::CallbackServerContext* context, uint64_t revision_known)
      : hub_(hub), context_(context), sent_revision_(revision_known) {}

  // `self` keeps the stream until gRPC is done with it.
  void Keep(std::shared_ptr<Stream> self) { self_ = std::move(self); }

  // Starts a write if there is news and none is under way.
  void Pump() {
    absl::MutexLock lock(&mu_);
    if (finished_ || writing_) return;
    if (greeted_ && hub_->coordinator_->plan_revision() == sent_revision_) return;
    absl::StatusOr<v1::ClusterMap> map = hub_->coordinator_->Map(sent_revision_);
    if (!map.ok()) {
      FinishLocked(grpc::Status(static_cast<grpc::StatusCode>(map.status().code()),
                                std::string(map.status().message())));
      return;
    }
    message_ = *std::move(map);
    sent_revision_ = message_.plan_revision();
    greeted_ = true;
    writing_ = true;
    write_began_ns_ = hub_->clock_->NowNs();
    StartWrite(&message_);
  }

  void End(grpc::Status status) {
    absl::MutexLock lock(&mu_);
    FinishLocked(std::move(status));
  }

  void DropIfStalled(int64_t now_ns) {
    absl::MutexLock lock(&mu_);
    if (finished_ || !writing_ || now_ns - write_began_ns_ < hub_->options_.stall_ns) return;
    context_->TryCancel();
  }

  void OnWriteDone(bool ok) override {
    {
      absl::MutexLock lock(&mu_);
      writing_ = false;
      if (!ok) FinishLocked(grpc::Status::CANCELLED);
    }
    Pump();
  }
  void OnCancel() override { End(grpc::Status::CANCELLED); }
  void OnDone() override {
    std::shared_ptr<Stream> self = std::move(self_);
    hub_->Remove(self);
  }

 private:
  void FinishLocked(grpc::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (std::exchange(finished_, true)) return;
    Finish(std::move(status));
  }

  WatchHub* const hub_;
  grpc::CallbackServerContext* const context_;  // valid until OnDone, used while not finished
  std::shared_ptr<Stream> self_;

  absl::Mutex mu_;
  v1::ClusterMap message_ ABSL_GUARDED_BY(mu_);
  uint64_t sent_revision_ ABSL_GUARDED_BY(mu_);
  bool greeted_ ABSL_GUARDED_BY(mu_) = false;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  int64_t write_began_ns_ ABSL_GUARDED_BY(mu_) = 0;
};

WatchHub::WatchHub(const Coordinator* coordinator, const Clock* clock, WatchHubOptions options)
    : coordinator_(coordinator), clock_(clock), options_(options) {}

WatchHub::~WatchHub() {
  Close();
  absl::MutexLock lock(&mu_);
  const auto empty = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return streams_.empty(); };
  mu_.Await(absl::Condition(&empty));
}

grpc::ServerWriteReactor<v1::ClusterMap>* WatchHub::Open(grpc::CallbackServerContext* context,
                                                         uint64_t revision_known) {
  auto stream = std::make_shared<Stream>(this, context, revision_known);
  stream->Keep(stream);
  grpc::Status refused;
  {
    absl::MutexLock lock(&mu_);
    if (closed_) {
      refused = grpc::Status(grpc::StatusCode::UNAVAILABLE, "the coordinator stops");
    } else if (streams_.size() >= options_.streams_max) {
      refused = grpc::Status(
          grpc::StatusCode::RESOURCE_EXHAUSTED,
          absl::StrCat(streams_.size(), " watches are open, the limit is ", options_.streams_max));
    }
    streams_.insert(stream);
  }
  if (refused.ok()) {
    stream->Pump();
  } else {
    stream->End(std::move(refused));
  }
  return stream.get();
}

std::vector<std::shared_ptr<WatchHub::Stream>> WatchHub::Streams() const {
  absl::MutexLock lock(&mu_);
  return {streams_.begin(), streams_.end()};
}

void WatchHub::OnPlanChanged() {
  for (const auto& stream : Streams()) stream->Pump();
}

void WatchHub::OnTick() {
  const int64_t now_ns = clock_->NowNs();
  for (const auto& stream : Streams()) stream->DropIfStalled(now_ns);
}

void WatchHub::Close() {
  {
    absl::MutexLock lock(&mu_);
    closed_ = true;
  }
  for (const auto& stream : Streams()) {
    stream->End(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the coordinator stops"));
  }
}

void WatchHub::Remove(const std::shared_ptr<Stream>& stream) {
  absl::MutexLock lock(&mu_);
  streams_.erase(stream);
}

size_t WatchHub::streams() const {
  absl::MutexLock lock(&mu_);
  return streams_.size();
}

}  // namespace hotbed
