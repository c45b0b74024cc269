#include "places/s3_answers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "places/s3_requests.h"

namespace hotbed {
namespace s3_answers_test {

TEST(S3AnswersTest, PathsAndQueriesHaveTheFormThatIsSigned) {
  EXPECT_EQ(EncodedPath("a b/c+d/\xc3\xa4~_-."), "a%20b/c%2Bd/%C3%A4~_-.");
  EXPECT_EQ(EncodedValue("a/b=c&d"), "a%2Fb%3Dc%26d");
  EXPECT_EQ(QueryOf({{"uploads", ""}, {"prefix", "a/b c"}}), "prefix=a%2Fb%20c&uploads=");
}

TEST(S3AnswersTest, ReadsListings) {
  const auto listing = ListingIn(
      "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"x\"><Name>b</Name><Prefix>p/</Prefix>"
      "<Contents><Key>p/a&amp;b</Key><ETag>&quot;1&quot;</ETag><Size>17</Size></Contents>"
      "<CommonPrefixes><Prefix>p/one/</Prefix></CommonPrefixes>"
      "<CommonPrefixes><Prefix>p/two/</Prefix></CommonPrefixes>"
      "<IsTruncated>true</IsTruncated><NextContinuationToken>t&lt;1</NextContinuationToken>"
      "</ListBucketResult>");
  ASSERT_TRUE(listing.ok()) << listing.status();
  ASSERT_EQ(listing->objects.size(), 1u);
  EXPECT_EQ(listing->objects[0].key, "p/a&b");
  EXPECT_EQ(listing->objects[0].bytes, 17u);
  EXPECT_THAT(listing->prefixes, testing::ElementsAre("p/one/", "p/two/"));
  EXPECT_EQ(listing->next, "t<1");
  // A page of a proxy, or half an answer, is no empty listing.
  for (const char* other : {"", "<html>sign in</html>", "<ListBucketResult><Contents>",
                            "<ListBucketResult><Contents><Key>a</Key></Contents>"
                            "</ListBucketResult>"}) {
    EXPECT_TRUE(absl::IsUnavailable(ListingIn(other).status())) << other;
  }
}

TEST(S3AnswersTest, ReadsUploadsAndErrors) {
  const auto uploads = UploadsIn(
      "<ListMultipartUploadsResult><Upload><Key>k</Key><UploadId>u+1</UploadId>"
      "<Initiated>1970-01-01T00:00:01.500Z</Initiated></Upload><IsTruncated>true</IsTruncated>"
      "<NextKeyMarker>k</NextKeyMarker><NextUploadIdMarker>u+1</NextUploadIdMarker>"
      "</ListMultipartUploadsResult>");
  ASSERT_TRUE(uploads.ok()) << uploads.status();
  ASSERT_EQ(uploads->uploads.size(), 1u);
  EXPECT_EQ(uploads->uploads[0].id, "u+1");
  EXPECT_EQ(uploads->uploads[0].begun_unix_ms, 1500);
  EXPECT_EQ(uploads->next_id, "u+1");
  EXPECT_EQ(*UploadIdIn("<InitiateMultipartUploadResult><UploadId>7</UploadId>"
                        "</InitiateMultipartUploadResult>"),
            "7");
  const S3Error error = ErrorIn("<Error><Code>SlowDown</Code><Message>later</Message></Error>");
  EXPECT_EQ(error.code, "SlowDown");
  EXPECT_EQ(error.message, "later");
  EXPECT_EQ(ErrorIn("<html></html>").code, "");
  EXPECT_EQ(CompletionOf({"\"a\"", "\"b\""}),
            "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>\"a\"</ETag></Part>"
            "<Part><PartNumber>2</PartNumber><ETag>\"b\"</ETag></Part></CompleteMultipartUpload>");
}

TEST(S3AnswersTest, ReadsDeletions) {
  EXPECT_EQ(DeletionOf({"a&b", "c"}),
            "<Delete><Quiet>true</Quiet><Object><Key>a&amp;b</Key></Object>"
            "<Object><Key>c</Key></Object></Delete>");
  EXPECT_TRUE(DeletedBy("<DeleteResult xmlns=\"x\"></DeleteResult>").ok());
  EXPECT_TRUE(DeletedBy("<DeleteResult/>").ok());
  EXPECT_TRUE(absl::IsUnavailable(DeletedBy("<html></html>")));
  const absl::Status failed = DeletedBy(
      "<DeleteResult><Error><Key>k</Key><Code>AccessDenied</Code><Message>m</Message>"
      "</Error></DeleteResult>");
  EXPECT_TRUE(absl::IsPermissionDenied(failed)) << failed;
}

TEST(S3AnswersTest, DelaysGrowAndAreRandomAndBounded) {
  Random random(1);
  for (int tries = 1; tries < 100; ++tries) {
    const int64_t most = std::min(int64_t{100} << std::min(tries - 1, 10), int64_t{5000});
    for (int i = 0; i < 20; ++i) {
      const int64_t delay_ms = S3DelayNs(tries, &random) / kMillisecondNs;
      EXPECT_GE(delay_ms, most / 2);
      EXPECT_LE(delay_ms, most);
    }
  }
}

}  // namespace s3_answers_test
}  // namespace hotbed
