#include "ports/port.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"

namespace hotbed {
namespace port_test {

using ::testing::HasSubstr;

constexpr int64_t kSecond = 1'000'000'000;

// Owns the descriptors that a port hands over, in place of gRPC.
class PortTest : public ::testing::Test {
 protected:
  ~PortTest() override {
    port_.reset();
    for (const int descriptor : clients_) close(descriptor);
    absl::MutexLock lock(&mu_);
    for (const int descriptor : taken_) close(descriptor);
  }

  void Open(const ConnectionLimits& limits, bool probes = false) {
    PortOptions options;
    options.limits = limits;
    options.probes = probes;
    auto port = Port::Open(options, &clock_);
    ASSERT_TRUE(port.ok()) << port.status();
    port_ = *std::move(port);
    port_->Serve([this](int descriptor) {
      absl::MutexLock lock(&mu_);
      taken_.push_back(descriptor);
    });
  }

  // A client's connection from 127.0.0.`host`.
  int Connect(int host = 1) {
    const int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in from = {};
    from.sin_family = AF_INET;
    from.sin_addr.s_addr = htonl(0x7f000000 + host);
    EXPECT_EQ(bind(client, reinterpret_cast<sockaddr*>(&from), sizeof(from)), 0);
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const std::string& address = port_->address();
    to.sin_port = htons(std::stoi(address.substr(address.rfind(':') + 1)));
    EXPECT_EQ(connect(client, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
    clients_.push_back(client);
    return client;
  }

  // Whether the port has ended the connection; waits for it.
  static bool Ends(int client) {
    pollfd ended = {client, POLLIN, 0};
    char byte;
    return poll(&ended, 1, 5000) == 1 && recv(client, &byte, 1, MSG_DONTWAIT) <= 0;
  }

  // The server's end of the newest connection, once there are `count`.
  int Taken(size_t count) {
    absl::MutexLock lock(&mu_);
    const auto enough = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return taken_.size() >= count; };
    mu_.Await(absl::Condition(&enough));
    return taken_[count - 1];
  }

  static ssize_t Receive(int server) {
    char bytes[4096];
    iovec piece = {bytes, sizeof(bytes)};
    msghdr message = {};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    pollfd readable = {server, POLLIN, 0};
    poll(&readable, 1, 5000);
    return recvmsg(server, &message, 0);
  }

  ManualClock clock_;
  std::unique_ptr<Port> port_;
  std::vector<int> clients_;
  absl::Mutex mu_;
  std::vector<int> taken_ ABSL_GUARDED_BY(mu_);
};

ConnectionLimits Few(uint32_t all, uint32_t of_peer) {
  ConnectionLimits limits;
  limits.connections_max = all;
  limits.connections_per_peer_max = of_peer;
  return limits;
}

TEST_F(PortTest, OneAddressLeavesRoomForOthers) {
  Open(Few(8, 4));
  for (int i = 0; i < 4; ++i) Connect(/*host=*/2);
  EXPECT_TRUE(Ends(Connect(/*host=*/2)));
  const int other = Connect(/*host=*/3);
  Taken(5);
  pollfd quiet = {other, POLLIN, 0};
  EXPECT_EQ(poll(&quiet, 1, 0), 0);
}

TEST_F(PortTest, AnIdleConnectionMakesRoom) {
  Open(Few(5, 4));
  const int idle = Connect(2);
  Taken(1);
  clock_.Advance(kSecond);
  for (int i = 0; i < 3; ++i) Connect(2);
  Taken(4);
  EXPECT_TRUE(Ends(Connect(2)));  // nobody has been idle for long enough
  clock_.Advance(3 * kSecond);
  Connect(2);
  EXPECT_TRUE(Ends(idle));
  Taken(5);
}

TEST_F(PortTest, AnAddressAtItsLimitMakesNoOtherWait) {
  Open(Few(8, 2));
  const int idle = Connect(/*host=*/3);
  Taken(1);
  clock_.Advance(kSecond / 10);  // the other one is not the oldest
  Connect(/*host=*/3);
  Taken(2);
  clock_.Advance(4 * kSecond);
  Connect(/*host=*/2);
  Connect(/*host=*/2);
  Taken(4);
  EXPECT_TRUE(Ends(Connect(/*host=*/2))) << "none of its connections is idle";
  Connect(/*host=*/3);
  EXPECT_TRUE(Ends(idle));
  Taken(5);
}

TEST_F(PortTest, AMessageTooLargeBreaksItsConnection) {
  ConnectionLimits limits;
  limits.http2.message_bytes_max = 100;
  Open(limits);
  const int client = Connect(2);
  const int server = Taken(1);
  std::string bytes(kHttp2Hello, kHttp2HelloBytes);
  bytes += std::string(
      "\0\0\5\0\0\0\0\0\1"
      "\0\0\0\0\x65",
      14);  // DATA: 101 bytes to come
  ASSERT_EQ(send(client, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  EXPECT_EQ(Receive(server), -1);
  EXPECT_TRUE(Ends(client));
}

TEST_F(PortTest, TheOldestUnfinishedMessageMakesRoomForTheOthers) {
  ConnectionLimits limits;
  limits.unfinished_bytes_max = 50;
  Open(limits);
  std::string bytes(kHttp2Hello, kHttp2HelloBytes);
  bytes += std::string(
               "\0\0\x23\0\0\0\0\0\1"
               "\0\0\0\0\x64",
               14) +
           std::string(30, 'x');  // 35 of 105
  const int first = Connect(2);
  const int first_server = Taken(1);
  clock_.Advance(kSecond);
  const int second = Connect(2);
  const int second_server = Taken(2);
  send(first, bytes.data(), bytes.size(), 0);
  EXPECT_GT(Receive(first_server), 0);
  EXPECT_EQ(port_->connections().unfinished_bytes(), 35u);
  clock_.Advance(kSecond);
  send(second, bytes.data(), bytes.size(), 0);
  EXPECT_GT(Receive(second_server), 0);
  EXPECT_TRUE(Ends(first));
  EXPECT_EQ(port_->connections().unfinished_bytes(), 35u);
}

TEST_F(PortTest, WhoComesBackAfterAFloodMaySendLessAtOnce) {
  ConnectionLimits limits;
  limits.http2.control_frames_burst = 400;
  Open(limits);
  clock_.Advance(kSecond);
  const std::string ping("\0\0\x08\x06\0\0\0\0\0pingping", 17);
  size_t connections = 0;
  // How many pings a new connection of that host may send before it is ended.
  const auto pings = [&](int host) {
    const int client = Connect(host);
    const int server = Taken(++connections);
    send(client, kHttp2Hello, kHttp2HelloBytes, 0);  // with a frame of settings
    EXPECT_GT(Receive(server), 0);
    for (int count = 0;; ++count) {
      send(client, ping.data(), ping.size(), 0);
      if (Receive(server) < 0) return count;
    }
  };
  EXPECT_EQ(pings(2), 399);
  EXPECT_EQ(pings(2), 39);
  EXPECT_EQ(pings(2), 19);
  EXPECT_EQ(pings(2), 19) << "what a client needs that means well";
  EXPECT_EQ(pings(3), 399) << "another address";
  clock_.Advance(kFloodedNs + kSecond);
  EXPECT_EQ(pings(2), 399);
}

TEST_F(PortTest, AnAddressBeginsSoManyConnectionsPerSecond) {
  ConnectionLimits limits;
  limits.begins_burst = 3;
  limits.begins_per_second = 1;
  Open(limits);
  for (size_t count = 1; count <= 3; ++count) {
    Connect(/*host=*/2);
    Taken(count);
  }
  EXPECT_TRUE(Ends(Connect(/*host=*/2)));
  Connect(/*host=*/3);
  Taken(4);
  clock_.Advance(kSecond);
  Connect(/*host=*/2);
  Taken(5);
  EXPECT_TRUE(Ends(Connect(/*host=*/2)));
}

TEST_F(PortTest, WhatIsNotCompleteInTimeIsEnded) {
  Open(ConnectionLimits());
  const int silent = Connect(2);
  const int slow = Connect(2);
  const int slow_server = Taken(2);
  std::string bytes(kHttp2Hello, kHttp2HelloBytes);
  bytes += std::string(
      "\0\0\5\0\0\0\0\0\1"
      "\0\0\0\0\x65",
      14);
  clock_.Advance(kSecond);
  send(slow, bytes.data(), bytes.size(), 0);
  ASSERT_GT(Receive(slow_server), 0);
  clock_.Advance(11 * kSecond);  // no preface
  EXPECT_TRUE(Ends(silent));
  pollfd quiet = {slow, POLLIN, 0};
  EXPECT_EQ(poll(&quiet, 1, 0), 0);
  clock_.Advance(61 * kSecond);
  EXPECT_TRUE(Ends(slow));
}

TEST_F(PortTest, SaysWhyItCannotListen) {
  Open(ConnectionLimits());
  PortOptions options;
  options.listen = port_->address();
  EXPECT_THAT(std::string(Port::Open(options, &clock_).status().message()),
              HasSubstr("Address already in use; stop the other process"));
  options.listen = "192.0.2.1:0";
  EXPECT_THAT(std::string(Port::Open(options, &clock_).status().message()),
              HasSubstr("choose an address of this machine"));
}

// Nobody answers the port's probe here: gRPC would.
TEST_F(PortTest, TellsThatNobodyAnswers) {
  Open(ConnectionLimits(), /*probes=*/true);
  std::string why;
  EXPECT_TRUE(port_->Answers(&why));
  clock_.Advance(11 * kSecond);
  EXPECT_FALSE(port_->Answers(&why));
  EXPECT_THAT(why, HasSubstr("has not answered its own probe for 11 s"));
}

TEST(ConnectionLimitsTest, LeaveDescriptorsForFiles) {
  EXPECT_EQ(ConnectionLimitsOf(0, 0, 256).connections_max, 64u);
  EXPECT_EQ(ConnectionLimitsOf(0, 0, 1024).connections_max, 256u);
  EXPECT_EQ(ConnectionLimitsOf(0, 0, 1024).connections_per_peer_max, 128u);
  EXPECT_EQ(ConnectionLimitsOf(0, 0, 4096).connections_max, 3328u);
  EXPECT_EQ(ConnectionLimitsOf(0, 0, 1 << 20).connections_max, 8192u);
  EXPECT_EQ(ConnectionLimitsOf(5000, 0, 1024).connections_max, 256u);
  EXPECT_EQ(ConnectionLimitsOf(100, 90, 1024).connections_per_peer_max, 90u);
}

}  // namespace port_test
}  // namespace hotbed
