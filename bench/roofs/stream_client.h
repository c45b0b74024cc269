// A client of one raw gRPC stream that keeps a number of messages open; one thread, no locks. The
// roof and the benchmark of our own streams use it, so that both have the same client.
#ifndef HOTBED_BENCH_ROOFS_STREAM_CLIENT_H_
#define HOTBED_BENCH_ROOFS_STREAM_CLIENT_H_

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace hotbed::roofs {

class StreamClient {
 public:
  // Makes the n-th message to send, from 0.
  using NextMessage = std::function<grpc::ByteBuffer(uint64_t n)>;
  // Checks a reply. False: it is wrong.
  using CheckReply = std::function<bool(const grpc::ByteBuffer& reply)>;

  StreamClient(grpc::GenericStub* stub, const std::string& method, int in_flight, NextMessage next,
               CheckReply check);
  ~StreamClient();  // cancels the stream

  // Runs until `messages` more replies have arrived. False: the stream ended, or a reply was wrong.
  bool Serve(uint64_t messages) { return ServeUntil(received_ + messages, 60.0); }
  // Replies per second over about `seconds`, after a short warm-up.
  absl::StatusOr<double> Run(double seconds);

 private:
  enum class Tag : intptr_t { kStarted = 1, kRead, kWritten };
  void Handle(Tag tag, bool ok);
  void Send();
  bool ServeUntil(uint64_t received, double seconds);

  const NextMessage next_;
  const CheckReply check_;
  grpc::CompletionQueue queue_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
  grpc::ByteBuffer reply_;
  const int in_flight_;
  int to_send_;
  bool writing_ = false;
  bool failed_ = false;
  uint64_t sent_ = 0;
  uint64_t received_ = 0;
};

}  // namespace hotbed::roofs

#endif  // HOTBED_BENCH_ROOFS_STREAM_CLIENT_H_
