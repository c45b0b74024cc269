// Messages between the client's form (OutgoingMessage, ServerReply) and gRPC's. Functions are
// thread-safe.
#ifndef HOTBED_CLIENT_NET_GRPC_MESSAGE_H_
#define HOTBED_CLIENT_NET_GRPC_MESSAGE_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>
#include <grpcpp/support/status.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/net/transport.h"
#include "proto/wire.h"

namespace hotbed {

// One slice for the header, and the bulk bytes by reference. `prefix` is a serialized header with
// hello and request, which merges with the message's own.
grpc::ByteBuffer ToByteBuffer(const std::string& prefix, OutgoingMessage message);

// A received message, which keeps its slices alive. Thread-compatible; meant to be used again.
class ReceivedMessage {
 public:
  // Replaces the content. On an error it is unspecified until the next Parse.
  absl::Status Parse(const grpc::ByteBuffer& buffer);
  // The whole reply; valid until the next Parse. `row_bytes` as in OutgoingMessage, of all requests
  // that it answers.
  ServerReply reply(uint64_t row_bytes) const;
  const v1::ReplyHeader& header() const { return view_.header; }

 private:
  std::vector<grpc::Slice> slices_;
  std::vector<Fragment> fragments_;
  PullReplyView view_;
};

// Why a stream or call to `address` ended. A stream that the server ended without an error is
// Unavailable.
absl::Status StatusOfServer(const grpc::Status& status, const std::string& address);

}  // namespace hotbed

#endif  // HOTBED_CLIENT_NET_GRPC_MESSAGE_H_
