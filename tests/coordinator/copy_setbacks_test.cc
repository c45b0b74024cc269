#include "planner/coordinator/membership/copy_setbacks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace hotbed {
namespace copy_setbacks_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kBegin = 7 * 3600 * kSecond;

TEST(CopySetbacksTest, TheFirstLossCostsNothingAndLaterOnesTwiceAsMuchEach) {
  CopySetbacks setbacks;
  int64_t now = kBegin;
  EXPECT_EQ(setbacks.NoteLost(1, 5, now), "");
  EXPECT_THAT(setbacks.Avoided(1, now), IsEmpty());
  EXPECT_EQ(setbacks.Why(1, 5, now), "");
  int64_t wait = 30;
  for (int n = 2; n < 20; ++n) {
    EXPECT_EQ(setbacks.NoteLost(1, 5, now), "lost there " + std::to_string(n) +
                                                " times in a row, not made there again for " +
                                                std::to_string(wait) + " s");
    EXPECT_THAT(setbacks.Avoided(1, now + wait * kSecond - 1), ElementsAre(5u));
    EXPECT_THAT(setbacks.Avoided(1, now + wait * kSecond), IsEmpty());
    now += wait * kSecond;
    wait = wait * 2 < 3600 ? wait * 2 : 3600;
  }
  EXPECT_EQ(wait, 3600) << "it ends somewhere";
}

TEST(CopySetbacksTest, EachShardAndServerCountsForItself) {
  CopySetbacks setbacks;
  setbacks.NoteLost(1, 5, kBegin);
  setbacks.NoteLost(1, 6, kBegin);
  setbacks.NoteLost(2, 5, kBegin);
  EXPECT_THAT(setbacks.Avoided(1, kBegin), IsEmpty());
  setbacks.NoteLost(1, 6, kBegin);
  EXPECT_THAT(setbacks.Avoided(1, kBegin), ElementsAre(6u));
  EXPECT_THAT(setbacks.Avoided(2, kBegin), IsEmpty());
  EXPECT_THAT(setbacks.Why(1, 6, kBegin + kSecond),
              HasSubstr("lost 2 times in a row; asked again in 29 s"));
  setbacks.Forget(1);
  EXPECT_THAT(setbacks.Avoided(1, kBegin), IsEmpty());
}

TEST(CopySetbacksTest, ALossLongAfterTheOneBeforeIsTheFirst) {
  CopySetbacks setbacks;
  setbacks.NoteLost(1, 5, kBegin);
  EXPECT_EQ(setbacks.NoteLost(1, 5, kBegin + CopySetbacks::kForgottenNs), "");
  EXPECT_NE(setbacks.NoteLost(1, 5, kBegin + 2 * CopySetbacks::kForgottenNs - 1), "");
}

TEST(CopySetbacksTest, WhoWasNotHeardOfIsLeftAloneForAWhile) {
  CopySetbacks setbacks;
  setbacks.NoteUnreached(1, 5, kBegin);
  EXPECT_THAT(setbacks.Why(1, 5, kBegin), HasSubstr("do not hear of each other"));
  EXPECT_THAT(setbacks.Avoided(1, kBegin + CopySetbacks::kUnreachedNs - 1), ElementsAre(5u));
  EXPECT_THAT(setbacks.Avoided(1, kBegin + CopySetbacks::kUnreachedNs), IsEmpty());
  EXPECT_EQ(setbacks.NoteLost(1, 5, kBegin + CopySetbacks::kUnreachedNs), "") << "the first loss";
}

}  // namespace copy_setbacks_test
}  // namespace hotbed
