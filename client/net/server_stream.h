// One lane to one server over gRPC: a bidirectional stream of raw byte messages, with a window of
// requests in flight.
//
// Requests that wait are joined to one message where their keys allow it, up to `joined_bytes_max`
// and the server's own limit, so only once its hello is there: a message costs gRPC and the server
// about as much as some hundred rows of 64 floats do. They wait while a message is being written,
// for room in the window, and while kBusyMessages are unanswered: the server has enough to do until
// one of them is. That last wait ends after kHoldMax, or two slow messages would hold up all that
// come after them.
//
// Thread rule: Send from any thread; events arrive on the threads that poll the completion queue.
// Requests are written in the order of Send. When the stream ends, every open request is Done with
// the reason, and the lane is dead: the transport makes a new one for the next request. Done is
// called without any lock held.
#ifndef HOTBED_CLIENT_NET_SERVER_STREAM_H_
#define HOTBED_CLIENT_NET_SERVER_STREAM_H_

#include <grpcpp/alarm.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "client/net/completion_poller.h"
#include "client/net/transport.h"

namespace hotbed {

struct GrpcCounters {
  std::atomic<uint64_t> bytes_sent{0};
  std::atomic<uint64_t> bytes_received{0};
  std::atomic<uint64_t> messages{0};
  std::atomic<uint64_t> reconnects{0};
  std::atomic<uint64_t> message_bytes_max{0};  // the least in a server's hello; 0: none heard
};

// Takes note of a server's limit; 0 says nothing.
void NoteMessageBytesMax(uint64_t bytes, GrpcCounters* counters);

// How many streams and calls still wait for an event: a completion queue may be shut down only when
// there are none. Thread-safe.
class LiveCount {
 public:
  void Add() {
    absl::MutexLock lock(&mu_);
    ++live_;
  }
  void Remove() {
    absl::MutexLock lock(&mu_);
    --live_;
  }
  void AwaitNone() {
    absl::MutexLock lock(&mu_);
    mu_.Await(absl::Condition(
        +[](int* live) { return *live == 0; }, &live_));
  }

 private:
  absl::Mutex mu_;
  int live_ ABSL_GUARDED_BY(mu_) = 0;
};

// The message as gRPC takes it: one slice for the header, bulk bytes by reference. `prefix` is a
// serialized header with hello and request, which merges with the message's own.
grpc::ByteBuffer ToByteBuffer(const std::string& prefix, OutgoingMessage message);

// A received message, its slices held. Parse fills the reply's view.
class ReceivedMessage {
 public:
  absl::Status Parse(const grpc::ByteBuffer& buffer);
  Reply reply() const {
    return {fragments_, &view_, 0, static_cast<uint32_t>(view_.header.segments_size()), 0};
  }
  const v1::ReplyHeader& header() const { return view_.header; }

 private:
  std::vector<grpc::Slice> slices_;
  std::vector<Fragment> fragments_;
  PullReplyView view_;
};

absl::Status ToStatus(const grpc::Status& status, const std::string& address);

class ServerStream : public std::enable_shared_from_this<ServerStream> {
 public:
  // What a stream may have in flight until the server's hello says otherwise.
  static constexpr uint64_t kWindowMessages = 32;
  static constexpr uint64_t kWindowBytes = 32ull << 20;
  static constexpr uint64_t kJoinedBytesMax = 576ull << 10;  // of the larger direction
  static constexpr size_t kBusyMessages = 2;
  static constexpr std::chrono::milliseconds kHoldMax{1};

  ServerStream(std::string address, Lane lane, v1::Hello hello, grpc::GenericStub* stub,
           grpc::CompletionQueue* queue, GrpcCounters* counters, LiveCount* live,
           uint64_t joined_bytes_max);

  void Start();
  // False when the lane is dead: nothing was taken.
  bool Send(OutgoingMessage* message, std::shared_ptr<PendingRequest>* request);
  void Cancel();
  bool dead() const;

 private:
  enum class Op { kStart, kWrite, kHold, kRead, kFinish };
  struct Event final : CompletionEvent {
    void Run(bool ok) override;
    ServerStream* lane = nullptr;
    Op op = Op::kStart;
  };
  struct Queued {
    OutgoingMessage message;
    std::shared_ptr<PendingRequest> request;
    uint64_t bytes = 0;  // of the larger direction
  };
  struct Joined {
    std::shared_ptr<PendingRequest> request;
    uint32_t segments = 0;
  };
  struct Open {
    absl::InlinedVector<Joined, 4> requests;  // in the order of their segments
    uint64_t bytes = 0;
    uint64_t segments = 0;
  };
  using Cancelled = std::vector<std::shared_ptr<PendingRequest>>;

  void OnStart(bool ok);
  void OnWrite(bool ok);
  void OnHold();
  void OnRead(bool ok);
  void OnFinish();
  void OnHello(const v1::Hello& hello) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Dispatch(const grpc::ByteBuffer& buffer);
  static void DeliverReply(const ReceivedMessage& message, absl::Span<const Joined> requests);
  // Writes the next request if nothing hinders. Requests that nobody waits for go to `cancelled`,
  // to be Done without the lock; null (inside Send, where nothing may be Done): they are written
  // like any other.
  void Pump(Cancelled* cancelled) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether `next` had better wait for company.
  bool HoldsBack(const Queued& next) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SetHoldAlarm() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // True if the first waiting request may go into the message that `open` is so far.
  bool MayJoin(const Open& open, uint64_t key) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Moves the first waiting requests that may travel together into `message`.
  Open TakeJoined(OutgoingMessage* message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Fail() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Holds the lane alive until the event has run.
  Event* Arm(Event* event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::string address_;
  const Lane lane_;
  const v1::Hello hello_;
  grpc::GenericStub* const stub_;
  grpc::CompletionQueue* const queue_;
  GrpcCounters* const counters_;
  LiveCount* const live_;
  const uint64_t joined_bytes_max_;  // 0: every request goes alone
  grpc::ClientContext context_;
  grpc::Status finish_status_;
  Event start_event_, write_event_, hold_event_, read_event_, finish_event_;
  grpc::Alarm hold_alarm_;

  mutable absl::Mutex mu_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_ ABSL_GUARDED_BY(mu_);
  grpc::ByteBuffer incoming_;  // of the one read in flight
  std::deque<Queued> waiting_ ABSL_GUARDED_BY(mu_);
  uint64_t bytes_waiting_ ABSL_GUARDED_BY(mu_) = 0;
  bool holding_ ABSL_GUARDED_BY(mu_) = false;       // the alarm is set
  uint64_t held_request_ ABSL_GUARDED_BY(mu_) = 0;  // the number that waits since it was set
  bool overdue_ ABSL_GUARDED_BY(mu_) = false;  // it has rung: the next message is not held back
  absl::flat_hash_map<uint64_t, Open> open_ ABSL_GUARDED_BY(mu_);
  std::vector<std::shared_ptr<ServerStream>> self_
      ABSL_GUARDED_BY(mu_);  // one for each event under way
  uint64_t next_request_ ABSL_GUARDED_BY(mu_) = 1;
  uint64_t bytes_open_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t window_messages_ ABSL_GUARDED_BY(mu_) = kWindowMessages;
  uint64_t window_bytes_ ABSL_GUARDED_BY(mu_) = kWindowBytes;
  uint64_t joined_bytes_now_ ABSL_GUARDED_BY(mu_) = 0;  // the server's limit in it, once known
  bool started_ ABSL_GUARDED_BY(mu_) = false;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool reading_ ABSL_GUARDED_BY(mu_) = false;
  bool failed_ ABSL_GUARDED_BY(mu_) = false;
  bool finishing_ ABSL_GUARDED_BY(mu_) = false;
  bool dead_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_NET_SERVER_STREAM_H_
