// The calls that general gRPC tools make to a port: health checks (grpc.health.v1) and server
// reflection (v1 and v1alpha, which differ in name only); and rare unary calls of the process's
// own. The messages alone; the streams are in server/net/tool_stream.h and in the coordinator's
// shell.
//
// Immutable; thread-safe if `ready` and the calls are.
#ifndef HOTBED_PROTO_TOOL_CALLS_H_
#define HOTBED_PROTO_TOOL_CALLS_H_

#include <grpcpp/support/byte_buffer.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace hotbed {

class ToolCalls {
 public:
  static constexpr char kCheck[] = "/grpc.health.v1.Health/Check";
  static constexpr char kReflect[] = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
  static constexpr char kReflectAlpha[] =
      "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";

  // From message to answer; does not block.
  using Call = std::function<absl::StatusOr<std::string>(const std::string& message)>;
  // The answer comes later, by one call of `done` on any thread, perhaps at once. `held` is
  // released when the answer has left. Does not block.
  using Done =
      std::function<void(absl::StatusOr<std::string> answer, std::shared_ptr<const void> held)>;
  // Whether the caller may use the table of this name; empty: all of them.
  using MayUse = std::function<absl::Status(absl::string_view table)>;
  struct Caller {
    std::string connection;  // names it; clients on one connection are one caller
    MayUse may_use;
  };
  using SlowBegin =
      std::function<void(const std::string& message, const Caller& caller, Done done)>;
  static constexpr size_t kMessageBytesMax = 64 << 10;  // far above any name
  struct SlowCall {
    SlowBegin begin;
    size_t message_bytes_max = kMessageBytesMax;
  };
  // `services`: full names of those on the port, compiled into this process. `ready`: as /readyz.
  // `calls`: further ones, by method.
  ToolCalls(std::vector<std::string> services, std::function<bool()> ready,
            std::map<std::string, Call> calls = {},
            std::map<std::string, SlowCall> slow_calls = {});

  // The method takes any number of messages and answers each; else it takes one.
  static bool IsStream(absl::string_view method) {
    return method == kReflect || method == kReflectAlpha;
  }
  // The answer to one message.
  //   Unimplemented      names the method
  //   InvalidArgument    the message does not parse
  //   ResourceExhausted  the message exceeds kMessageBytesMax, or its call's own limit
  //   NotFound           a health check of a service that is not on the port
  absl::StatusOr<grpc::ByteBuffer> Answer(absl::string_view method,
                                          const grpc::ByteBuffer& message) const;
  // True: the method is a slow call, and `done` has been or will be called with what Answer would
  // return. The owner has every one ended before it shuts its queues down.
  bool AnswerLater(
      absl::string_view method, const grpc::ByteBuffer& message, const Caller& caller,
      std::function<void(absl::StatusOr<grpc::ByteBuffer>, std::shared_ptr<const void>)> done)
      const;

 private:
  absl::StatusOr<std::string> Check(const std::string& message) const;
  absl::StatusOr<std::string> Reflect(const std::string& message) const;

  std::vector<std::string> services_;  // with those of tools; as listed
  const std::function<bool()> ready_;
  const std::map<std::string, Call> calls_;
  const std::map<std::string, SlowCall> slow_calls_;
};

}  // namespace hotbed

#endif  // HOTBED_PROTO_TOOL_CALLS_H_
