#include "common/host_port.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"

namespace hotbed {
namespace host_port_test {

TEST(HostPort, TakesWhatNamesAPort) {
  for (const char* good : {"127.0.0.1:1", "localhost:7400", "[::1]:65535", "dns:///a.b:80"}) {
    EXPECT_TRUE(CheckHostPort(good, 1).ok()) << good;
    EXPECT_TRUE(CheckHostPort(good, 0).ok()) << good;
  }
  for (const char* listens : {"127.0.0.1:0", ":7400", ":0"}) {
    EXPECT_TRUE(CheckHostPort(listens, 0).ok()) << listens;
    EXPECT_FALSE(CheckHostPort(listens, 1).ok()) << listens;
  }
}

TEST(HostPort, RefusalsNameTextAndRange) {
  for (const char* bad :
       {"", "here", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:99999999999999999999",
        "127.0.0.1:-1", "127.0.0.1:+1", "127.0.0.1: 1", "127.0.0.1:http", "127.0.0.1:0x10"}) {
    const absl::Status refused = CheckHostPort(bad, 0);
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(std::string(refused.message()),
                ::testing::HasSubstr("' is not HOST:PORT with a port of 0 to 65535"));
    EXPECT_THAT(std::string(refused.message()), ::testing::HasSubstr(bad));
  }
}

TEST(HostPort, AnIpv6AddressNeedsBrackets) {
  // Without them the port could be a part of the address.
  for (const char* bare : {"::1", "::1:7400", "fd00::7:7400", "1:2:3:4:5:6:7:8:7400"}) {
    const absl::Status refused = CheckHostPort(bare, 1);
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << bare;
    EXPECT_THAT(std::string(refused.message()), ::testing::HasSubstr("needs brackets")) << bare;
  }
}

TEST(HostPort, SeveralWithCommasBetween) {
  for (const char* good : {"a:1", "a:1,b:1", "a:1,a:2,[::1]:7400"}) {
    EXPECT_TRUE(CheckHostPorts(good, 1).ok()) << good;
  }
  for (const auto& [bad, why] :
       {std::pair("", "is not HOST:PORT"), std::pair("a:1,", "'' is not HOST:PORT"),
        std::pair("a:1,b", "'b' is not HOST:PORT"), std::pair("a:1, b:1,b:0", "'b:0'"),
        std::pair("a:1,b:1,a:1", "a:1 is named twice")}) {
    const absl::Status refused = CheckHostPorts(bad, 1);
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(std::string(refused.message()), ::testing::HasSubstr(why));
  }
  std::string many = "h:1";
  for (int port = 2; port <= 17; ++port) absl::StrAppend(&many, ",h:", port);
  EXPECT_THAT(std::string(CheckHostPorts(many, 1).message()),
              ::testing::HasSubstr("17 addresses; allowed: 1..16"));
}

TEST(HostPort, PartsAndBack) {
  for (const auto& [text, host, port] :
       {std::tuple("127.0.0.1:1", "127.0.0.1", "1"), std::tuple("[::1]:7400", "::1", "7400"),
        std::tuple("a.b:80", "a.b", "80"), std::tuple(":7400", "", "7400")}) {
    const absl::StatusOr<HostPort> parts = SplitHostPort(text, 0);
    ASSERT_TRUE(parts.ok()) << text;
    EXPECT_EQ(parts->host, host);
    EXPECT_EQ(parts->port, port);
    EXPECT_EQ(JoinHostPort(parts->host, parts->port), text);
  }
  EXPECT_FALSE(SplitHostPort("127.0.0.1:0", 1).ok());
}

TEST(HostPort, HostsOfEveryAddressAndOfNoOtherMachine) {
  for (const char* host : {"", "0.0.0.0", "::", "0:0::0"}) EXPECT_TRUE(IsWildcardHost(host));
  for (const char* host : {"10.0.0.7", "::1", "localhost"}) EXPECT_FALSE(IsWildcardHost(host));
  for (const char* host : {"localhost", "127.0.0.1", "127.9.9.9", "::1"}) {
    EXPECT_TRUE(IsLoopbackHost(host)) << host;
  }
  for (const char* host : {"", "0.0.0.0", "::", "10.0.0.7", "128.0.0.1", "a.b"}) {
    EXPECT_FALSE(IsLoopbackHost(host)) << host;
  }
}

}  // namespace host_port_test
}  // namespace hotbed
