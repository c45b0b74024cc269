#include "common/resident_bound.h"

#include <gtest/gtest.h>

namespace hotbed {
namespace resident_bound_test {

constexpr uint64_t kMiB = 1ull << 20;

// A process of `used` bytes, and `kept` more that a return to the system would free.
class ResidentBoundTest : public ::testing::Test {
 protected:
  ResidentBoundTest()
      : bound_(256 * kMiB, {[this] { return used_ + kept_; },
                            [this] {
                              ++given_back_;
                              kept_ = 0;
                            }}) {}

  uint64_t used_ = 100 * kMiB;
  uint64_t kept_ = 0;
  int given_back_ = 0;
  ResidentBound bound_;
};

TEST_F(ResidentBoundTest, WhatIsKeptGoesBackNearTheBudgetOnly) {
  kept_ = 140 * kMiB;
  bound_.Check();
  EXPECT_EQ(given_back_, 0);
  for (int round = 1; round <= 3; ++round) {
    kept_ = 141 * kMiB;
    bound_.Check();
    EXPECT_EQ(given_back_, round);
    EXPECT_EQ(kept_, 0);
  }
}

TEST_F(ResidentBoundTest, WhereItDoesNotHelpItIsTriedLessAndLess) {
  used_ = 300 * kMiB;
  for (int i = 0; i < 1000; ++i) bound_.Check();
  EXPECT_LT(given_back_, 6 + 1000 / ResidentBound::kSkippedMax);
  EXPECT_GT(given_back_, 1000 / (ResidentBound::kSkippedMax + 1));
  // The first check below the budget resets it.
  used_ = 100 * kMiB;
  for (int i = 0; i <= ResidentBound::kSkippedMax; ++i) bound_.Check();
  const int before = given_back_;
  kept_ = 200 * kMiB;
  bound_.Check();
  EXPECT_EQ(given_back_, before + 1);
}

TEST_F(ResidentBoundTest, ASystemThatDoesNotTellIsLeftAlone) {
  used_ = 0;
  bound_.Check();
  EXPECT_EQ(given_back_, 0);
}

TEST(ResidentBoundRealTest, TheSystemTells) {
  const ResidentBound::Seams real = ResidentBound::Real();
  EXPECT_GT(real.resident_bytes(), kMiB);
  real.give_back();
}

}  // namespace resident_bound_test
}  // namespace hotbed
