// Bare gRPC: generic ByteBuffer messages over tuned completion queues, each polled by one thread
// that also answers, so that a stream needs no lock.
#include <grpcpp/completion_queue.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "bench/roofs/peer_process.h"
#include "bench/roofs/roofs.h"
#include "bench/roofs/stopwatch.h"
#include "bench/roofs/stream_client.h"
#include "common/huge_buffer.h"
#include "common/status_macros.h"
#include "proto/grpc_tuning.h"

namespace hotbed::roofs {
namespace {

constexpr char kStreamMethod[] = "/hotbed.Roof/Stream";
constexpr char kUnaryMethod[] = "/hotbed.Roof/Unary";
constexpr int kMessageBytesMax = 256 << 20;
constexpr int kAheadMax = 64;  // messages of a stream without an answer

using Clock = std::chrono::steady_clock;

// One message of `bytes` bytes that is sent repeatedly.
class Payload {
 public:
  explicit Payload(uint64_t bytes) : memory_(*HugeBuffer::Allocate(std::max<uint64_t>(bytes, 1))) {
    std::memset(memory_.data(), 1, memory_.size());
    const grpc::Slice slice(
        memory_.data(), bytes, [](void*) {}, nullptr);
    message_ = grpc::ByteBuffer(&slice, 1);
  }
  const grpc::ByteBuffer& message() const { return message_; }

 private:
  HugeBuffer memory_;
  grpc::ByteBuffer message_;
};

class Event {
 public:
  virtual ~Event() = default;
  virtual void Run(bool ok) = 0;
};

template <typename T>
class EventOf final : public Event {
 public:
  using Method = void (T::*)(bool);
  EventOf(T* owner, Method method) : owner_(owner), method_(method) {}
  void Run(bool ok) override { (owner_->*method_)(ok); }

 private:
  T* owner_;
  Method method_;
};

// A stream or a unary call at the server; all its events run on the thread of its queue.
class ServerCall {
 public:
  ServerCall(grpc::AsyncGenericService* service, grpc::ServerCompletionQueue* queue,
             const Payload* reply)
      : service_(service), queue_(queue), reply_(reply) {
    service->RequestCall(&context_, &stream_, queue, queue, &accepted_);
  }

 private:
  void OnAccepted(bool ok) {
    if (!ok) return;
    new ServerCall(service_, queue_, reply_);
    stream_.Read(&request_, &read_);
  }
  void OnRead(bool ok) {
    if (!ok) {
      closed_ = true;
      return MaybeFinish();
    }
    request_.Clear();
    if (context_.method() == kUnaryMethod) {
      return stream_.WriteAndFinish(reply_->message(), {}, grpc::Status::OK, &finished_);
    }
    ++pending_;
    if (pending_ == 1) stream_.Write(reply_->message(), &written_);
    reading_ = pending_ < kAheadMax;
    if (reading_) stream_.Read(&request_, &read_);
  }
  void OnWritten(bool ok) {
    --pending_;
    if (pending_ > 0) stream_.Write(reply_->message(), &written_);
    if (!reading_ && !closed_) {
      reading_ = true;
      stream_.Read(&request_, &read_);
    }
    MaybeFinish();
  }
  void MaybeFinish() {
    if (closed_ && pending_ == 0) stream_.Finish(grpc::Status::OK, &finished_);
  }
  void OnFinished(bool) { delete this; }

  grpc::AsyncGenericService* const service_;
  grpc::ServerCompletionQueue* const queue_;
  const Payload* const reply_;
  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter stream_{&context_};
  grpc::ByteBuffer request_;
  int pending_ = 0;
  bool reading_ = true;
  bool closed_ = false;
  EventOf<ServerCall> accepted_{this, &ServerCall::OnAccepted};
  EventOf<ServerCall> read_{this, &ServerCall::OnRead};
  EventOf<ServerCall> written_{this, &ServerCall::OnWritten};
  EventOf<ServerCall> finished_{this, &ServerCall::OnFinished};
};

void Poll(grpc::CompletionQueue* queue) {
  void* tag;
  bool ok;
  while (queue->Next(&tag, &ok)) static_cast<Event*>(tag)->Run(ok);
}

// One unary call at a time; used repeatedly.
class ClientUnary {
 public:
  void Start(grpc::GenericStub* stub, const grpc::ByteBuffer& request, grpc::CompletionQueue* queue,
             Clock::time_point due) {
    context_.emplace();
    reader_ = stub->PrepareUnaryCall(&*context_, kUnaryMethod, request, queue);
    due_ = due;
    reader_->StartCall();
    reader_->Finish(&reply_, &status_, this);
  }
  bool ok() const { return status_.ok(); }
  double Seconds() const { return Since(due_); }

 private:
  std::optional<grpc::ClientContext> context_;
  std::unique_ptr<grpc::GenericClientAsyncResponseReader> reader_;
  grpc::ByteBuffer reply_;
  grpc::Status status_;
  Clock::time_point due_;
};

struct Session {
  std::unique_ptr<PeerProcess> peer;
  std::unique_ptr<grpc::GenericStub> stub;
};

absl::StatusOr<Session> Connect(const MessageLoad& load) {
  Session session;
  HOTBED_ASSIGN_OR_RETURN(session.peer,
                          PeerProcess::Start({"grpc", absl::StrCat(load.reply_bytes), "0"}));
  auto channel = grpc::CreateCustomChannel(
      absl::StrCat("127.0.0.1:", session.peer->port()), grpc::InsecureChannelCredentials(),
      DataPlaneChannelArguments(kMessageBytesMax, /*tls=*/false));
  if (!channel->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(10))) {
    return absl::UnavailableError("cannot connect to the peer of a gRPC roof");
  }
  session.stub = std::make_unique<grpc::GenericStub>(channel);
  return session;
}

void Drain(grpc::CompletionQueue* queue) {
  queue->Shutdown();
  void* tag;
  bool ok;
  while (queue->Next(&tag, &ok)) {
  }
}

}  // namespace

// args: reply bytes, threads (0: half of the cores, at least 1).
int ServeGrpc(const std::vector<std::string>& args) {
  uint64_t reply_bytes = 0;
  int threads = 0;
  if (args.size() < 2 || !absl::SimpleAtoi(args[0], &reply_bytes) ||
      !absl::SimpleAtoi(args[1], &threads)) {
    return 1;
  }
  if (threads == 0) threads = std::max(1u, std::thread::hardware_concurrency() / 2);
  const Payload reply(reply_bytes);
  grpc::AsyncGenericService service;
  grpc::ServerBuilder builder;
  int port = 0;
  TuneDataPlaneServer(&builder, kMessageBytesMax);
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterAsyncGenericService(&service);
  std::vector<std::unique_ptr<grpc::ServerCompletionQueue>> queues;
  for (int i = 0; i < threads; ++i) queues.push_back(builder.AddCompletionQueue());
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return 1;
  for (auto& queue : queues) {
    for (int i = 0; i < 16; ++i) new ServerCall(&service, queue.get(), &reply);
  }
  std::vector<std::thread> pollers;
  for (auto& queue : queues) pollers.emplace_back(Poll, queue.get());
  TellPort(port);
  for (std::thread& poller : pollers) poller.join();  // until this process is killed
  return 0;
}

absl::StatusOr<MessageRate> GrpcStream(const MessageLoad& load) {
  HOTBED_ASSIGN_OR_RETURN(const Session session, Connect(load));
  const Payload request(load.request_bytes);
  StreamClient client(
      session.stub.get(), kStreamMethod, load.in_flight,
      [&request](uint64_t) { return request.message(); },
      [](const grpc::ByteBuffer&) { return true; });
  HOTBED_ASSIGN_OR_RETURN(const double messages_per_s, client.Run(load.seconds));
  return MessageRate{messages_per_s, messages_per_s * (load.request_bytes + load.reply_bytes)};
}

absl::StatusOr<MessageRate> GrpcUnary(const MessageLoad& load) {
  HOTBED_ASSIGN_OR_RETURN(const Session session, Connect(load));
  const Payload request(load.request_bytes);
  grpc::CompletionQueue queue;
  std::vector<ClientUnary> calls(static_cast<size_t>(load.in_flight));
  const auto begin = Clock::now();
  for (ClientUnary& call : calls) call.Start(session.stub.get(), request.message(), &queue, begin);
  uint64_t answered = 0;
  bool failed = false;
  void* tag;
  bool ok;
  while (!failed && Since(begin) < load.seconds && queue.Next(&tag, &ok)) {
    auto* const call = static_cast<ClientUnary*>(tag);
    failed = !call->ok();
    ++answered;
    call->Start(session.stub.get(), request.message(), &queue, begin);
  }
  const double messages_per_s = static_cast<double>(answered) / Since(begin);
  Drain(&queue);
  if (failed) return absl::UnavailableError("a call to the peer of a gRPC roof failed");
  return MessageRate{messages_per_s,
                     messages_per_s * static_cast<double>(load.request_bytes + load.reply_bytes)};
}

absl::StatusOr<double> GrpcUnaryP99(const MessageLoad& load, double rate) {
  HOTBED_ASSIGN_OR_RETURN(const Session session, Connect(load));
  const Payload request(load.request_bytes);
  grpc::CompletionQueue queue;
  constexpr size_t kOpenMax = 4096;
  std::vector<ClientUnary> calls(kOpenMax);
  std::vector<ClientUnary*> idle;
  for (ClientUnary& call : calls) idle.push_back(&call);
  std::vector<double> latencies;
  const auto begin = Clock::now();
  const auto end = begin + std::chrono::duration_cast<Clock::duration>(
                               std::chrono::duration<double>(load.seconds));
  const std::chrono::duration<double> step(1.0 / rate);
  uint64_t started = 0;
  bool failed = false;
  for (auto due = begin; due < end && !failed;) {
    while (due <= Clock::now() && !idle.empty()) {
      idle.back()->Start(session.stub.get(), request.message(), &queue, due);
      idle.pop_back();
      ++started;
      due = begin + std::chrono::duration_cast<Clock::duration>(step * started);
    }
    const auto wait = due - Clock::now();
    void* tag;
    bool ok;
    if (queue.AsyncNext(&tag, &ok,
                        std::chrono::system_clock::now() +
                            std::chrono::duration_cast<std::chrono::microseconds>(wait)) ==
        grpc::CompletionQueue::GOT_EVENT) {
      auto* const call = static_cast<ClientUnary*>(tag);
      latencies.push_back(call->Seconds());
      failed = !call->ok();
      idle.push_back(call);
    }
  }
  Drain(&queue);
  if (failed || latencies.empty()) {
    return absl::UnavailableError("a call to the peer of a gRPC roof failed");
  }
  const auto p99 =
      latencies.begin() + static_cast<size_t>(0.99 * static_cast<double>(latencies.size() - 1));
  std::nth_element(latencies.begin(), p99, latencies.end());
  return *p99;
}

}  // namespace hotbed::roofs
