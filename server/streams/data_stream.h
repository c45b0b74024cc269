// What pull and push streams share above the mechanics of a stream: each is counted while it is
// open and starts the next when a client comes; the client's first message must carry its hello,
// our first answer ours; an answer ends a message's life and what it holds.
#ifndef HOTBED_SERVER_STREAMS_DATA_STREAM_H_
#define HOTBED_SERVER_STREAMS_DATA_STREAM_H_

#include <grpcpp/completion_queue.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include <utility>

#include "absl/status/status.h"
#include "server/net/bidi_stream.h"
#include "server/streams/wire_reply.h"
#include "server/streams/data_plane.h"
#include "server/streams/raw_data_service.h"

namespace hotbed {

class DataStream : public BidiStream {
 protected:
  DataStream(DataPlane* plane, RawDataService* service, grpc::ServerCompletionQueue* queue);
  ~DataStream() override;

  // Waits for the next client of this method.
  virtual void StartNext() = 0;

  bool heard_hello() const { return heard_hello_; }
  // Whether a message may go on, of which Parse said `parsed`. If not, it is recycled and the
  // stream ends. Of OnMessage only.
  template <typename Message>
  bool Hears(const absl::Status& parsed, Message* message) {
    grpc::Status status = StreamError(parsed);
    if (status.ok() && !heard_hello_) status = CheckHello(message->hello(), *plane_);
    if (status.ok()) {
      heard_hello_ = true;
      return true;
    }
    message->Recycle();
    Fail(std::move(status));
    return false;
  }

  // Answers `message` with what `encode` makes of it and our hello (null: no more), and ends its
  // life. Any thread.
  template <typename Message, typename Encode>
  void End(Message* message, const Encode& encode) {
    v1::Hello hello;
    const bool greets = must_greet();
    if (greets) FillHello(*plane_, &hello);
    grpc::ByteBuffer answer;
    if (!cancelled()) answer = encode(greets ? &hello : nullptr);
    const uint64_t bytes = message->bytes();
    const uint64_t reserved = message->reserved();
    message->Recycle();
    Answer(&answer, bytes, reserved, greets);
  }

  int64_t NowNs() const { return plane_->clock->NowNs(); }

  DataPlane* const plane_;
  RawDataService* const service_;
  grpc::ServerCompletionQueue* const queue_;

 private:
  bool OnAccepted(grpc::Status* refusal) final;

  bool counted_ = false;
  bool heard_hello_ = false;  // touched by OnMessage only
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_STREAMS_DATA_STREAM_H_
