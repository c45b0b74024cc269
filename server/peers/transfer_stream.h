// The receiving side of the streams between servers (Replica.Transfer of proto/replica.proto): one
// stream per peer, whose messages go to the shard host in order, on the polling thread.
//
// A stream ends on an inconsistent message, on a hello of another cluster, for another process or
// of an older process, when a newer stream of the same server has come, and when log records exceed
// their budget (server/peers/transfer_budget.h). The sender then opens a new one.
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
  // Open streams; a cluster has fewer servers than that.
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

  bool TryRefReader() override { return TryRefSelf(); }
  void ReadAgain() override { ReadOn(); }
  void UnrefReader() override { Unref(); }

  absl::Status Take(Fragments fragments);
  absl::Status CheckHello(const v1::TransferHeader& header) const;
  void Greet();
  void End(const absl::Status& status);

  PeerPlane* const plane_;
  RawReplicaService* const service_;
  grpc::ServerCompletionQueue* const queue_;
  bool counted_ = false;
  // Used by OnMessage only.
  Member from_;
  uint64_t number_ = 0;  // in the inbox; 0: no hello yet
  std::vector<ReplicaMessage> messages_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_PEERS_TRANSFER_STREAM_H_
