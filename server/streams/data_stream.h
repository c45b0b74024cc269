// The common part of pull and push streams above the mechanics of a stream: a stream is counted
// while it is open and starts the next one when a client comes; the client's first message must
// carry its hello, and our first answer carries ours; an answer ends the life of its message.
#ifndef HOTBED_SERVER_STREAMS_DATA_STREAM_H_
#define HOTBED_SERVER_STREAMS_DATA_STREAM_H_

#include <grpcpp/completion_queue.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "server/net/bidi_stream.h"
#include "server/streams/data_plane.h"
#include "server/streams/raw_data_service.h"
#include "server/streams/wire_reply.h"

namespace hotbed {

class DataStream : public BidiStream {
 protected:
  DataStream(DataPlane* plane, RawDataService* service, grpc::ServerCompletionQueue* queue);
  ~DataStream() override;

  // Waits for the next client of this method.
  virtual void StartNext() = 0;
  virtual const char* method() const = 0;  // as rules name it
  // The client's first message needs no hello. Nor does the stream count among streams_max, or is
  // it refused while the server stops: a call without a stream has nothing but its answer.
  virtual bool may_be_unary() const { return false; }

  bool heard_hello() const { return heard_hello_; }
  // Whether a message for which Parse returned `parsed` may continue. If not, it is recycled and
  // the stream ends. Called by OnMessage only.
  template <typename Message>
  bool Hears(const absl::Status& parsed, Message* message) {
    grpc::Status status = StreamError(parsed);
    if (status.ok() && !heard_hello_) {
      if (message->hello() == nullptr && may_be_unary()) {
        NeedNotGreet();
      } else {
        status = CheckHello(message->hello(), *plane_);
      }
    }
    if (status.ok()) {
      heard_hello_ = true;
      return true;
    }
    message->Recycle();
    Fail(std::move(status));
    return false;
  }

  // Answers `message` with encode(hello) and ends its life; `hello` is null once an answer has
  // carried it. Any thread.
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

  // The account of this stream's connection; from OnAccepted on.
  ConnectionAccount* connection() const { return connection_.get(); }
  int64_t NowNs() const { return plane_->clock->NowNs(); }
  // Null: the caller may use all tables. For OnMessage.
  StreamTables* tables() { return tables_.limited(); }

  DataPlane* const plane_;
  RawDataService* const service_;
  grpc::ServerCompletionQueue* const queue_;

 private:
  bool OnAccepted(grpc::Status* refusal) final;

  std::shared_ptr<ConnectionAccount> connection_;
  StreamTables tables_;
  bool counted_ = false;
  bool heard_hello_ = false;  // touched by OnMessage only
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_STREAMS_DATA_STREAM_H_
