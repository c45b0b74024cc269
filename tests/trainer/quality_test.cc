// Goal: AUC, log loss and RMSE are exact. Method: the quadratic definition as twin, hand-made
// cases.
#include "trainer/quality.h"

#include <gtest/gtest.h>

#include <cmath>

#include "common/random.h"

namespace hotbed {
namespace quality_test {

TEST(BinaryScoresTest, AucIsTheShareOfOrderedPairs) {
  Random random(3);
  BinaryScores scores;
  std::vector<std::pair<float, bool>> all;
  for (int i = 0; i < 300; ++i) {
    all.push_back({static_cast<float>(random.Uniform(40)), random.OneIn(3)});  // many ties
    scores.Add(all.back().first, all.back().second);
  }
  double ordered = 0, pairs = 0;
  for (const auto& p : all) {
    for (const auto& n : all) {
      if (!p.second || n.second) continue;
      ++pairs;
      ordered += p.first > n.first ? 1.0 : p.first == n.first ? 0.5 : 0.0;
    }
  }
  EXPECT_DOUBLE_EQ(scores.Auc(), ordered / pairs);
}

TEST(BinaryScoresTest, EdgeCases) {
  BinaryScores scores;
  EXPECT_EQ(scores.Auc(), 0.5);
  EXPECT_EQ(scores.LogLoss(), 0.0);
  scores.Add(1.0f, true);
  EXPECT_EQ(scores.Auc(), 0.5) << "one class only";
  scores.Add(-1.0f, false);
  EXPECT_EQ(scores.Auc(), 1.0);
  EXPECT_NEAR(scores.LogLoss(), std::log1p(std::exp(-1.0)), 1e-12);
}

TEST(BinaryScoresTest, LogLossDoesNotOverflow) {
  BinaryScores scores;
  scores.Add(-1000.0f, true);
  EXPECT_NEAR(scores.LogLoss(), 1000.0, 1e-9);
}

TEST(SquaredErrorsTest, Rmse) {
  SquaredErrors errors;
  EXPECT_EQ(errors.Rmse(), 0);
  errors.Add(3);
  errors.Add(-4);
  EXPECT_DOUBLE_EQ(errors.Rmse(), std::sqrt(12.5));
}

}  // namespace quality_test
}  // namespace hotbed
