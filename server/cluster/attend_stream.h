// One call of Coordinator.Attend: heartbeats up, what the coordinator says down, on a thread of its
// own. Thread-safe, but one Send at a time.
#ifndef HOTBED_SERVER_CLUSTER_ATTEND_STREAM_H_
#define HOTBED_SERVER_CLUSTER_ATTEND_STREAM_H_

#include <grpcpp/client_context.h>

#include <functional>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "proto/control.grpc.pb.h"

namespace hotbed {

class AttendStream {
 public:
  using OnReply = std::function<void(const v1::HeartbeatReply&)>;

  // Opens it. Both functions run on its thread; `on_end` is the last one, after broken() has become
  // true.
  AttendStream(v1::Coordinator::Stub* stub, OnReply on_reply, std::function<void()> on_end);
  ~AttendStream();  // Cancel(), and waits for what is being applied
  AttendStream(const AttendStream&) = delete;
  AttendStream& operator=(const AttendStream&) = delete;

  // False: it is broken. May wait while the coordinator does not read, until Cancel().
  bool Send(const v1::HeartbeatRequest& request);
  void Cancel() { context_.TryCancel(); }

  bool broken() const;
  // How it ended, once it is broken: never OK.
  grpc::Status status() const;

 private:
  void Read();

  grpc::ClientContext context_;
  const std::unique_ptr<grpc::ClientReaderWriter<v1::HeartbeatRequest, v1::HeartbeatReply>> stream_;
  const OnReply on_reply_;
  const std::function<void()> on_end_;
  mutable absl::Mutex mu_;
  bool broken_ ABSL_GUARDED_BY(mu_) = false;
  grpc::Status status_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_CLUSTER_ATTEND_STREAM_H_
