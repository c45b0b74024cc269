// The inference read: one pull message, one answer, no session and no order. A lookup takes the
// same path to the shard host as a message of a pull stream, and a budget of the same kind. A call
// whose client reads nothing of a large answer for `write_timeout_ms` is cancelled, as a stream
// would be.
#ifndef HOTBED_SERVER_STREAMS_LOOKUP_SERVICE_H_
#define HOTBED_SERVER_STREAMS_LOOKUP_SERVICE_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/async_unary_call.h>
#include <grpcpp/support/byte_buffer.h>

#include <atomic>
#include <memory>

#include "server/net/rpc_tag.h"
#include "server/net/stream_watch.h"
#include "server/streams/data_plane.h"
#include "server/streams/pull_stream.h"
#include "server/streams/raw_data_service.h"

namespace hotbed {

// One lookup; owns itself from Start() to the end of its call.
class LookupCall final : private PullSink, private StreamWatch::Watched {
 public:
  // Waits for a client; when one comes, the next call is started on the same queue.
  static void Start(DataPlane* plane, RawDataService* service, grpc::ServerCompletionQueue* queue);

 private:
  LookupCall(DataPlane* plane, RawDataService* service, grpc::ServerCompletionQueue* queue);
  ~LookupCall() override;

  void OnAcceptDone(bool ok);
  void OnFinished();
  void PullDone(PullMessage* message) override;
  bool TryWatch() override;
  void Tick(int64_t now_ns) override;
  void Unwatch() override { Unref(); }
  void Unref();
  bool abandoned() const override { return false; }  // its deadline ends it soon enough
  ByteBudget* budget() override { return &plane_->lookup_budget; }
  ByteBudget::Account* account() override { return &connection_->lookups; }

  DataPlane* const plane_;
  RawDataService* const service_;
  grpc::ServerCompletionQueue* const queue_;
  grpc::ServerContext context_;
  grpc::ByteBuffer request_;
  grpc::ServerAsyncResponseWriter<grpc::ByteBuffer> responder_{&context_};
  std::shared_ptr<ConnectionAccount> connection_;  // from the arrival on
  RpcTag accept_tag_;
  RpcTag finish_tag_;
  uint64_t reserved_ = 0;  // of the pull budget, until the answer has left
  bool watched_ = false;
  std::atomic<int> refs_{1};  // the call's own, and one of a tick in progress
  int64_t ticks_ = 0;         // since the answer was given to gRPC; used by Tick only
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_STREAMS_LOOKUP_SERVICE_H_
