#include "planner/coordinator/shell/attend_hub.h"

#include <memory>
#include <optional>
#include <utility>
#include <variant>

namespace hotbed {

class AttendHub::Stream final : public Streams::Stream {
 public:
  Stream(AttendHub* hub, grpc::CallbackServerContext* context)
      : Streams::Stream(&hub->streams_, context), hub_(hub) {}

  void OnReadDone(bool ok) override {
    if (!ok) {
      absl::MutexLock lock(&mu_);
      FinishLocked(grpc::Status::OK);
      return;
    }
    const Member process{request_.server(), request_.incarnation()};
    {
      absl::MutexLock lock(&mu_);
      const Member before = std::exchange(process_, process);
      if (before != process) {
        if (before.server != 0) hub_->Leave(before, this);
        if (!finished_) hub_->Attend(process, this);  // nobody would remove it again
      }
    }
    // The answer comes on this thread, or later on the coordinator's; the stream lives until then.
    hub_->coordinator_->Submit(request_, [this, keep = self()](absl::StatusOr<Reply> reply) {
      OnAnswer(std::move(reply));
    });
    absl::MutexLock lock(&mu_);
    if (!finished_) StartRead(&request_);
  }

 private:
  void Begin() override { StartRead(&request_); }

  std::shared_ptr<const v1::HeartbeatReply> TakeMessage() override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    auto message = std::make_shared<v1::HeartbeatReply>();
    if (answer_.has_value()) {
      *message = *std::exchange(answer_, std::nullopt);
    } else {
      if (process_.server == 0 || !told_) return nullptr;  // the first heartbeat was not answered
      std::optional<Coordinator::ServerNews> news =
          hub_->coordinator_->NewsFor(process_.server, process_.incarnation, sent_);
      if (!news.has_value()) return nullptr;
      *message = std::move(news->reply);
      sent_ = news->known;
    }
    if (message->map().plan_revision() != 0) sent_.plan_revision = message->map().plan_revision();
    told_ = true;
    return message;
  }

  // An end from this side says nothing about the process.
  void OnEnd(bool here) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (process_.server != 0 && hub_->Leave(process_, this) && !here) {
      hub_->coordinator_->StreamBroken(process_.server, process_.incarnation);
    }
  }

  void OnAnswer(absl::StatusOr<Reply> reply) {
    if (!reply.ok()) return End(ToGrpc(reply.status()));
    {
      absl::MutexLock lock(&mu_);
      // Replaces an answer that still waits: the later one includes all of it.
      answer_ = std::get<v1::HeartbeatReply>(*std::move(reply));
    }
    Pump();
  }

  AttendHub* const hub_;
  v1::HeartbeatRequest request_;                                   // used by the reading side only
  Member process_ ABSL_GUARDED_BY(mu_);                            // sender of the last message
  std::optional<v1::HeartbeatReply> answer_ ABSL_GUARDED_BY(mu_);  // to be written
  NewsKnown sent_ ABSL_GUARDED_BY(mu_);
  bool told_ ABSL_GUARDED_BY(mu_) = false;  // an answer was sent
};

AttendHub::Reactor* AttendHub::Open(grpc::CallbackServerContext* context) {
  return streams_.Open(std::make_shared<Stream>(this, context));
}

void AttendHub::Attend(const Member& process, const Stream* stream) {
  absl::MutexLock lock(&mu_);
  latest_[{process.server, process.incarnation}] = stream;
}

bool AttendHub::Leave(const Member& process, const Stream* stream) {
  absl::MutexLock lock(&mu_);
  auto it = latest_.find({process.server, process.incarnation});
  if (it == latest_.end() || it->second != stream) return false;
  latest_.erase(it);
  return true;
}

}  // namespace hotbed
