#include "planner/coordinator/shell/tool_service.h"

#include <grpcpp/grpcpp.h>

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "planner/coordinator/shell/open_streams.h"

namespace hotbed {
namespace {

// One call; owns itself until OnDone. One message at a time.
class ToolReactor : public grpc::ServerGenericBidiReactor {
 public:
  ToolReactor(const ToolCalls* calls, std::string method)
      : calls_(calls), method_(std::move(method)) {
    StartRead(&message_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {  // the client has sent all, or is gone
      Finish(ToolCalls::IsStream(method_)
                 ? grpc::Status::OK
                 : grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "a call without a message"));
      return;
    }
    absl::StatusOr<grpc::ByteBuffer> answer = calls_->Answer(method_, message_);
    if (!answer.ok()) return Finish(ToGrpc(answer.status()));
    answer_ = *std::move(answer);
    if (ToolCalls::IsStream(method_)) {
      StartWrite(&answer_);
    } else {
      StartWriteAndFinish(&answer_, grpc::WriteOptions(), grpc::Status::OK);
    }
  }
  void OnWriteDone(bool ok) override {
    if (!ToolCalls::IsStream(method_)) return;  // finished with the write
    ok ? StartRead(&message_) : Finish(grpc::Status::CANCELLED);
  }
  void OnDone() override { delete this; }

 private:
  const ToolCalls* const calls_;
  const std::string method_;
  grpc::ByteBuffer message_;
  grpc::ByteBuffer answer_;
};

}  // namespace

grpc::ServerGenericBidiReactor* ToolService::CreateReactor(
    grpc::GenericCallbackServerContext* context) {
  return new ToolReactor(&calls_, context->method());
}

}  // namespace hotbed
