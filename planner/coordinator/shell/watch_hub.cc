#include "planner/coordinator/shell/watch_hub.h"

#include <utility>

namespace hotbed {

class WatchHub::Stream : public grpc::ServerWriteReactor<v1::ClusterMap> {
 public:
  Stream(WatchHub* hub, grpc::CallbackServerContext* context, uint64_t revision_known)
      : hub_(hub), context_(context), sent_revision_(revision_known) {}

  // `self` keeps the stream until gRPC is done with it.
  void Keep(std::shared_ptr<Stream> self) { self_ = std::move(self); }

  // Starts a write if there is news and none is in flight.
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
    hub_->streams_.Remove(self);
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
    : coordinator_(coordinator),
      clock_(clock),
      options_(options),
      streams_(options.streams_max, "watches are open") {}

WatchHub::~WatchHub() {
  Close();
  streams_.AwaitEmpty();
}

grpc::ServerWriteReactor<v1::ClusterMap>* WatchHub::Open(grpc::CallbackServerContext* context,
                                                         uint64_t revision_known) {
  auto stream = std::make_shared<Stream>(this, context, revision_known);
  stream->Keep(stream);
  grpc::Status refused = streams_.Add(stream);
  if (refused.ok()) {
    stream->Pump();
  } else {
    stream->End(std::move(refused));
  }
  return stream.get();
}

void WatchHub::OnPlanChanged() {
  for (const auto& stream : streams_.All()) stream->Pump();
}

void WatchHub::OnTick() {
  const int64_t now_ns = clock_->NowNs();
  for (const auto& stream : streams_.All()) stream->DropIfStalled(now_ns);
}

void WatchHub::Close() { streams_.Close(); }

}  // namespace hotbed
