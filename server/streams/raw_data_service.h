// The data plane's service with raw methods: messages are ByteBuffers.
//
// `Lookup` is a unary method for generated stubs, and a stream here. On the wire a unary call is a
// stream of one message each way, so one method serves both: callers that close their side after a
// message, and clients that keep the stream open.
#ifndef HOTBED_SERVER_STREAMS_RAW_DATA_SERVICE_H_
#define HOTBED_SERVER_STREAMS_RAW_DATA_SERVICE_H_

#include <grpcpp/support/async_stream.h>
#include <grpcpp/support/byte_buffer.h>

#include "proto/data.grpc.pb.h"

namespace hotbed {

class RawDataService final
    : public v1::Data::WithRawMethod_Pull<v1::Data::WithRawMethod_Push<v1::Data::Service>> {
 public:
  using RawStream = grpc::ServerAsyncReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>;

  RawDataService() {
    MarkMethodStreamed(kLookup, nullptr);
    MarkMethodRaw(kLookup);
  }
  void RequestLookup(grpc::ServerContext* context, RawStream* stream, grpc::CompletionQueue* queue,
                     grpc::ServerCompletionQueue* notifies, void* tag) {
    RequestAsyncBidiStreaming(kLookup, context, stream, queue, notifies, tag);
  }

 private:
  static constexpr int kLookup = 2;  // its number in the service of proto/data.proto
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_STREAMS_RAW_DATA_SERVICE_H_
