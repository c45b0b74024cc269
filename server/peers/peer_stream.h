// The stream to one other server: opened when there is something to say, opened again when it
// breaks.
//
// Messages wait in a queue while one is being written, then leave together, as many as fit in
// `joined_bytes_max`; an empty queue writes at once, on the caller's thread, or at the end of the
// event that it is at (server/peers/replica_batch.h). Nothing leaves before the peer has answered the
// hello, so a peer that cannot be reached costs what is queued no loss.
//
// A loss is what was written to a stream that broke (and what waited behind it), or what came while
// the queue was full. From then on everything is dropped until the queue is empty and the host
// hears OnPeerLost, which is what makes it send again: so nothing leaves in the wrong order, but
// for what other threads send while it hears that (receivers refuse what leaves a gap).
//
// Thread-safe. Events arrive on the thread that polls the completion queue. Held by shared_ptr,
// which every operation under way holds too.
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
#include "server/shard/replica_message.h"

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

  // `queue`, `inbox` and `clock` outlive it. `lost_before`: the host has to hear OnPeerLost first.
  PeerStream(const PeerStreamOptions& options, Ends ends, grpc::CompletionQueue* queue,
             ReplicaInbox* inbox, const Clock* clock, std::atomic<int>* live);
  ~PeerStream() override;

  const Ends& ends() const { return ends_; }
  void Send(ReplicaMessage message);
  void Flush() override;  // writes what waits, if nothing is being written
  // OnPeerLost soon, and before anything is sent.
  void TellLost();
  uint64_t queued_bytes() const;   // as ReplicaNetwork::QueuedBytes
  uint64_t waiting_bytes() const;  // of the queue, for the metrics
  bool open() const;
  // Ends the stream; what waits is lost. Nothing is sent after it.
  void Close();

 private:
  struct Call;
  enum class State {
    kIdle,     // no stream, none wanted
    kWaiting,  // for the next try
    kOpening,  // until the peer's hello is there
    kOpen,
    kEnding,  // until all that is under way has come back
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
  void Drop() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);  // all that waits
  void WaitForRetry() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool MayTell() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Takes what the next message carries; false: nothing, or not now.
  bool TakeBatch(std::vector<ReplicaMessage>* batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Write(const std::vector<ReplicaMessage>& batch) ABSL_LOCKS_EXCLUDED(mu_);
  // Tells of a loss if the time has come, then writes what there is.
  void GoOn() ABSL_LOCKS_EXCLUDED(mu_);
  // Holds the stream alive until the event has run: from Arm to the end of its Event.
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
  std::atomic<int>* const live_;  // streams with an operation under way
  RpcTag start_tag_, read_tag_, write_tag_, finish_tag_, retry_tag_, tell_tag_;

  mutable absl::Mutex mu_;
  State state_ ABSL_GUARDED_BY(mu_) = State::kIdle;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  bool reading_ ABSL_GUARDED_BY(mu_) = false;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool owes_loss_ ABSL_GUARDED_BY(mu_) = false;
  bool telling_ ABSL_GUARDED_BY(mu_) = false;  // the event that tells of it is under way
  bool broken_ ABSL_GUARDED_BY(mu_) = false;   // a stream that was open broke: open another
  int64_t opened_ns_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t backoff_ms_ ABSL_GUARDED_BY(mu_) = 0;
  int armed_ ABSL_GUARDED_BY(mu_) = 0;
  std::shared_ptr<PeerStream> self_ ABSL_GUARDED_BY(mu_);  // while armed_ > 0
  uint64_t queued_bytes_ ABSL_GUARDED_BY(mu_) = 0;         // waiting
  uint64_t writing_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<ReplicaMessage> waiting_ ABSL_GUARDED_BY(mu_);
  Random random_ ABSL_GUARDED_BY(mu_);
  // Set and reset under mu_; its stream is written by whoever set writing_.
  std::unique_ptr<Call> call_;
  grpc::Alarm retry_alarm_;
  grpc::Alarm tell_alarm_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_PEERS_PEER_STREAM_H_
