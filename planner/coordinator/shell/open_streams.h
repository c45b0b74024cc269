// The open streams of one method: at most a limit, each kept until gRPC is done with it, all ended
// when the service stops. Thread-safe; calls to streams are made without the lock.
#ifndef HOTBED_PLANNER_COORDINATOR_SHELL_OPEN_STREAMS_H_
#define HOTBED_PLANNER_COORDINATOR_SHELL_OPEN_STREAMS_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"

namespace hotbed {

// Stream has End(grpc::Status).
template <typename Stream>
class OpenStreams {
 public:
  // `are_open` completes the error text when there are too many: "watches are open". It must
  // outlive this.
  OpenStreams(size_t streams_max, absl::string_view are_open)
      : streams_max_(streams_max), are_open_(are_open) {}

  // Keeps the stream until Remove, even if it is refused. Not OK: why the stream must end at once.
  grpc::Status Add(std::shared_ptr<Stream> stream) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    grpc::Status status;
    if (closed_) {
      status = Stopping();
    } else if (streams_.size() >= streams_max_) {
      status = grpc::Status(
          grpc::StatusCode::RESOURCE_EXHAUSTED,
          absl::StrCat(streams_.size(), " ", are_open_, ", the limit is ", streams_max_));
    }
    streams_.insert(std::move(stream));
    return status;
  }
  void Remove(const std::shared_ptr<Stream>& stream) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    streams_.erase(stream);
  }
  // The result keeps every stream alive, even one that is removed in the meantime.
  std::vector<std::shared_ptr<Stream>> All() const ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    return {streams_.begin(), streams_.end()};
  }
  // Ends all streams and refuses new ones.
  void Close() ABSL_LOCKS_EXCLUDED(mu_) {
    {
      absl::MutexLock lock(&mu_);
      closed_ = true;
    }
    for (const auto& stream : All()) stream->End(Stopping());
  }
  void AwaitEmpty() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    const auto empty = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return streams_.empty(); };
    mu_.Await(absl::Condition(&empty));
  }
  size_t size() const ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    return streams_.size();
  }

 private:
  static grpc::Status Stopping() {
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "the coordinator stops");
  }

  const size_t streams_max_;
  const absl::string_view are_open_;
  mutable absl::Mutex mu_;
  absl::flat_hash_set<std::shared_ptr<Stream>> streams_ ABSL_GUARDED_BY(mu_);
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_SHELL_OPEN_STREAMS_H_
