#include "config/units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/random.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace units_test {

using testing::HasSubstr;

TEST(Units, BytesAsPeopleWriteThem) {
  EXPECT_EQ(*ParseBytes("4096"), 4096u);
  EXPECT_EQ(*ParseBytes("0"), 0u);
  EXPECT_EQ(*ParseBytes("64MiB"), 64u << 20);
  EXPECT_EQ(*ParseBytes(" 1.5 GiB "), uint64_t{3} << 29);
  EXPECT_EQ(*ParseBytes("2TiB"), uint64_t{2} << 40);
  EXPECT_EQ(*ParseBytes("18446744073709551615"), UINT64_MAX);
  EXPECT_EQ(*ParseBytes("0.1GiB"), 107374182u);
}

TEST(Units, BytesRefusedNameTheUnits) {
  for (const char* text : {"", "MiB", "64MB", "64 mib", "-1", "1e9", "1.2.3", "0x10", "16777216TiB",
                           "99999999999TiB", "0.2B"}) {
    const absl::Status status = ParseBytes(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("B, KiB, MiB, GiB, TiB")) << text;
  }
}

TEST(Units, Durations) {
  EXPECT_EQ(*ParseMillis("250"), 250);
  EXPECT_EQ(*ParseMillis("250ms"), 250);
  EXPECT_EQ(*ParseMillis("5 s"), 5000);
  EXPECT_EQ(*ParseMillis("1.5min"), 90000);
  EXPECT_EQ(*ParseMillis("2h"), 7200000);
  EXPECT_EQ(*ParseMillis("3000us"), 3);
  EXPECT_EQ(*ParseMillis("5000000ns"), 5);
  for (const char* text : {"500us", "0.5ms", "-5s", "5 sec", "9999999999999999h"}) {
    EXPECT_FALSE(ParseMillis(text).ok()) << text;
  }
}

TEST(Units, FormatsForPeopleAndExactly) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(64 << 20), "64 MiB");
  EXPECT_EQ(FormatBytes(uint64_t{3} << 29), "1.5 GiB");
  EXPECT_EQ(ExactBytes(uint64_t{3} << 29), "1536MiB");
  EXPECT_EQ(ExactBytes(4097), "4097B");
  EXPECT_EQ(ExactMillis(90000), "90s");
  const TestSeed seed(1);
  Random random(seed.value());
  for (int i = 0; i < 1000; ++i) {
    const uint64_t value = random.Next() >> random.Uniform(64) << random.Uniform(40);
    ASSERT_EQ(*ParseBytes(ExactBytes(value)), value);
    const int64_t millis = static_cast<int64_t>(value >> 1);
    ASSERT_EQ(*ParseMillis(ExactMillis(millis)), millis);
  }
}

TEST(Units, NearestWord) {
  const std::vector<std::string> words = {"host-bytes", "listen", "spill-dir"};
  EXPECT_EQ(NearestWord("host-byte", words), "host-bytes");
  EXPECT_EQ(NearestWord("host_bytes", words), "host-bytes");
  EXPECT_EQ(NearestWord("lisen", words), "listen");
  EXPECT_EQ(NearestWord("frobnicate", words), "");
}

}  // namespace units_test
}  // namespace hotbed
