#include "planner/coordinator/shell/seen_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace hotbed {
namespace seen_address_test {

using ::testing::HasSubstr;

v1::RegisterServerRequest Request(const std::string& address, const std::string& admin) {
  v1::RegisterServerRequest request;
  request.set_name("s1");
  request.set_address(address);
  request.set_admin_address(admin);
  return request;
}

TEST(SeenAddressTest, HostsOfPeers) {
  EXPECT_EQ(HostOfPeer("ipv4:10.0.0.7:4242"), "10.0.0.7");
  EXPECT_EQ(HostOfPeer("ipv6:%5Bfd00::7%5D:4242"), "fd00::7");
  EXPECT_EQ(HostOfPeer("ipv6:[fd00::7]:4242"), "fd00::7");
  EXPECT_EQ(HostOfPeer("ipv6:%5B::ffff:10.0.0.7%5D:4242"), "10.0.0.7");
  EXPECT_EQ(HostOfPeer("ipv6:%5Bfe80::1%25eth0%5D:4242"), "fe80::1%eth0");
  EXPECT_EQ(HostOfPeer("unix:/run/a"), "");
  EXPECT_EQ(HostOfPeer(""), "");
}

TEST(SeenAddressTest, AWildcardBecomesTheAddressFromWhichTheServerRegisters) {
  for (const char* wildcard : {"0.0.0.0:7500", "[::]:7500", ":7500", "[0:0::0]:7500"}) {
    v1::RegisterServerRequest request = Request(wildcard, "0.0.0.0:7501");
    ASSERT_TRUE(FillSeenHosts("ipv4:10.0.0.7:4242", &request).ok()) << wildcard;
    EXPECT_EQ(request.address(), "10.0.0.7:7500");
    EXPECT_EQ(request.admin_address(), "10.0.0.7:7501");
    request = Request(wildcard, "[::]:7501");
    ASSERT_TRUE(FillSeenHosts("ipv6:%5Bfd00::7%5D:4242", &request).ok()) << wildcard;
    EXPECT_EQ(request.address(), "[fd00::7]:7500");
    EXPECT_EQ(request.admin_address(), "[fd00::7]:7501");
  }
}

TEST(SeenAddressTest, TheAdminPortIsAtTheHostOfTheDataPort) {
  v1::RegisterServerRequest request = Request("0.0.0.0:7500", "[::]:7501");
  ASSERT_TRUE(FillSeenHosts("ipv4:10.0.0.7:4242", &request).ok());
  EXPECT_EQ(request.admin_address(), "10.0.0.7:7501");
  request = Request("pod-1.hotbed:7500", "0.0.0.0:7501");
  ASSERT_TRUE(FillSeenHosts("ipv4:10.0.0.7:4242", &request).ok());
  EXPECT_EQ(request.address(), "pod-1.hotbed:7500") << "as advertised";
  EXPECT_EQ(request.admin_address(), "pod-1.hotbed:7501");
  request = Request("10.0.0.7:7500", "127.0.0.1:7501");
  ASSERT_TRUE(FillSeenHosts("ipv4:10.0.0.9:4242", &request).ok());
  EXPECT_EQ(request.address(), "10.0.0.7:7500");
  EXPECT_EQ(request.admin_address(), "127.0.0.1:7501");
  request = Request("10.0.0.7:7500", "");
  ASSERT_TRUE(FillSeenHosts("ipv4:10.0.0.9:4242", &request).ok());
  EXPECT_EQ(request.admin_address(), "");
}

TEST(SeenAddressTest, OverLoopbackNobodyKnowsIt) {
  for (const char* peer : {"ipv4:127.0.0.1:4242", "ipv6:%5B::1%5D:4242",
                           "ipv6:%5Bfe80::1%25eth0%5D:4242", "unix:/run/a"}) {
    v1::RegisterServerRequest request = Request("0.0.0.0:7500", "");
    const absl::Status refused = FillSeenHosts(peer, &request);
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << peer;
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr("\"s1\" listens on 0.0.0.0:7500, to which nobody can connect"));
    EXPECT_THAT(std::string(refused.message()), HasSubstr("--advertise=HOST:7500"));
  }
}

}  // namespace seen_address_test
}  // namespace hotbed
