// A link between a fake shard host and a fake coordinator that comes and goes.
#ifndef HOTBED_TESTS_SERVER_COORDINATOR_LINK_FIXTURE_H_
#define HOTBED_TESTS_SERVER_COORDINATOR_LINK_FIXTURE_H_

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/cluster/coordinator_link.h"
#include "tests/server/fake_coordinator.h"
#include "tests/server/fake_shard_host.h"

namespace hotbed {

class FakeNetwork final : public ReplicaNetwork {
 public:
  void Send(ReplicaMessage) override {}
  uint64_t QueuedBytes(const Member&) const override { return 0; }
  void SetPeers(const std::vector<Peer>& peers) override {
    absl::MutexLock lock(&mu_);
    peers_ = peers;
  }
  void SetSelf(const Member& self, const std::string& cluster_id) override {
    absl::MutexLock lock(&mu_);
    self_ = absl::StrCat(self.server, "/", self.incarnation, " of ", cluster_id);
  }
  std::string peers() {
    absl::MutexLock lock(&mu_);
    std::string text = absl::StrCat("self ", self_);
    for (const Peer& peer : peers_) {
      absl::StrAppend(&text, ", ", peer.member.server, "/", peer.member.incarnation, " at ",
                      peer.address);
    }
    return text;
  }

 private:
  absl::Mutex mu_;
  std::vector<Peer> peers_ ABSL_GUARDED_BY(mu_);
  std::string self_ ABSL_GUARDED_BY(mu_);
};

class LinkFixture {
 protected:
  ~LinkFixture() {
    link_.reset();
    StopCoordinator();
  }

  void StartCoordinator(int port) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(absl::StrCat("127.0.0.1:", port), grpc::InsecureServerCredentials(),
                             &port_);
    builder.RegisterService(&coordinator_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
  }
  void StopCoordinator() {
    if (server_ == nullptr) return;
    server_->Shutdown(std::chrono::system_clock::now());
    server_.reset();
  }
  void StartLink(const std::string& name, int64_t rpc_timeout_ms = 2000) {
    CoordinatorLinkOptions options;
    options.timeouts.ms = rpc_timeout_ms;
    options.coordinator = absl::StrCat("127.0.0.1:", port_);
    options.name = name;
    options.address = "127.0.0.1:1";
    options.message_bytes_max = 70000;
    options.backoff_min_ms = 2;
    options.backoff_max_ms = 20;
    options.failure_domain = "rack-1";
    options.network = &network_;
    link_ = std::make_unique<CoordinatorLink>(options, &host_, Clock::Real());
  }
  static bool WaitFor(const std::function<bool()>& condition) {
    for (int i = 0; i < 5000; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }

  FakeCoordinator coordinator_;
  FakeShardHost host_;
  FakeNetwork network_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<CoordinatorLink> link_;
};

}  // namespace hotbed

#endif  // HOTBED_TESTS_SERVER_COORDINATOR_LINK_FIXTURE_H_
