#include "client/net/grpc_transport.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/synchronization/mutex.h"
#include "client/net/completion_poller.h"
#include "client/net/message_limits.h"
#include "client/net/server_stream.h"
#include "proto/grpc_tuning.h"
#include "security/channel_credentials.h"

namespace hotbed {
namespace {

static_assert(static_cast<int>(v1::PullHeader::kHelloFieldNumber) ==
              v1::PushHeader::kHelloFieldNumber);
static_assert(static_cast<int>(v1::PullHeader::kRequestFieldNumber) ==
              v1::PushHeader::kRequestFieldNumber);

class GrpcTransport;

// One lookup. Deletes itself when its event has run.
class UnaryCall final : public CompletionEvent {
 public:
  UnaryCall(GrpcTransport* transport, std::string address, std::shared_ptr<PendingRequest> request,
            uint64_t row_bytes)
      : transport_(transport),
        address_(std::move(address)),
        request_(std::move(request)),
        row_bytes_(row_bytes) {}
  void Start(grpc::GenericStub* stub, const grpc::ByteBuffer& message,
             grpc::CompletionQueue* queue) {
    call_ = stub->PrepareUnaryCall(&context_, "/hotbed.v1.Data/Lookup", message, queue);
    call_->StartCall();
    call_->Finish(&answer_, &status_, this);
  }
  void Cancel() { context_.TryCancel(); }
  const std::string& address() const { return address_; }
  void Run(bool ok) override;

 private:
  GrpcTransport* const transport_;
  const std::string address_;
  const std::shared_ptr<PendingRequest> request_;
  const uint64_t row_bytes_;  // as in OutgoingMessage
  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericClientAsyncResponseReader> call_;
  grpc::ByteBuffer answer_;
  grpc::Status status_;
};

class GrpcTransport final : public Transport {
 public:
  GrpcTransport(const ClientOptions& options, const ClientIdentity& identity)
      : options_(options),
        identity_(identity),
        driver_(std::make_shared<CompletionPoller>(options.threads)) {}

  ~GrpcTransport() override {
    {
      absl::MutexLock lock(&mu_);
      closing_ = true;
      for (auto& [key, endpoint] : endpoints_) {
        if (endpoint.lane != nullptr) endpoint.lane->Cancel();
      }
      for (UnaryCall* call : unary_) call->Cancel();
    }
    live_.AwaitNone();
    driver_->Shutdown();
  }

  void Send(const std::string& address, Lane lane, OutgoingMessage message,
            std::shared_ptr<PendingRequest> request) override;

  void Abandon(const std::string& address) override {
    absl::MutexLock lock(&mu_);
    for (const Lane lane : {Lane::kPull, Lane::kPush, Lane::kLookup}) {
      const auto it = endpoints_.find({address, lane});
      if (it == endpoints_.end()) continue;
      if (it->second.lane != nullptr) it->second.lane->Cancel();
      endpoints_.erase(it);  // and its connection, whose other end may be gone
    }
    for (UnaryCall* call : unary_) {
      if (call->address() == address) call->Cancel();
    }
  }

  void SetSession(uint64_t session, uint64_t incarnation) override {
    absl::MutexLock lock(&mu_);
    session_ = session;
    incarnation_ = incarnation;
  }

  void SetClusterId(const std::string& cluster_id) override {
    absl::MutexLock lock(&mu_);
    cluster_id_ = cluster_id;
  }

  ClientStats Stats() const override {
    return {.bytes_sent = counters_.bytes_sent.load(),
            .bytes_received = counters_.bytes_received.load(),
            .messages = counters_.messages.load(),
            .reconnects = counters_.reconnects.load()};
  }

  std::shared_ptr<WaitDriver> driver() override { return driver_; }
  uint64_t MessageBytesMax() const override { return counters_.message_bytes_max.load(); }

  void Finished(UnaryCall* call) {
    absl::MutexLock lock(&mu_);
    unary_.erase(call);
    live_.Remove();
  }
  GrpcCounters* counters() { return &counters_; }

 private:
  struct Endpoint {
    std::unique_ptr<grpc::GenericStub> stub;
    std::shared_ptr<ServerStream> lane;  // null: none yet, or a unary endpoint
  };
  static constexpr size_t kEndpointsMax = 4096;  // beyond it, dead streams are forgotten

  Endpoint* EndpointOf(const std::string& address, Lane lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  v1::Hello MakeHello(Lane lane) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  uint64_t JoinedBytesMax() const {
    if (!options_.join_requests) return 0;
    return std::min(StreamBacklog::kJoinedBytesMax,
                    options_.message_bytes_max - kMessageFrameBytes);
  }
  void SendUnary(grpc::GenericStub* stub, const std::string& address, OutgoingMessage message,
                 std::shared_ptr<PendingRequest> request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  int AnswerBytesMax() const {
    return static_cast<int>(options_.message_bytes_max * 4 + (4 << 20));
  }

  const ClientOptions options_;
  const ClientIdentity identity_;
  GrpcCounters counters_;
  LiveCount live_;
  const std::shared_ptr<CompletionPoller> driver_;  // shared with the futures

  absl::Mutex mu_;
  absl::flat_hash_map<std::pair<std::string, Lane>, Endpoint> endpoints_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_set<UnaryCall*> unary_ ABSL_GUARDED_BY(mu_);
  uint64_t session_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t incarnation_ ABSL_GUARDED_BY(mu_) = 0;
  std::string cluster_id_ ABSL_GUARDED_BY(mu_);
  bool closing_ ABSL_GUARDED_BY(mu_) = false;
};

v1::Hello GrpcTransport::MakeHello(Lane lane) const {
  v1::Hello hello;
  hello.set_cluster_id(cluster_id_);
  hello.set_wire_version(kWireVersion);
  hello.set_feature_level(kFeatureLevel);
  hello.set_message_bytes_max(static_cast<uint64_t>(AnswerBytesMax()));
  if (lane == Lane::kPush) {
    hello.set_session(session_);
    hello.set_incarnation(incarnation_);
  }
  return hello;
}

GrpcTransport::Endpoint* GrpcTransport::EndpointOf(const std::string& address, Lane lane) {
  if (endpoints_.size() >= kEndpointsMax) {
    absl::erase_if(endpoints_,
                   [](const auto& e) { return e.second.lane != nullptr && e.second.lane->dead(); });
  }
  Endpoint& endpoint = endpoints_[{address, lane}];
  if (endpoint.stub == nullptr) {
    grpc::ChannelArguments args =
        DataPlaneChannelArguments(AnswerBytesMax(), identity_.files.any());
    SetKeepalive(kClientKeepalive, &args);
    endpoint.stub = std::make_unique<grpc::GenericStub>(
        grpc::CreateCustomChannel(address, ChannelCredentialsOf(identity_), args));
  }
  return &endpoint;
}

void GrpcTransport::Send(const std::string& address, Lane lane, OutgoingMessage message,
                         std::shared_ptr<PendingRequest> request) {
  absl::MutexLock lock(&mu_);
  Endpoint* endpoint = EndpointOf(address, lane);
  if (lane == Lane::kLookup) {
    return SendUnary(endpoint->stub.get(), address, std::move(message), std::move(request));
  }
  if (endpoint->lane != nullptr && endpoint->lane->Send(&message, &request)) return;
  endpoint->lane =
      std::make_shared<ServerStream>(address, lane, MakeHello(lane), endpoint->stub.get(),
                                     driver_->queue(), &counters_, &live_, JoinedBytesMax());
  endpoint->lane->Send(&message, &request);
  endpoint->lane->Start();
  if (closing_) endpoint->lane->Cancel();
}

void GrpcTransport::SendUnary(grpc::GenericStub* stub, const std::string& address,
                              OutgoingMessage message, std::shared_ptr<PendingRequest> request) {
  v1::PullHeader prefix;
  prefix.set_request(1);
  prefix.set_deadline_ms(message.deadline_ms);
  *prefix.mutable_hello() = MakeHello(Lane::kLookup);
  const uint64_t row_bytes = message.row_bytes;
  const grpc::ByteBuffer buffer = ToByteBuffer(prefix.SerializeAsString(), std::move(message));
  counters_.bytes_sent.fetch_add(buffer.Length(), std::memory_order_relaxed);
  counters_.messages.fetch_add(1, std::memory_order_relaxed);
  auto* call = new UnaryCall(this, address, std::move(request), row_bytes);
  unary_.insert(call);
  live_.Add();
  call->Start(stub, buffer, driver_->queue());
  if (closing_) call->Cancel();
}

void UnaryCall::Run(bool ok) {
  thread_local ReceivedMessage message;
  if (ok && status_.ok()) {
    transport_->counters()->bytes_received.fetch_add(answer_.Length(), std::memory_order_relaxed);
    const absl::Status parsed = message.Parse(answer_);
    const ServerReply reply = message.reply(row_bytes_);
    if (parsed.ok()) {
      transport_->counters()->NoteHello(message.header().hello());
    }
    request_->Done(parsed, parsed.ok() ? &reply : nullptr);
  } else {
    request_->Done(StatusOfServer(status_, address_), nullptr);
  }
  transport_->Finished(this);
  delete this;
}

}  // namespace

std::unique_ptr<Transport> NewGrpcTransport(const ClientOptions& options,
                                            const ClientIdentity& identity) {
  return std::make_unique<GrpcTransport>(options, identity);
}

}  // namespace hotbed
