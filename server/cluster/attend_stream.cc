#include "server/cluster/attend_stream.h"

#include <utility>

namespace hotbed {

AttendStream::AttendStream(v1::Coordinator::Stub* stub, OnReply on_reply,
                           std::function<void()> on_end)
    : stream_(stub->Attend(&context_)),
      on_reply_(std::move(on_reply)),
      on_end_(std::move(on_end)),
      thread_([this] { Read(); }) {}

AttendStream::~AttendStream() {
  Cancel();
  thread_.join();
}

bool AttendStream::Send(const v1::HeartbeatRequest& request) {
  return !broken() && stream_->Write(request);
}

bool AttendStream::broken() const {
  absl::MutexLock lock(&mu_);
  return broken_;
}

grpc::Status AttendStream::status() const {
  absl::MutexLock lock(&mu_);
  return status_;
}

void AttendStream::Read() {
  v1::HeartbeatReply reply;
  while (stream_->Read(&reply)) on_reply_(reply);
  grpc::Status status = stream_->Finish();
  if (status.ok()) {
    status = grpc::Status(grpc::StatusCode::UNAVAILABLE, "the coordinator ended the stream");
  }
  {
    absl::MutexLock lock(&mu_);
    broken_ = true;
    status_ = std::move(status);
  }
  on_end_();
}

}  // namespace hotbed
