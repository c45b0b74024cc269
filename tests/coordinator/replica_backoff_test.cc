#include "planner/coordinator/membership/replica_backoff.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace hotbed {
namespace replica_backoff_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kBegin = 7 * 3600 * kSecond;

TEST(ReplicaBackoffTest, TheFirstLossCostsNothingAndLaterOnesTwiceAsMuchEach) {
  ReplicaBackoff backoff;
  int64_t now = kBegin;
  EXPECT_EQ(backoff.NoteLost(1, 5, now), "");
  EXPECT_THAT(backoff.Avoided(1, now), IsEmpty());
  EXPECT_EQ(backoff.Why(1, 5, now), "");
  int64_t wait = 30;
  for (int n = 2; n < 20; ++n) {
    EXPECT_EQ(backoff.NoteLost(1, 5, now), "lost there " + std::to_string(n) +
                                               " times in a row, not made there again for " +
                                               std::to_string(wait) + " s");
    EXPECT_THAT(backoff.Avoided(1, now + wait * kSecond - 1), ElementsAre(5u));
    EXPECT_THAT(backoff.Avoided(1, now + wait * kSecond), IsEmpty());
    now += wait * kSecond;
    wait = wait * 2 < 3600 ? wait * 2 : 3600;
  }
  EXPECT_EQ(wait, 3600) << "it ends somewhere";
}

TEST(ReplicaBackoffTest, EachShardAndServerCountsForItself) {
  ReplicaBackoff backoff;
  backoff.NoteLost(1, 5, kBegin);
  backoff.NoteLost(1, 6, kBegin);
  backoff.NoteLost(2, 5, kBegin);
  EXPECT_THAT(backoff.Avoided(1, kBegin), IsEmpty());
  backoff.NoteLost(1, 6, kBegin);
  EXPECT_THAT(backoff.Avoided(1, kBegin), ElementsAre(6u));
  EXPECT_THAT(backoff.Avoided(2, kBegin), IsEmpty());
  EXPECT_THAT(backoff.Why(1, 6, kBegin + kSecond),
              HasSubstr("lost 2 times in a row; asked again in 29 s"));
  backoff.Forget(1);
  EXPECT_THAT(backoff.Avoided(1, kBegin), IsEmpty());
}

TEST(ReplicaBackoffTest, ALossLongAfterTheOneBeforeIsTheFirst) {
  ReplicaBackoff backoff;
  backoff.NoteLost(1, 5, kBegin);
  EXPECT_EQ(backoff.NoteLost(1, 5, kBegin + ReplicaBackoff::kForgottenNs), "");
  EXPECT_NE(backoff.NoteLost(1, 5, kBegin + 2 * ReplicaBackoff::kForgottenNs - 1), "");
}

TEST(ReplicaBackoffTest, WhoWasNotHeardOfIsLeftAloneForAWhile) {
  ReplicaBackoff backoff;
  backoff.NoteUnreached(1, 5, kBegin);
  EXPECT_THAT(backoff.Why(1, 5, kBegin), HasSubstr("do not hear of each other"));
  EXPECT_THAT(backoff.Avoided(1, kBegin + ReplicaBackoff::kUnreachedNs - 1), ElementsAre(5u));
  EXPECT_THAT(backoff.Avoided(1, kBegin + ReplicaBackoff::kUnreachedNs), IsEmpty());
  EXPECT_EQ(backoff.NoteLost(1, 5, kBegin + ReplicaBackoff::kUnreachedNs), "") << "the first loss";
}

}  // namespace replica_backoff_test
}  // namespace hotbed
