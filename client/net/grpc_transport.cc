#include "client/net/grpc_transport.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
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

 private:
  struct Endpoint {
    std::unique_ptr<grpc::GenericStub> stub;
    std::shared_ptr<ServerStream> lane;  // null: none yet
  };
  static constexpr size_t kEndpointsMax = 4096;  // beyond it, dead streams are forgotten

  Endpoint* EndpointOf(const std::string& address, Lane lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  v1::Hello MakeHello(Lane lane) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  uint64_t JoinedBytesMax() const {
    if (!options_.join_requests) return 0;
    return std::min(StreamBacklog::kJoinedBytesMax,
                    options_.message_bytes_max - kMessageFrameBytes);
  }
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
  if (endpoint->lane != nullptr && endpoint->lane->Send(&message, &request)) return;
  endpoint->lane =
      std::make_shared<ServerStream>(address, lane, MakeHello(lane), endpoint->stub.get(),
                                     driver_->queue(), &counters_, &live_, JoinedBytesMax());
  endpoint->lane->Send(&message, &request);
  endpoint->lane->Start();
  if (closing_) endpoint->lane->Cancel();
}

}  // namespace

std::unique_ptr<Transport> NewGrpcTransport(const ClientOptions& options,
                                            const ClientIdentity& identity) {
  return std::make_unique<GrpcTransport>(options, identity);
}

}  // namespace hotbed
