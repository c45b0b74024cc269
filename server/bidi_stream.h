// The mechanics of one bidirectional stream of raw messages over a completion queue: reading while
// answers are pending, a bounded write queue, limits, cancellation and the end. What a message
// means is the subclass's business.
//
// Life: `new Subclass`, Accept(); after that the object owns itself and is deleted when no
// operation and no work refers to it. OnMessage runs on the polling thread, one message of a stream
// after another up to the point where ReadOn() is called; Answer() and Drop() may be called from
// any thread.
//
// Limits: reading stops while `messages_in_flight_max` requests are open or their bytes exceed
// `bytes_in_flight_max`; HTTP/2 flow control then holds the client back. A request is open from
// OpenRequest() until its answer is written.
#ifndef HOTBED_SERVER_BIDI_STREAM_H_
#define HOTBED_SERVER_BIDI_STREAM_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/async_stream.h>
#include <grpcpp/support/byte_buffer.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/rpc_tag.h"

namespace hotbed {

class BidiStream {
 public:
  using RawStream = grpc::ServerAsyncReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>;

  struct Limits {
    uint32_t messages_in_flight_max = 64;
    uint64_t bytes_in_flight_max = 64ull << 20;
  };

  BidiStream(const BidiStream&) = delete;
  BidiStream& operator=(const BidiStream&) = delete;

  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

 protected:
  explicit BidiStream(const Limits& limits);
  virtual ~BidiStream();

  // Asks gRPC for the next call of this method; `accept_tag` must be passed as its tag.
  virtual void RequestCall(grpc::ServerContext* context, RawStream* stream, void* accept_tag) = 0;
  // A call has arrived: start waiting for the next one. False refuses this one with `*refusal`.
  virtual bool OnAccepted(grpc::Status* refusal) = 0;
  // One message. Must call ReadOn() exactly once, then or later, unless it calls Fail().
  virtual void OnMessage(grpc::ByteBuffer* message) = 0;
  // The answer of a request has left (or was dropped): what it had reserved ends.
  virtual void OnReleased(uint64_t reserved) = 0;

  void Accept() { RequestCall(&context_, &stream_, &accept_tag_); }

  // Begins a request of `bytes` (of message and answer together) and keeps the stream alive until
  // it ends.
  void OpenRequest(uint64_t bytes);
  // Lets the next message in, at once or when the limits allow it.
  void ReadOn();
  // Ends a request of `bytes` with its answer, or without one when the stream has gone; then
  // OnReleased(reserved). `greets`: it carries our hello.
  void Answer(grpc::ByteBuffer* answer, uint64_t bytes, uint64_t reserved, bool greets);
  // Until an answer that greets is in the queue, every answer must: so the first one sent does.
  bool must_greet() const { return !greeted_.load(std::memory_order_acquire); }
  // A protocol error: no further message is read, answers under way are sent, then the stream ends
  // with `status`.
  void Fail(grpc::Status status);

  // Keep the stream alive beyond the operation or request at hand.
  void Ref() { refs_.fetch_add(1, std::memory_order_relaxed); }
  void Unref();

 private:
  struct Outgoing {
    grpc::ByteBuffer answer;
    uint64_t bytes = 0;
    uint64_t reserved = 0;
  };

  void OnAcceptDone(bool ok);
  void OnReadDone(bool ok);
  void OnWriteDone(bool ok);
  void OnCallDone();
  void StartRead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void StartWrite() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool HasRoom() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return open_requests_ < limits_.messages_in_flight_max &&
           open_bytes_ < limits_.bytes_in_flight_max;
  }
  void EndRequest(uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void MaybeFinish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Limits limits_;
  grpc::ServerContext context_;
  RawStream stream_{&context_};
  RpcTag accept_tag_;
  RpcTag read_tag_;
  RpcTag write_tag_;
  RpcTag finish_tag_;
  RpcTag done_tag_;
  grpc::ByteBuffer incoming_;  // owned by the read under way
  std::atomic<int> refs_{1};   // the accept operation
  std::atomic<bool> cancelled_{false};
  std::atomic<bool> greeted_{false};

  absl::Mutex mu_;
  uint32_t open_requests_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t open_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  bool read_wanted_ ABSL_GUARDED_BY(mu_) = false;  // ReadOn() came, the limits held it back
  bool no_more_reads_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<Outgoing> writes_
      ABSL_GUARDED_BY(mu_);  // front is being written; at most open_requests_
  grpc::Status end_status_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_BIDI_STREAM_H_
