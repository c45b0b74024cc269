// The calls of general gRPC tools (proto/tool_calls.h) on the queues of the data port. They have no
// threads of their own: gRPC's own services for this would poll beside the row streams. Any other
// method that no service has is answered here too, with UNIMPLEMENTED.
#ifndef HOTBED_SERVER_NET_TOOL_STREAM_H_
#define HOTBED_SERVER_NET_TOOL_STREAM_H_

#include <grpcpp/alarm.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/byte_buffer.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "proto/tool_calls.h"
#include "security/table_access.h"
#include "server/net/rpc_tag.h"

namespace hotbed {

// An answer that holds memory and that the client has not taken by then ends its call.
constexpr int64_t kUntakenAnswerNsMax = 5 * kSecondNs;

// One call; owns itself from Start() to its end. One message at a time.
class ToolStream {
 public:
  // Waits for a call; when one comes, the next is waited for on the same queue. `tables_of` may be
  // empty.
  static void Start(const ToolCalls* calls, const TableAccessOf* tables_of,
                    grpc::AsyncGenericService* service, grpc::ServerCompletionQueue* queue);

 private:
  ToolStream(const ToolCalls* calls, const TableAccessOf* tables_of,
             grpc::AsyncGenericService* service, grpc::ServerCompletionQueue* queue);

  void OnAccepted(bool ok);
  void OnRead(bool ok);
  ToolCalls::MayUse MayUse() const;
  void OnAnswer(const absl::StatusOr<grpc::ByteBuffer>& answer);
  void OnWritten(bool ok);
  void OnLate(bool fired);
  void OnFinished();
  // One of the two events that end a call with a time limit.
  void Ended();
  void Finish(const grpc::Status& status) { stream_.Finish(status, &finish_tag_); }

  const ToolCalls* const calls_;
  const TableAccessOf* const tables_of_;
  grpc::AsyncGenericService* const service_;
  grpc::ServerCompletionQueue* const queue_;
  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter stream_{&context_};
  grpc::ByteBuffer message_;
  std::shared_ptr<const void> held_;  // until the answer has left
  grpc::Alarm late_;
  std::atomic<int> to_end_{1};  // events
  RpcTag accept_tag_;
  RpcTag read_tag_;
  RpcTag write_tag_;
  RpcTag finish_tag_;
  RpcTag late_tag_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_NET_TOOL_STREAM_H_
