#include "common/host_port.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

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

}  // namespace host_port_test
}  // namespace hotbed
