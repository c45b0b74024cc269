// The calls of general gRPC tools (proto/tool_calls.h) on the queues of the data port. They have no
// threads of their own: gRPC's own services for this would poll beside the row streams. Any other
// method that no service has is answered here too, with UNIMPLEMENTED.
#ifndef HOTBED_SERVER_NET_TOOL_STREAM_H_
#define HOTBED_SERVER_NET_TOOL_STREAM_H_

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/byte_buffer.h>

#include <memory>

#include "absl/status/statusor.h"
#include "proto/tool_calls.h"
#include "server/net/rpc_tag.h"

namespace hotbed {

// One call; owns itself from Start() to its end. One message at a time.
class ToolStream {
 public:
  // Waits for a call; when one comes, the next is waited for on the same queue.
  static void Start(const ToolCalls* calls, grpc::AsyncGenericService* service,
                    grpc::ServerCompletionQueue* queue);

 private:
  ToolStream(const ToolCalls* calls, grpc::AsyncGenericService* service,
             grpc::ServerCompletionQueue* queue);

  void OnAccepted(bool ok);
  void OnRead(bool ok);
  void OnAnswer(const absl::StatusOr<grpc::ByteBuffer>& answer);
  void OnWritten(bool ok);
  void Finish(const grpc::Status& status) { stream_.Finish(status, &finish_tag_); }

  const ToolCalls* const calls_;
  grpc::AsyncGenericService* const service_;
  grpc::ServerCompletionQueue* const queue_;
  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter stream_{&context_};
  grpc::ByteBuffer message_;
  std::shared_ptr<const void> held_;  // until the answer has left
  RpcTag accept_tag_;
  RpcTag read_tag_;
  RpcTag write_tag_;
  RpcTag finish_tag_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_NET_TOOL_STREAM_H_
