// The stream to one other server: opened when there is a message to send, opened again when it
// breaks.
//
// Messages wait in a queue while one is being written, then leave together, as many as fit into
// `joined_bytes_max`. With an empty queue a message is written at once, on the caller's thread, or
// at the end of the event that the thread handles (server/peers/replica_batch.h). Nothing is
// written before the peer has answered the hello, so queued messages are not lost while a peer
// cannot be reached.
//
// A loss: messages were written to a stream that broke, or waited behind them, or came while the
// queue was full. From then on everything is dropped until the queue is empty and the host gets
// OnPeerLost, which makes it send again. So messages leave in order, except those that other
// threads send during OnPeerLost; receivers refuse messages that leave a gap.
//
// Thread-safe. Events arrive on the thread that polls the completion queue. Held by shared_ptr;
// every operation in flight holds a reference.
#ifndef HOTBED_SERVER_PEERS_PEER_STREAM_H_
#define HOTBED_SERVER_PEERS_PEER_STREAM_H_

#include <grpcpp/alarm.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "common/random.h"
#include "server/net/rpc_tag.h"
#include "server/peers/peer_limits.h"
#include "server/peers/replica_batch.h"
#include "server/peers/replica_inbox.h"
#include "server/shard/replica/replica_message.h"

namespace hotbed {

class PeerStream final : public ReplicaBatch::Writer,
                         public std::enable_shared_from_this<PeerStream> {
 public:
  struct Ends {
    Member self;
    std::string cluster_id;
    Member peer;
    std::string address;
  };

  // `queue`, `inbox` and `clock` outlive it. `live` counts streams with an operation in flight.
  PeerStream(const PeerStreamOptions& options, Ends ends, grpc::CompletionQueue* queue,
             ReplicaInbox* inbox, const Clock* clock, std::atomic<int>* live);
  ~PeerStream() override;

  const Ends& ends() const { return ends_; }
  void Send(ReplicaMessage message);
  void Flush() override;  // writes waiting messages if no write is in flight
  // The host gets OnPeerLost soon, and before anything is sent.
  void TellLost();
  uint64_t queued_bytes() const;   // as ReplicaNetwork::QueuedBytes
  uint64_t waiting_bytes() const;  // queued and being written, for the metrics
  bool open() const;
  // Ends the stream; waiting messages are lost. Nothing is sent afterwards.
  void Close();

 private:
  struct Call;
  enum class State {
    kIdle,     // no stream, none wanted
    kWaiting,  // for the next retry
    kOpening,  // until the peer's hello has arrived
    kOpen,
    kEnding,  // until all operations in flight have completed
  };

  void OnStart(bool ok);
  void OnRead(bool ok);
  void OnWrite(bool ok);
  void OnFinish();
  void OnRetry(bool ok);
  void OnTell();

  void OpenStream() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WriteHello() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Fail() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Drop() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);  // all waiting messages
  void WaitForRetry() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool MayTell() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Takes the items of the next message. False: there are none, or a write is in flight.
  bool TakeBatch(std::vector<ReplicaMessage>* batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Write(const std::vector<ReplicaMessage>& batch) ABSL_LOCKS_EXCLUDED(mu_);
  // Reports a loss if that is possible now, then writes waiting messages.
  void Continue() ABSL_LOCKS_EXCLUDED(mu_);
  // Keeps the stream alive until the event has run: from Arm to the end of its Event.
  RpcTag* Arm(RpcTag* tag) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  class Event {
   public:
    explicit Event(PeerStream* stream) : stream_(stream->shared_from_this()) {}
    ~Event() { stream_->Disarm(); }
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;

   private:
    const std::shared_ptr<PeerStream> stream_;
  };
  void Disarm() ABSL_LOCKS_EXCLUDED(mu_);

  const PeerStreamOptions options_;
  const Ends ends_;
  grpc::CompletionQueue* const queue_;
  ReplicaInbox* const inbox_;
  const Clock* const clock_;
  std::atomic<int>* const live_;  // streams with an operation in flight
  RpcTag start_tag_, read_tag_, write_tag_, finish_tag_, retry_tag_, tell_tag_;

  mutable absl::Mutex mu_;
  State state_ ABSL_GUARDED_BY(mu_) = State::kIdle;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  bool reading_ ABSL_GUARDED_BY(mu_) = false;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool owes_loss_ ABSL_GUARDED_BY(mu_) = false;
  bool telling_ ABSL_GUARDED_BY(mu_) = false;  // the event that reports the loss is in flight
  bool broken_ ABSL_GUARDED_BY(mu_) = false;   // an open stream broke: open another
  int64_t opened_ns_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t backoff_ms_ ABSL_GUARDED_BY(mu_) = 0;
  int armed_ ABSL_GUARDED_BY(mu_) = 0;
  std::shared_ptr<PeerStream> self_ ABSL_GUARDED_BY(mu_);  // while armed_ > 0
  uint64_t queued_bytes_ ABSL_GUARDED_BY(mu_) = 0;         // waiting
  uint64_t writing_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<ReplicaMessage> waiting_ ABSL_GUARDED_BY(mu_);
  Random random_ ABSL_GUARDED_BY(mu_);
  // Set and reset under mu_; the thread that set writing_ writes to its stream.
  std::unique_ptr<Call> call_;
  grpc::Alarm retry_alarm_;
  grpc::Alarm tell_alarm_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_PEERS_PEER_STREAM_H_
