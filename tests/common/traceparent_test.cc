#include "common/traceparent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace hotbed {
namespace traceparent_test {

constexpr char kGood[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

TEST(TraceparentTest, TakesThoseOfTheStandard) {
  EXPECT_TRUE(CheckTraceparent(kGood).ok());
  EXPECT_EQ(TraceIdOf(kGood), "4bf92f3577b34da6a3ce929d0e0e4736");
  std::string later = kGood;
  later[1] = '1';
  EXPECT_TRUE(CheckTraceparent(later).ok());
  EXPECT_TRUE(CheckTraceparent(later + "-of-a-later-version").ok());
}

TEST(TraceparentTest, SaysWhatIsWrong) {
  const auto with = [](size_t at, const std::string& text) {
    std::string changed = kGood;
    return changed.replace(at, text.size(), text);
  };
  const std::pair<std::string, const char*> wrong[] = {
      {"", "length"},
      {std::string(kGood) + "0", "length"},
      {std::string(kGood) + "-more", "length"},
      {std::string(kTraceparentBytesMax + 1, '0'), "length"},
      {with(2, "0"), "dashes"},
      {with(35, "_"), "dashes"},
      {with(0, "ff"), "version"},
      {with(0, "0A"), "version"},
      {with(3, std::string(32, '0')), "trace id"},
      {with(3, "4BF9"), "trace id"},
      {with(36, std::string(16, '0')), "parent id"},
      {with(40, "x"), "parent id"},
      {with(53, "0G"), "flags"},
      {with(0, "01") + "x", "length"},
      {with(0, "01") + "-\n", "end"},
  };
  for (const auto& [text, what] : wrong) {
    const absl::Status checked = CheckTraceparent(text);
    EXPECT_EQ(checked.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(checked.message()), testing::HasSubstr(what)) << text;
    EXPECT_THAT(std::string(checked.message()), testing::HasSubstr("allowed: 00-"));
  }
}

}  // namespace traceparent_test
}  // namespace hotbed
