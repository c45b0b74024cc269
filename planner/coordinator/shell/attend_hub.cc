#include "planner/coordinator/shell/attend_hub.h"

#include <optional>
#include <string>
#include <utility>

namespace hotbed {

class AttendHub::Stream : public grpc::ServerBidiReactor<v1::HeartbeatRequest, v1::HeartbeatReply> {
 public:
  Stream(AttendHub* hub, grpc::CallbackServerContext* context) : hub_(hub), context_(context) {}

  // `self` keeps the stream until gRPC is done with it.
  void Begin(std::shared_ptr<Stream> self) {
    self_ = std::move(self);
    StartRead(&request_);
  }
  void Refuse(std::shared_ptr<Stream> self, grpc::Status why) {
    self_ = std::move(self);
    End(std::move(why));
  }

  // Starts a write if there is a message and none is in flight.
  void Pump() {
    absl::MutexLock lock(&mu_);
    if (finished_ || writing_) return;
    if (answer_.has_value()) {
      message_ = *std::exchange(answer_, std::nullopt);
    } else {
      if (process_.server() == 0 || !told_) return;  // the first heartbeat has not been answered
      std::optional<Coordinator::ServerNews> news = hub_->coordinator_->NewsFor(
          process_.server(), process_.incarnation(), sent_revision_, limits_sent_);
      if (!news.has_value()) return;
      message_ = std::move(news->reply);
      limits_sent_ = news->limits_version;
    }
    if (message_.map().plan_revision() != 0) sent_revision_ = message_.map().plan_revision();
    told_ = true;
    writing_ = true;
    write_began_ns_ = hub_->clock_->NowNs();
    StartWrite(&message_);
  }

  // Ends the stream from this side, which says nothing about the process.
  void End(grpc::Status status) {
    absl::MutexLock lock(&mu_);
    ended_here_ = true;
    FinishLocked(std::move(status));
  }

  void DropIfStalled(int64_t now_ns) {
    absl::MutexLock lock(&mu_);
    if (finished_ || !writing_ || now_ns - write_began_ns_ < hub_->options_.stall_ns) return;
    context_->TryCancel();
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      absl::MutexLock lock(&mu_);
      FinishLocked(grpc::Status::OK);
      return;
    }
    v1::Member process;
    process.set_server(request_.server());
    process.set_incarnation(request_.incarnation());
    {
      absl::MutexLock lock(&mu_);
      const v1::Member before = std::exchange(process_, process);
      const bool same =
          before.server() == process.server() && before.incarnation() == process.incarnation();
      if (!same && before.server() != 0) hub_->Leave(before, this);
      if (!same && !finished_) hub_->Attend(process, this);  // nobody would remove it again
    }
    // The answer comes on this thread, or later on the coordinator's; the stream lives until then.
    hub_->coordinator_->Submit(request_, [self = self_](absl::StatusOr<Reply> reply) {
      self->OnAnswer(std::move(reply));
    });
    absl::MutexLock lock(&mu_);
    if (!finished_) StartRead(&request_);
  }

  void OnWriteDone(bool ok) override {
    {
      absl::MutexLock lock(&mu_);
      writing_ = false;
      if (!ok) FinishLocked(grpc::Status::CANCELLED);
    }
    Pump();
  }
  void OnCancel() override {
    absl::MutexLock lock(&mu_);
    FinishLocked(grpc::Status::CANCELLED);
  }
  void OnDone() override {
    std::shared_ptr<Stream> self = std::move(self_);
    hub_->streams_.Remove(self);
  }

 private:
  void OnAnswer(absl::StatusOr<Reply> reply) {
    {
      absl::MutexLock lock(&mu_);
      if (!reply.ok()) {
        ended_here_ = true;
        FinishLocked(grpc::Status(static_cast<grpc::StatusCode>(reply.status().code()),
                                  std::string(reply.status().message())));
        return;
      }
      // Replaces an answer that still waits: the later one includes all of it.
      answer_ = std::get<v1::HeartbeatReply>(*std::move(reply));
    }
    Pump();
  }

  void FinishLocked(grpc::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (std::exchange(finished_, true)) return;
    if (process_.server() != 0 && hub_->Leave(process_, this) && !ended_here_) {
      hub_->coordinator_->StreamBroken(process_.server(), process_.incarnation());
    }
    Finish(std::move(status));
  }

  AttendHub* const hub_;
  grpc::CallbackServerContext* const context_;  // valid until OnDone, used while not finished
  std::shared_ptr<Stream> self_;
  v1::HeartbeatRequest request_;  // used by the reading side only

  absl::Mutex mu_;
  v1::Member process_ ABSL_GUARDED_BY(mu_);  // sender of the last message
  v1::HeartbeatReply message_ ABSL_GUARDED_BY(mu_);
  std::optional<v1::HeartbeatReply> answer_ ABSL_GUARDED_BY(mu_);  // to be written
  uint64_t sent_revision_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t limits_sent_ ABSL_GUARDED_BY(mu_) = 0;
  bool told_ ABSL_GUARDED_BY(mu_) = false;  // an answer was sent
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_here_ ABSL_GUARDED_BY(mu_) = false;
  int64_t write_began_ns_ ABSL_GUARDED_BY(mu_) = 0;
};

AttendHub::AttendHub(Coordinator* coordinator, const Clock* clock, AttendHubOptions options)
    : coordinator_(coordinator),
      clock_(clock),
      options_(options),
      streams_(options.streams_max, "servers attend") {}

AttendHub::~AttendHub() {
  Close();
  streams_.AwaitEmpty();
}

grpc::ServerBidiReactor<v1::HeartbeatRequest, v1::HeartbeatReply>* AttendHub::Open(
    grpc::CallbackServerContext* context) {
  auto stream = std::make_shared<Stream>(this, context);
  grpc::Status refused = streams_.Add(stream);
  if (refused.ok()) {
    stream->Begin(stream);
  } else {
    stream->Refuse(stream, std::move(refused));
  }
  return stream.get();
}

void AttendHub::OnNews() {
  for (const auto& stream : streams_.All()) stream->Pump();
}

void AttendHub::OnTick() {
  const int64_t now_ns = clock_->NowNs();
  for (const auto& stream : streams_.All()) stream->DropIfStalled(now_ns);
}

void AttendHub::Close() { streams_.Close(); }

void AttendHub::Attend(const v1::Member& process, const Stream* stream) {
  absl::MutexLock lock(&mu_);
  latest_[{process.server(), process.incarnation()}] = stream;
}

bool AttendHub::Leave(const v1::Member& process, const Stream* stream) {
  absl::MutexLock lock(&mu_);
  auto it = latest_.find({process.server(), process.incarnation()});
  if (it == latest_.end() || it->second != stream) return false;
  latest_.erase(it);
  return true;
}

}  // namespace hotbed
