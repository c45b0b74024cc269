// Against real sockets of this process.
#include "common/dial.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace hotbed {
namespace dial_test {

// Listens on the loopback address of one family. Port 0: this machine has none of it.
class Listener {
 public:
  explicit Listener(int family) : fd_(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_storage place = {};
    place.ss_family = static_cast<sa_family_t>(family);
    auto& four = reinterpret_cast<sockaddr_in&>(place);
    auto& six = reinterpret_cast<sockaddr_in6&>(place);
    if (family == AF_INET) {
      four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    } else {
      six.sin6_addr = in6addr_loopback;
    }
    socklen_t size = family == AF_INET ? sizeof(four) : sizeof(six);
    auto* const address = reinterpret_cast<sockaddr*>(&place);
    if (fd_ < 0 || bind(fd_, address, size) != 0 || listen(fd_, 4) != 0) return;
    getsockname(fd_, address, &size);
    port_ = ntohs(family == AF_INET ? four.sin_port : six.sin6_port);
  }
  ~Listener() { Close(); }
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  int port() const { return port_; }

 private:
  int fd_;
  int port_ = 0;
};

absl::Status Try(const std::string& address) {
  const absl::StatusOr<int> fd = Dial(address, absl::Seconds(5));
  if (fd.ok()) close(*fd);
  return fd.status();
}

TEST(DialTest, ConnectsToNamesAndAddressesOfBothFamilies) {
  const Listener four(AF_INET);
  EXPECT_TRUE(Try(absl::StrCat("127.0.0.1:", four.port())).ok());
  // The name may stand for an address of the other family first, which refuses.
  EXPECT_TRUE(Try(absl::StrCat("localhost:", four.port())).ok());
  const Listener six(AF_INET6);
  if (six.port() == 0) GTEST_SKIP() << "this machine has no IPv6";
  const absl::Status connected = Try(absl::StrCat("[::1]:", six.port()));
  EXPECT_TRUE(connected.ok()) << connected;
}

TEST(DialTest, AClosedPortRefuses) {
  Listener closed(AF_INET);
  closed.Close();
  EXPECT_TRUE(absl::IsUnavailable(Try(absl::StrCat("127.0.0.1:", closed.port()))));
  EXPECT_TRUE(absl::IsUnavailable(Try(absl::StrCat("localhost:", closed.port()))));
}

TEST(DialTest, WhatIsNoAddressIsNamed) {
  EXPECT_TRUE(absl::IsInvalidArgument(Try("here")));
  EXPECT_TRUE(absl::IsInvalidArgument(Try("127.0.0.1:0")));
  const absl::Status unknown = Try("nowhere.invalid:1");
  EXPECT_TRUE(absl::IsNotFound(unknown));
  EXPECT_NE(std::string(unknown.message()).find("nowhere.invalid:1"), std::string::npos);
}

}  // namespace dial_test
}  // namespace hotbed
