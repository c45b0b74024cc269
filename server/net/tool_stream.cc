#include "server/net/tool_stream.h"

#include <chrono>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace hotbed {
ToolStream::ToolStream(const ToolCalls* calls, const TableAccessOf* tables_of,
                       grpc::AsyncGenericService* service, grpc::ServerCompletionQueue* queue)
    : calls_(calls),
      tables_of_(tables_of),
      service_(service),
      queue_(queue),
      accept_tag_(this, [](void* s, bool ok) { static_cast<ToolStream*>(s)->OnAccepted(ok); }),
      read_tag_(this, [](void* s, bool ok) { static_cast<ToolStream*>(s)->OnRead(ok); }),
      write_tag_(this, [](void* s, bool ok) { static_cast<ToolStream*>(s)->OnWritten(ok); }),
      finish_tag_(this, [](void* s, bool) { static_cast<ToolStream*>(s)->OnFinished(); }),
      late_tag_(this, [](void* s, bool ok) { static_cast<ToolStream*>(s)->OnLate(ok); }) {}

void ToolStream::Start(const ToolCalls* calls, const TableAccessOf* tables_of,
                       grpc::AsyncGenericService* service, grpc::ServerCompletionQueue* queue) {
  auto* const stream = new ToolStream(calls, tables_of, service, queue);
  service->RequestCall(&stream->context_, &stream->stream_, queue, queue, &stream->accept_tag_);
}

void ToolStream::OnAccepted(bool ok) {
  if (!ok) {  // the server is shutting down
    delete this;
    return;
  }
  Start(calls_, tables_of_, service_, queue_);
  stream_.Read(&message_, &read_tag_);
}

void ToolStream::OnRead(bool ok) {
  if (!ok) {  // the client has sent all, or is gone
    Finish(ToolCalls::IsStream(context_.method())
               ? grpc::Status::OK
               : grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "a call without a message"));
    return;
  }
  const bool later = calls_->AnswerLater(
      context_.method(), message_, {context_.peer(), MayUse()},
      [this](absl::StatusOr<grpc::ByteBuffer> answer, std::shared_ptr<const void> held) {
        held_ = std::move(held);
        OnAnswer(answer);  // this may be gone then
      });
  if (!later) OnAnswer(calls_->Answer(context_.method(), message_));
}

ToolCalls::MayUse ToolStream::MayUse() const {
  if (!*tables_of_) return nullptr;
  const std::string& method = context_.method();
  const std::shared_ptr<const TableAccess> tables =
      (*tables_of_)(context_, method.substr(method.rfind('/') + 1));
  if (tables == nullptr) return nullptr;
  return [tables](absl::string_view table) { return tables->Check(table); };
}

void ToolStream::OnAnswer(const absl::StatusOr<grpc::ByteBuffer>& answer) {
  message_.Clear();
  if (!answer.ok()) {
    Finish({static_cast<grpc::StatusCode>(answer.status().code()),
            std::string(answer.status().message())});
    return;
  }
  if (ToolCalls::IsStream(context_.method())) {
    stream_.Write(*answer, &write_tag_);
  } else {
    if (held_.use_count() > 0) {
      to_end_.store(2);
      late_.Set(queue_,
                std::chrono::system_clock::now() + std::chrono::nanoseconds(kUntakenAnswerNsMax),
                &late_tag_);
    }
    stream_.WriteAndFinish(*answer, grpc::WriteOptions(), grpc::Status::OK, &finish_tag_);
  }
}

void ToolStream::OnLate(bool fired) {
  if (fired) context_.TryCancel();
  Ended();
}

void ToolStream::OnFinished() {
  held_ = nullptr;
  late_.Cancel();
  Ended();
}

void ToolStream::Ended() {
  if (to_end_.fetch_sub(1) == 1) delete this;
}

void ToolStream::OnWritten(bool ok) {
  if (ok) {
    stream_.Read(&message_, &read_tag_);
  } else {
    Finish(grpc::Status::CANCELLED);
  }
}

}  // namespace hotbed
