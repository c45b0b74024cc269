// The inference read: one pull message, one answer, no session and no order. The same path to the
// shard host as a pull stream's messages, and the same budget.
#ifndef HOTBED_SERVER_LOOKUP_SERVICE_H_
#define HOTBED_SERVER_LOOKUP_SERVICE_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/async_unary_call.h>
#include <grpcpp/support/byte_buffer.h>

#include "server/data_plane.h"
#include "server/pull_stream.h"
#include "server/raw_data_service.h"
#include "server/rpc_tag.h"

namespace hotbed {

// One lookup; owns itself from Start() to the end of its call.
class LookupCall final : private PullSink {
 public:
  // Waits for a client; when one comes, the next call is started on the same queue.
  static void Start(DataPlane* plane, RawDataService* service, grpc::ServerCompletionQueue* queue);

 private:
  LookupCall(DataPlane* plane, RawDataService* service, grpc::ServerCompletionQueue* queue);
  ~LookupCall() override;

  void OnAcceptDone(bool ok);
  void OnFinished();
  void PullDone(PullMessage* message) override;
  bool abandoned() const override { return false; }  // its deadline ends it soon enough

  DataPlane* const plane_;
  RawDataService* const service_;
  grpc::ServerCompletionQueue* const queue_;
  grpc::ServerContext context_;
  grpc::ByteBuffer request_;
  grpc::ServerAsyncResponseWriter<grpc::ByteBuffer> responder_{&context_};
  RpcTag accept_tag_;
  RpcTag finish_tag_;
  uint64_t reserved_ = 0;  // of the pull budget, until the answer has left
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_LOOKUP_SERVICE_H_
