// The receiving side of the streams between servers (proto/replica.proto, Replica.Transfer): one
// stream of each peer, whose messages go to the shard host in order, on the polling thread.
//
// A stream ends on anything that does not add up, on another cluster's, another process's or an
// older process's hello, when a newer stream of the same server has come, and when records of logs
// are beyond their budget (server/peers/transfer_budget.h). The sender begins a new one.
#ifndef HOTBED_SERVER_PEERS_TRANSFER_STREAM_H_
#define HOTBED_SERVER_PEERS_TRANSFER_STREAM_H_

#include <grpcpp/completion_queue.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include <vector>

#include "absl/status/status.h"
#include "proto/replica.grpc.pb.h"
#include "proto/wire.h"
#include "server/net/bidi_stream.h"
#include "server/peers/peer_plane.h"
#include "server/peers/transfer_budget.h"

namespace hotbed {

using RawReplicaService = v1::Replica::WithRawMethod_Transfer<v1::Replica::Service>;

class TransferStream final : public BidiStream, private TransferBudget::Reader {
 public:
  // Streams open at once; servers are few, what opens more is no server.
  static constexpr uint32_t kStreamsMax = 1024;

  // Waits for a peer; when one comes, the next stream is started on the same queue.
  static void Start(PeerPlane* plane, RawReplicaService* service,
                    grpc::ServerCompletionQueue* queue);

 private:
  TransferStream(PeerPlane* plane, RawReplicaService* service, grpc::ServerCompletionQueue* queue);
  ~TransferStream() override;

  void RequestCall(grpc::ServerContext* context, RawStream* stream, void* accept_tag) override;
  bool OnAccepted(grpc::Status* refusal) override;
  void OnMessage(grpc::ByteBuffer* raw) override;
  void OnReleased(uint64_t /*reserved*/) override {}

  bool TryKeep() override { return TryRefSelf(); }
  void GoOn() override { ReadOn(); }
  void LetGo() override { Unref(); }

  absl::Status Take(Fragments fragments);
  absl::Status CheckHello(const v1::TransferHeader& header) const;
  void Greet();
  void End(const absl::Status& status);

  PeerPlane* const plane_;
  RawReplicaService* const service_;
  grpc::ServerCompletionQueue* const queue_;
  bool counted_ = false;
  // Of OnMessage alone.
  Member from_;
  uint64_t number_ = 0;  // in the inbox; 0: no hello yet
  std::vector<ReplicaMessage> messages_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_PEERS_TRANSFER_STREAM_H_
