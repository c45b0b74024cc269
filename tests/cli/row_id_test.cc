#include "cli/base/row_id.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hotbed {
namespace row_id_test {

TEST(ParseId, TakesEverySixtyFourBitPatternExactly) {
  EXPECT_EQ(*ParseId("0"), 0u);
  EXPECT_EQ(*ParseId("18446744073709551615"), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(*ParseId("9007199254740993"),
            9007199254740993ull);  // 2^53 + 1: not parsed through a double
  EXPECT_EQ(*ParseId("-1"), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(*ParseId("-9223372036854775808"), 1ull << 63);
  EXPECT_EQ(*ParseId("0xffffffffffffffff"), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(*ParseId("0x10"), 16u);
}

TEST(ParseId, RefusesWhatIsNoIdAndNamesIt) {
  for (const char* text :
       {"", "-", "abc", "1.5", "1e3", "18446744073709551616", "-9223372036854775809", " 1", "+1",
        "--1", "0x", "0x1ffffffffffffffff", "1 2"}) {
    const auto id = ParseId(text);
    EXPECT_EQ(id.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(id.status().message()),
                ::testing::HasSubstr(std::string("'") + text + "'"));
  }
}

}  // namespace row_id_test
}  // namespace hotbed
