// Against real sockets of this process.
#include "planner/coordinator/shell/port_probe.h"

#include <arpa/inet.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "proto/control.grpc.pb.h"

namespace hotbed {
namespace port_probe_test {

// A socket that listens and never accepts, as that of a stopped process.
class Listener {
 public:
  Listener() : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(fd_, 16), 0);
    socklen_t size = sizeof(address);
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    address_ = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  }
  ~Listener() { Close(); }
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  const std::string& address() const { return address_; }

 private:
  int fd_;
  std::string address_;
};

class PortProbeTest : public ::testing::Test {
 protected:
  ProbeAnswer Ask(const std::string& address) {
    const ServerId id = ++asked_;
    probe_.Ask({id, 1, address});
    absl::MutexLock lock(&mu_);
    const auto answered = [&] { return answers_.count(id) > 0; };
    EXPECT_TRUE(mu_.AwaitWithTimeout(absl::Condition(&answered), absl::Seconds(10)));
    return answers_[id];
  }

  absl::Mutex mu_;
  std::map<ServerId, ProbeAnswer> answers_;
  ServerId asked_ = 0;
  PortProbe probe_{Clock::Real(), [this](const ProbeRequest& request, ProbeAnswer answer) {
                     absl::MutexLock lock(&mu_);
                     EXPECT_TRUE(answers_.emplace(request.server, answer).second) << "once";
                   }};
};

TEST_F(PortProbeTest, AServerAnswers) {
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  v1::Coordinator::Service service;
  builder.RegisterService(&service);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  EXPECT_EQ(Ask(absl::StrCat("127.0.0.1:", port)), ProbeAnswer::kAnswers);
  EXPECT_EQ(Ask(absl::StrCat("localhost:", port)), ProbeAnswer::kAnswers);
  server->Shutdown();
}

TEST_F(PortProbeTest, AClosedPortRefuses) {
  Listener listener;
  listener.Close();
  EXPECT_EQ(Ask(listener.address()), ProbeAnswer::kRefused);
}

TEST_F(PortProbeTest, AProcessThatDoesNotRunIsSilent) {
  Listener listener;
  const int64_t begin_ns = Clock::Real()->NowNs();
  EXPECT_EQ(Ask(listener.address()), ProbeAnswer::kSilent);
  EXPECT_GE(Clock::Real()->NowNs() - begin_ns, 190'000'000);
}

TEST_F(PortProbeTest, AnAddressThatLeadsNowhereIsSilent) {
  EXPECT_EQ(Ask("no port"), ProbeAnswer::kSilent);
  EXPECT_EQ(Ask("nowhere.invalid:1"), ProbeAnswer::kSilent);
}

TEST_F(PortProbeTest, ManyAtOnceAreAllAnswered) {
  Listener silent;
  Listener closed;
  closed.Close();
  for (ServerId id = 1; id <= 300; ++id) {
    probe_.Ask({id, 1, id % 2 == 0 ? silent.address() : closed.address()});
  }
  absl::MutexLock lock(&mu_);
  const auto all = [&] { return answers_.size() == 300; };
  ASSERT_TRUE(mu_.AwaitWithTimeout(absl::Condition(&all), absl::Seconds(30)));
  for (const auto& [id, answer] : answers_) {
    // The backlog of the silent one is full after a while: then it does not even accept.
    EXPECT_EQ(answer, id % 2 == 0 ? ProbeAnswer::kSilent : ProbeAnswer::kRefused);
  }
}

}  // namespace port_probe_test
}  // namespace hotbed
