// One lane to one server over gRPC: a bidirectional stream of raw byte messages. StreamBacklog
// decides when a message may be written and which requests it carries; this class drives the
// stream.
//
// Thread rule: Send from any thread; events arrive on the threads that poll the completion queue.
// Requests are written in the order of Send. When the stream ends, every open request is Done with
// the reason, and the stream is dead: the transport opens a new one for the next request. Done is
// called without any lock held.
//
// A lookup stream that nothing used for a while ends, and the next lookup opens another: a server
// with many inference clients closes connections that are idle to make room, and none with an open
// stream is.
#ifndef HOTBED_CLIENT_NET_SERVER_STREAM_H_
#define HOTBED_CLIENT_NET_SERVER_STREAM_H_

#include <grpcpp/alarm.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/net/completion_poller.h"
#include "client/net/grpc_message.h"
#include "client/net/stream_backlog.h"
#include "client/net/transport.h"

namespace hotbed {

struct GrpcCounters {
  std::atomic<uint64_t> bytes_sent{0};
  std::atomic<uint64_t> bytes_received{0};
  std::atomic<uint64_t> messages{0};
  std::atomic<uint64_t> reconnects{0};
  std::atomic<uint64_t> message_bytes_max{0};  // the smallest in a server's hello; 0: none arrived

  // Takes a server's hello into account.
  void NoteHello(const v1::Hello& hello);
};

// Counts the streams and calls that still wait for an event: a completion queue may be shut down
// only when there are none. Thread-safe.
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

class ServerStream : public std::enable_shared_from_this<ServerStream> {
 public:
  // How long a request waits for company while the server is busy.
  static constexpr std::chrono::milliseconds kHoldMax{1};
  // A lookup stream that was not used from one multiple of this to the next rests.
  static constexpr std::chrono::milliseconds kRestAfter{1000};

  // `joined_bytes_max` as in StreamBacklog. `stub`, `queue`, `counters` and `live` outlive the
  // stream.
  ServerStream(std::string address, Lane lane, v1::Hello hello, grpc::GenericStub* stub,
               grpc::CompletionQueue* queue, GrpcCounters* counters, LiveCount* live,
               uint64_t joined_bytes_max);

  void Start();
  // False when the stream is dead; message and request are then unchanged.
  bool Send(OutgoingMessage* message, std::shared_ptr<PendingRequest>* request);
  void Cancel();
  bool dead() const;

 private:
  enum Op { kStart, kWrite, kHold, kRest, kRead, kFinish, kOpCount };
  struct Event final : CompletionEvent {
    void Run(bool ok) override;
    ServerStream* stream = nullptr;
    Op op = kStart;
  };
  using Dropped = StreamBacklog::RequestList;

  void OnStart(bool ok);
  void OnWrite(bool ok);
  void OnHold();
  void OnRest();
  void OnRead(bool ok);
  void OnFinish();
  // The requests that the message answers; none ends the stream.
  StreamBacklog::Requests TakeAnswered(bool parsed, const v1::ReplyHeader& header, Dropped* dropped)
      ABSL_LOCKS_EXCLUDED(mu_);
  void Dispatch(const grpc::ByteBuffer& buffer);
  static void DeliverReply(const ReceivedMessage& message,
                           absl::Span<const StreamBacklog::Joined> requests);
  static void EndDropped(const Dropped& dropped);
  // Writes the next message if nothing hinders. Requests that nobody waits for go to `dropped`, to
  // be ended without the lock. Null (inside Send, which may end no request): they are written like
  // any other.
  void Pump(Dropped* dropped) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SetHoldAlarm() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SetRestAlarm() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Fail() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Keeps the stream alive until the event has run.
  Event* Arm(Op op) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::string address_;
  const Lane lane_;
  const v1::Hello hello_;
  grpc::GenericStub* const stub_;
  grpc::CompletionQueue* const queue_;
  GrpcCounters* const counters_;
  LiveCount* const live_;
  grpc::ClientContext context_;
  grpc::Status finish_status_;
  Event events_[kOpCount];
  grpc::Alarm hold_alarm_;
  grpc::Alarm rest_alarm_;
  grpc::ByteBuffer incoming_;  // of the one read in flight

  mutable absl::Mutex mu_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_ ABSL_GUARDED_BY(mu_);
  StreamBacklog backlog_ ABSL_GUARDED_BY(mu_);
  std::vector<std::shared_ptr<ServerStream>> self_ ABSL_GUARDED_BY(mu_);  // one per event in flight
  bool holding_ ABSL_GUARDED_BY(mu_) = false;                             // the alarm is set
  bool used_ ABSL_GUARDED_BY(mu_) = false;    // since the rest alarm was set
  bool rested_ ABSL_GUARDED_BY(mu_) = false;  // we have closed our side
  bool started_ ABSL_GUARDED_BY(mu_) = false;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool reading_ ABSL_GUARDED_BY(mu_) = false;
  bool failed_ ABSL_GUARDED_BY(mu_) = false;
  bool finishing_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_NET_SERVER_STREAM_H_
