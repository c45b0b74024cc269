// One call of Coordinator.Attend: heartbeats up, replies and news down. Replies are read on one
// thread of the stream's own and applied on another: a map that opens a thousand shards takes a
// while, and heartbeats are answered meanwhile.
//
// A map is told as what has changed since the one before. So once a reply could not be applied, the
// maps of later ones are left out, until the answer to a heartbeat that was sent afterwards.
//
// Thread-safe, but Send() and the destructor belong to one thread.
#ifndef HOTBED_SERVER_CLUSTER_ATTEND_STREAM_H_
#define HOTBED_SERVER_CLUSTER_ATTEND_STREAM_H_

#include <grpcpp/client_context.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "leader/leader_stub.h"
#include "proto/control.grpc.pb.h"

namespace hotbed {

class AttendStream {
 public:
  // `sent_ns` (Clock::NowNs()): when the heartbeat that `reply` answers was sent; 0 for news
  // between two heartbeats. An error says that the reply could not be applied and has to come
  // again.
  using ReplyListener =
      std::function<absl::Status(const v1::HeartbeatReply& reply, int64_t sent_ns)>;
  using EndListener = std::function<void()>;

  // Opens the stream. Both listeners run on the thread that applies; `on_end` is the last call,
  // made after broken() has become true. `leader` and `clock` outlive the stream.
  AttendStream(LeaderStub* leader, const Clock* clock, ReplyListener on_reply, EndListener on_end);
  // Cancel(), then waits for the reply that is being applied; those behind it are dropped.
  ~AttendStream();
  AttendStream(const AttendStream&) = delete;
  AttendStream& operator=(const AttendStream&) = delete;

  // Numbers `request`, fills in the newest revision that was received here, or else `applied`, and
  // sends it. May block while the coordinator does not read, until Cancel(). Does nothing on a
  // broken stream.
  void Send(uint64_t applied, v1::HeartbeatRequest* request);
  void Cancel() { context_.TryCancel(); }

  bool broken() const;
  // Why the stream ended, once it is broken: never OK.
  grpc::Status status() const;
  // Heartbeats sent of which no answer was read yet.
  size_t unanswered() const;
  // When the oldest of them was sent (Clock::NowNs()); 0: there is none.
  int64_t oldest_unanswered_ns() const;
  // The newest plan revision received here, perhaps still being applied. 0: none, or the last reply
  // could not be applied.
  uint64_t revision_received() const;

 private:
  struct Sent {
    uint64_t number = 0;
    int64_t sent_ns = 0;
  };
  struct Waiting {
    v1::HeartbeatReply reply;
    int64_t sent_ns = 0;
  };
  // Replies that are read and not applied; beyond it no more are read.
  static constexpr size_t kWaitingMax = 64;

  void Read();
  // The time at which the heartbeat that `reply` answers was sent; 0: none.
  int64_t TakeAnswered(const v1::HeartbeatReply& reply) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ApplyAll();
  // Whether the map of `reply` goes on from what was applied.
  bool MapFollows(const v1::HeartbeatReply& reply) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  LeaderStub* const leader_;
  const Clock* const clock_;
  const ReplyListener on_reply_;
  const EndListener on_end_;
  const std::shared_ptr<const LeaderStub::Place> place_;
  grpc::ClientContext context_;
  const std::unique_ptr<grpc::ClientReaderWriter<v1::HeartbeatRequest, v1::HeartbeatReply>> stream_;

  mutable absl::Mutex mu_;
  uint64_t number_ ABSL_GUARDED_BY(mu_) = 0;  // of the last heartbeat
  // Maps are left out until the answer to this heartbeat or a later one; 0: none is.
  uint64_t maps_again_at_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<Waiting> waiting_ ABSL_GUARDED_BY(mu_);
  bool read_all_ ABSL_GUARDED_BY(mu_) = false;
  bool ends_ ABSL_GUARDED_BY(mu_) = false;
  bool broken_ ABSL_GUARDED_BY(mu_) = false;
  grpc::Status status_ ABSL_GUARDED_BY(mu_);
  std::deque<Sent> unanswered_ ABSL_GUARDED_BY(mu_);  // oldest first
  uint64_t revision_received_ ABSL_GUARDED_BY(mu_) = 0;
  std::thread reader_;  // last: they use the members above
  std::thread applier_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_CLUSTER_ATTEND_STREAM_H_
