#include "common/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace hotbed {
namespace log_test {

using testing::MatchesRegex;

class LogTest : public testing::Test {
 protected:
  void TearDown() override {
    SetLogFormat(LogFormat::kText);
    SetLogName("");
  }
};

constexpr char kTime[] = "[0-9-]+T[0-9:]+\\.[0-9]+Z";

TEST_F(LogTest, OneLineAMessage) {
  SetLogName("server-0");
  testing::internal::CaptureStderr();
  HOTBED_LOG(Warning) << "rows " << 3;
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      MatchesRegex(std::string("W ") + kTime + " server-0 .*log_test.cc:[0-9]+\\] rows 3\n"));
}

TEST_F(LogTest, JsonIsEscaped) {
  SetLogFormat(LogFormat::kJson);
  testing::internal::CaptureStderr();
  HOTBED_LOG(Error) << "a \"b\"\nc";
  const std::string line = testing::internal::GetCapturedStderr();
  EXPECT_THAT(line, testing::HasSubstr(R"("level":"error")"));
  EXPECT_THAT(line, testing::HasSubstr(R"("message":"a \"b\"\nc"})"));
  EXPECT_EQ(line.find('\n'), line.size() - 1);
}

TEST_F(LogTest, EverySecondsDropsWhatComesTooSoon) {
  testing::internal::CaptureStderr();
  for (int i = 0; i < 5; ++i) HOTBED_LOG_EVERY_S(Info, 3600) << "line " << i;
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, testing::HasSubstr("line 0"));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("line 1")));
}

}  // namespace log_test
}  // namespace hotbed
