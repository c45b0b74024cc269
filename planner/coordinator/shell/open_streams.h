// The open streams of one method: at most a limit, each kept until gRPC is done with it, all ended
// when the service stops. Each stream has at most one message in flight; later news are joined into
// its next message, so a slow reader costs the memory of one message. A stream that takes no
// message for a while is dropped. Thread-safe; streams are called without the lock of all of them.
#ifndef HOTBED_PLANNER_COORDINATOR_SHELL_OPEN_STREAMS_H_
#define HOTBED_PLANNER_COORDINATOR_SHELL_OPEN_STREAMS_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"

namespace hotbed {

inline grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

struct StreamLimits {
  size_t streams_max = 0;
  int64_t stall_ns = 0;  // a stream that takes no message for so long is dropped
};

// Reactor is gRPC's, Message what the streams send.
template <typename Reactor, typename Message>
class OpenStreams {
 public:
  class Stream : public Reactor {
   public:
    // Starts a write if there is a message and none is in flight.
    void Pump() {
      absl::MutexLock lock(&mu_);
      if (finished_ || writing_) return;
      message_ = TakeMessage();
      if (message_ == nullptr) return;
      writing_ = true;
      write_began_ns_ = streams_->clock_->NowNs();
      this->StartWrite(message_.get());
    }
    // Ends the stream from this side.
    void End(grpc::Status status) {
      absl::MutexLock lock(&mu_);
      ended_here_ = true;
      FinishLocked(std::move(status));
    }
    void OnWriteDone(bool ok) override {
      {
        absl::MutexLock lock(&mu_);
        writing_ = false;
        message_ = nullptr;
        if (!ok) FinishLocked(grpc::Status::CANCELLED);
      }
      Pump();
    }
    void OnCancel() override {
      absl::MutexLock lock(&mu_);
      FinishLocked(grpc::Status::CANCELLED);
    }
    void OnDone() override {
      const std::shared_ptr<Stream> self = std::move(self_);
      streams_->Remove(self);
    }

   protected:
    Stream(OpenStreams* streams, grpc::CallbackServerContext* context)
        : streams_(streams), context_(context) {}
    // The stream was admitted.
    virtual void Begin() = 0;
    // The next message to send, which streams may share; null: there is none.
    virtual std::shared_ptr<const Message> TakeMessage() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) = 0;
    // The stream ends now; `here`: from this side.
    virtual void OnEnd(bool here) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {}
    void FinishLocked(grpc::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      if (std::exchange(finished_, true)) return;
      OnEnd(ended_here_);
      this->Finish(std::move(status));
    }
    // Keeps the stream alive while it is held.
    std::shared_ptr<Stream> self() const { return self_; }

    absl::Mutex mu_;
    bool finished_ ABSL_GUARDED_BY(mu_) = false;

   private:
    friend class OpenStreams;
    OpenStreams* const streams_;
    grpc::CallbackServerContext* const context_;  // valid until OnDone, used while not finished
    std::shared_ptr<Stream> self_;                // until OnDone
    std::shared_ptr<const Message> message_ ABSL_GUARDED_BY(mu_);  // in flight
    bool writing_ ABSL_GUARDED_BY(mu_) = false;
    bool ended_here_ ABSL_GUARDED_BY(mu_) = false;
    int64_t write_began_ns_ ABSL_GUARDED_BY(mu_) = 0;
  };

  // `are_open` completes the error text when there are too many: "watches are open". It and `clock`
  // must outlive this.
  OpenStreams(StreamLimits limits, const Clock* clock, absl::string_view are_open)
      : limits_(limits), clock_(clock), are_open_(are_open) {}
  ~OpenStreams() {
    Close();
    absl::MutexLock lock(&mu_);
    const auto empty = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return streams_.empty(); };
    mu_.Await(absl::Condition(&empty));
  }

  // Keeps the stream until gRPC is done with it. A stream beyond the limit ends at once.
  Stream* Open(std::shared_ptr<Stream> stream) ABSL_LOCKS_EXCLUDED(mu_) {
    stream->self_ = stream;
    grpc::Status refused;
    {
      absl::MutexLock lock(&mu_);
      if (closed_) {
        refused = Stopping();
      } else if (streams_.size() >= limits_.streams_max) {
        refused = grpc::Status(
            grpc::StatusCode::RESOURCE_EXHAUSTED,
            absl::StrCat(streams_.size(), " ", are_open_, ", the limit is ", limits_.streams_max));
      }
      streams_.insert(stream);
    }
    if (refused.ok()) {
      stream->Begin();
    } else {
      stream->End(std::move(refused));
    }
    return stream.get();
  }
  // Sends the news to every stream without a message in flight.
  void PumpAll() ABSL_LOCKS_EXCLUDED(mu_) {
    for (const auto& stream : All()) stream->Pump();
  }
  void DropStalled() ABSL_LOCKS_EXCLUDED(mu_) {
    const int64_t now_ns = clock_->NowNs();
    for (const auto& stream : All()) {
      absl::MutexLock lock(&stream->mu_);
      const bool stalled = stream->writing_ && now_ns - stream->write_began_ns_ >= limits_.stall_ns;
      if (stalled && !stream->finished_) stream->context_->TryCancel();
    }
  }
  // Ends all streams and refuses new ones.
  void Close() ABSL_LOCKS_EXCLUDED(mu_) {
    {
      absl::MutexLock lock(&mu_);
      closed_ = true;
    }
    for (const auto& stream : All()) stream->End(Stopping());
  }
  size_t size() const ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    return streams_.size();
  }

 private:
  static grpc::Status Stopping() {
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "the coordinator stops");
  }
  // The result keeps every stream alive, even one that is removed in the meantime.
  std::vector<std::shared_ptr<Stream>> All() const ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    return {streams_.begin(), streams_.end()};
  }
  void Remove(const std::shared_ptr<Stream>& stream) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    streams_.erase(stream);
  }

  const StreamLimits limits_;
  const Clock* const clock_;
  const absl::string_view are_open_;
  mutable absl::Mutex mu_;
  absl::flat_hash_set<std::shared_ptr<Stream>> streams_ ABSL_GUARDED_BY(mu_);
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_SHELL_OPEN_STREAMS_H_
