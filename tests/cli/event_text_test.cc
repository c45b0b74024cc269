#include "cli/shards/event_text.h"

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hotbed {
namespace event_text_test {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(EventText, TimeOfThisMachine) {
  EXPECT_EQ(TimeText(0), "-");
  absl::Time read;
  std::string error;
  ASSERT_TRUE(absl::ParseTime("%Y-%m-%d %H:%M:%E3S", TimeText(1'700'000'000'123),
                              absl::LocalTimeZone(), &read, &error))
      << error;
  EXPECT_EQ(absl::ToUnixMillis(read), 1'700'000'000'123);
}

TEST(EventText, OneLineWhateverNamesHold) {
  v1::ClusterEvent event;
  event.set_number(7);
  event.set_unix_ms(1'700'000'000'123);
  event.set_kind("fail_over");
  event.set_text("user/3: s1 -> s2\nbecause\x1b[2J s1 is gone");
  const std::string line = EventLine(event);
  EXPECT_THAT(line, HasSubstr("fail_over"));
  EXPECT_THAT(line, HasSubstr("user/3: s1 -> s2 because"));
  EXPECT_THAT(line, Not(HasSubstr("\n")));
  EXPECT_THAT(line, Not(HasSubstr("\x1b")));
  EXPECT_EQ(EventJson(event)["number"], 7u);
}

TEST(EventText, RebalancingSaysWhy) {
  v1::RebalanceStatus status;
  EXPECT_EQ(RebalanceText(status), "off: 'hotbed rebalance on'");
  status.set_on(true);
  status.set_imbalance(1.314);
  status.set_last_reason("s3 arrived");
  status.set_last_unix_ms(1'700'000'000'000);
  status.set_next_unix_ms(1'700'000'060'000);
  const std::string text = RebalanceText(status);
  EXPECT_THAT(text, HasSubstr("on; the busiest server has 1.31 times the mean load"));
  EXPECT_THAT(text, HasSubstr("last: s3 arrived ("));
  EXPECT_THAT(text, HasSubstr("not before "));
}

}  // namespace event_text_test
}  // namespace hotbed
