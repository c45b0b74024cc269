// The mechanics of one bidirectional stream of raw messages over a completion queue: reading while
// answers are pending, a bounded write queue, limits, cancellation and the end. Subclasses give
// messages their meaning.
//
// Life: `new Subclass`, Accept(); from then on the object owns itself and is deleted when no
// operation and no request refers to it. OnMessage runs on the polling thread; the next message of
// the stream is read only after ReadOn(). Answer() may be called from any thread.
//
// Limits: reading stops while `messages_in_flight_max` requests are open or their bytes reach
// `bytes_in_flight_max`; HTTP/2 flow control then holds the client back. A request is open from
// OpenRequest() until its answer is written. A request that would take the open bytes beyond the
// limit can be kept back until it fits or is the only one. A stream whose peer has read nothing of
// an answer for `write_timeout_ms` is cancelled, which frees the memory of its answers.
#ifndef HOTBED_SERVER_NET_BIDI_STREAM_H_
#define HOTBED_SERVER_NET_BIDI_STREAM_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/async_stream.h>
#include <grpcpp/support/byte_buffer.h>

#include <atomic>
#include <cstdint>
#include <deque>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/net/rpc_tag.h"
#include "server/net/stream_watch.h"

namespace hotbed {

class BidiStream : private StreamWatch::Watched {
 public:
  using RawStream = grpc::ServerAsyncReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>;

  struct Limits {
    uint32_t messages_in_flight_max = 64;
    uint64_t bytes_in_flight_max = 64ull << 20;
    int64_t write_timeout_ms = 10'000;
  };

  BidiStream(const BidiStream&) = delete;
  BidiStream& operator=(const BidiStream&) = delete;

  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }
  // An answer that is not written after this time waits for its reader.
  static constexpr int64_t kStalledMs = 100;

 protected:
  // `watch` ticks the stream while the stream lives, and outlives it.
  BidiStream(const Limits& limits, StreamWatch* watch);
  virtual ~BidiStream();

  // Asks gRPC for the next call of this method; `accept_tag` must be passed as its tag.
  virtual void RequestCall(grpc::ServerContext* context, RawStream* stream, void* accept_tag) = 0;
  // A call has arrived: start waiting for the next one. False refuses this call with `*refusal`.
  virtual bool OnAccepted(grpc::Status* refusal) = 0;
  // One message. Must call ReadOn() exactly once, now or later, unless it calls Fail().
  virtual void OnMessage(grpc::ByteBuffer* message) = 0;
  // The answer of a request was written or dropped: its reservation ends.
  virtual void OnReleased(uint64_t reserved) = 0;
  // The peer has read nothing of an answer for kStalledMs. Any thread.
  virtual void OnStalled() {}
  // The request that OpenRequest kept back is open now and continues. Any thread.
  virtual void OnRoom(void* /*message*/) {}

  std::string peer() const { return context_.peer(); }  // as gRPC writes it
  const grpc::ServerContextBase& context() const { return context_; }

  void Accept() { RequestCall(&context_, &stream_, &accept_tag_); }

  // Begins a request of `bytes` (message and answer together) and keeps the stream alive until the
  // request ends. False, only with a `message`: the request does not fit yet; OnRoom(message)
  // follows when it does, when `deadline_ns` has passed (Clock::NowNs() scale, 0: none), or when
  // the stream has gone. Until then no other request may be opened and ReadOn must not be called.
  bool OpenRequest(uint64_t bytes, int64_t deadline_ns = 0, void* message = nullptr);
  // Lets the next message in, at once or when the limits allow it.
  void ReadOn();
  // Ends a request of `bytes` with its answer, or without one if the stream has gone; then
  // OnReleased(reserved). `greets`: the answer carries our hello.
  void Answer(grpc::ByteBuffer* answer, uint64_t bytes, uint64_t reserved, bool greets);
  // Every answer must carry our hello until one that does is queued, so that the first one sent
  // does.
  bool must_greet() const { return !greeted_.load(std::memory_order_acquire); }
  // The peer did not greet and expects no hello. For OnMessage.
  void NeedNotGreet() { greeted_.store(true, std::memory_order_release); }
  // A protocol error: no further message is read, open requests are answered, then the stream ends
  // with `status`.
  void Fail(grpc::Status status);

  // Keeps the stream alive beyond the current operation or request.
  void Ref() { refs_.fetch_add(1, std::memory_order_relaxed); }
  // False: the last reference has gone already.
  bool TryRefSelf() { return TryRef(&refs_); }
  void Unref();

 private:
  struct Outgoing {
    grpc::ByteBuffer answer;
    uint64_t bytes = 0;
    uint64_t reserved = 0;
  };

  struct Held {
    void* message = nullptr;
    uint64_t bytes = 0;
    int64_t deadline_ns = 0;
  };

  bool TryWatch() override;
  void Tick(int64_t now_ns) override;
  void Unwatch() override { Unref(); }

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
  bool HasRoomFor(uint64_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return open_requests_ == 0 || open_bytes_ + bytes <= limits_.bytes_in_flight_max;
  }
  void EndRequest(uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Opens the request that was kept back. Null: there is none, or it does not fit and is not
  // `forced`.
  void* TakeHeld(bool forced) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void MaybeFinish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Limits limits_;
  StreamWatch* const watch_;
  grpc::ServerContext context_;
  RawStream stream_{&context_};
  RpcTag accept_tag_;
  RpcTag read_tag_;
  RpcTag write_tag_;
  RpcTag finish_tag_;
  RpcTag done_tag_;
  grpc::ByteBuffer incoming_;  // owned by the read in flight
  std::atomic<int> refs_{1};   // the accept operation
  std::atomic<bool> cancelled_{false};
  std::atomic<bool> greeted_{false};

  absl::Mutex mu_;
  uint32_t open_requests_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t open_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  Held held_ ABSL_GUARDED_BY(mu_);                  // message null: none
  uint64_t writes_begun_ ABSL_GUARDED_BY(mu_) = 0;  // writes, and Finish
  uint64_t writes_seen_ ABSL_GUARDED_BY(mu_) = 0;   // at the last tick
  int64_t stalled_ticks_ ABSL_GUARDED_BY(mu_) = 0;
  bool read_wanted_ ABSL_GUARDED_BY(mu_) = false;  // ReadOn() was called; the limits held it back
  bool no_more_reads_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  // The front is being written; at most open_requests_ entries.
  std::deque<Outgoing> writes_ ABSL_GUARDED_BY(mu_);
  grpc::Status end_status_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_NET_BIDI_STREAM_H_
