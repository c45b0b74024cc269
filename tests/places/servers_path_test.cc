#include "places/servers_path.h"

#include <gtest/gtest.h>

#include <string>

#include "places/place_finder.h"
#include "tests/common/fault_file_system.h"

namespace hotbed {
namespace servers_path_test {

TEST(ServersPathTest, APathStaysBelowTheRoot) {
  EXPECT_EQ(*PathBelow("/root", "server:ctr"), "/root/ctr");
  EXPECT_EQ(*PathBelow("/root", "server:ctr/20261126T101500.123Z/1-0-17.rows"),
            "/root/ctr/20261126T101500.123Z/1-0-17.rows");
  for (const std::string& bad :
       {std::string("server:"), std::string("server:/etc"), std::string("server:.."),
        std::string("server:../x"), std::string("server:a/.."), std::string("server:a/../../b"),
        std::string("server:a//b"), std::string("server:a/b/c/d"), std::string("server:.hidden"),
        std::string("server:a b"), std::string("server:a\\b"), std::string("server:a\0b", 10),
        std::string("server:a\n"), std::string("server:\xc3\xa4"), std::string("/etc/passwd"),
        std::string(""), std::string("serve"), "server:" + std::string(129, 'a')}) {
    EXPECT_TRUE(absl::IsInvalidArgument(PathBelow("/root", bad).status())) << bad;
  }
  EXPECT_TRUE(PathBelow("/root", "server:" + std::string(128, 'a')).ok());
}

TEST(ServersPathTest, AServersPlaceIsReachedOnlyThroughACluster) {
  EXPECT_EQ(*PlacePath("server:ctr/"), "server:ctr");
  EXPECT_TRUE(absl::IsInvalidArgument(PlacePath("server:a/../b").status()));
  FaultFileSystem files(1);
  PlaceFinder places(&files);
  EXPECT_TRUE(absl::IsFailedPrecondition(places.Of("server:ctr").status()));
  places.ReachServers(std::make_unique<DirectoryPlace>(&files));
  EXPECT_TRUE(places.Of("server:ctr").ok());
}

}  // namespace servers_path_test
}  // namespace hotbed
