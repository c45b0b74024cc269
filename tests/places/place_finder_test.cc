#include "places/place_finder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tests/common/fault_file_system.h"

namespace hotbed {
namespace place_finder_test {

TEST(PlaceFinderTest, PathsHaveOneForm) {
  EXPECT_EQ(*PlacePath("/a/b/"), "/a/b");
  EXPECT_EQ(*PlacePath("/a/./b/../c"), "/a/c");
  EXPECT_EQ(PlacePath("relative")->front(), '/');
  EXPECT_EQ(*PlacePath("s3://bucket/some/prefix/"), "s3://bucket/some/prefix");
  EXPECT_EQ(*PlacePath("s3://bucket"), "s3://bucket");
  for (const char* bad : {"", "s3://", "s3:///key", "s3://bucket//key", "s3://bucket/../other",
                          "s3://bucket/./key", "s3://bucket/key//"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(PlacePath(bad).status())) << bad;
  }
}

TEST(PlaceFinderTest, ABucketIsNoPartOfAnAddress) {
  for (const char* bucket : {"evil%2Ecom#", "[::1]:80", "a@host", "localhost:8443", "b", "a b c"}) {
    const auto path = PlacePath(absl::StrCat("s3://", bucket, "/x"));
    EXPECT_TRUE(absl::IsInvalidArgument(path.status())) << bucket;
  }
  EXPECT_EQ(*PlacePath("s3://my.bucket_1-x/a b%/"), "s3://my.bucket_1-x/a b%");
}

TEST(PlaceFinderTest, AnObjectStoreNeedsCredentialsAndADirectoryNone) {
  FaultFileSystem files(1);
  PlaceFinder places(&files);
  for (const char* name : {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}) unsetenv(name);
  ASSERT_TRUE(places.Of("/c").ok());
  EXPECT_TRUE(absl::IsInvalidArgument(places.Of("relative").status()));
  const auto without = places.Of("s3://bucket/c");
  EXPECT_TRUE(absl::IsUnauthenticated(without.status())) << without.status();
  EXPECT_THAT(std::string(without.status().message()), testing::HasSubstr("AWS_ACCESS_KEY_ID"));
  setenv("AWS_ACCESS_KEY_ID", "key", 1);
  setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
  setenv("AWS_ENDPOINT_URL", "localhost:9000", 1);
  EXPECT_TRUE(absl::IsInvalidArgument(places.Of("s3://bucket/c").status()));
  setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1/", 1);
  const auto place = places.Of("s3://bucket/c");
  ASSERT_TRUE(place.ok()) << place.status();
  EXPECT_EQ(*places.Of("s3://other"), *place);
  unsetenv("AWS_ENDPOINT_URL");
  places.Stop();
  EXPECT_TRUE(absl::IsCancelled((*place)->ReadAll("s3://bucket/c").status()));
}

}  // namespace place_finder_test
}  // namespace hotbed
