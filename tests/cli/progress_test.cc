#include "terminal/progress.h"

#include <algorithm>
#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hotbed {
namespace progress_test {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kSecond = 1'000'000'000;

TEST(RenderProgress, BarPercentElapsedAndEta) {
  EXPECT_EQ(RenderProgress("train", 250, 1000, 10, "loss 0.45", 200),
            "train ██████··················  25% 10.0 s, ETA 30.0 s  loss 0.45");
  EXPECT_EQ(RenderProgress("train", 1000, 1000, 40, "", 200),
            "train ████████████████████████ 100% 40.0 s");
}

TEST(RenderProgress, MoreThanTheTotalStaysAtHundred) {
  EXPECT_THAT(RenderProgress("x", 1200, 1000, 1, "", 200), HasSubstr("100%"));
}

TEST(RenderProgress, UnknownTotalHasNoBar) {
  EXPECT_EQ(RenderProgress("rows", 12345, 0, 2, "", 200), "rows 12,345 in 2.00 s");
}

TEST(RenderProgress, IsCutAtTheWidthInCharacters) {
  EXPECT_EQ(RenderProgress("t", 1000, 1000, 1, "", 5), "t ███");
}

TEST(Progress, TerminalRedrawsAtMostTenTimesASecond) {
  ManualClock clock;
  std::ostringstream out;
  Progress progress(&out, true, &clock, "t", 100);
  for (int i = 0; i < 100; ++i) {
    clock.Advance(kSecond / 100);
    progress.Update(static_cast<uint64_t>(i));
  }
  const std::string drawn = out.str();
  EXPECT_EQ(std::count(drawn.begin(), drawn.end(), '\r'), 10);
  EXPECT_THAT(drawn, Not(HasSubstr("\n")));
  progress.Finish("done");
  EXPECT_THAT(out.str(), EndsWith("100% 1.00 s  done\n"));
}

TEST(Progress, LogGetsALineNowAndThen) {
  ManualClock clock;
  std::ostringstream out;
  {
    Progress progress(&out, false, &clock, "t", 0);
    for (int i = 0; i < 12; ++i) {
      clock.Advance(kSecond);
      progress.Update(static_cast<uint64_t>(i) + 1, "n");
    }
    progress.Finish();
    progress.Finish();
  }
  EXPECT_EQ(out.str(), "t 5 in 5.00 s  n\nt 10 in 10.0 s  n\nt 12 in 12.0 s\n");
}

TEST(Progress, AnUnfinishedLineIsEnded) {
  ManualClock clock;
  std::ostringstream out;
  {
    Progress progress(&out, true, &clock, "t", 10);
    clock.Advance(kSecond);
    progress.Update(1);
  }
  EXPECT_THAT(out.str(), EndsWith("\n"));
}

}  // namespace progress_test
}  // namespace hotbed
