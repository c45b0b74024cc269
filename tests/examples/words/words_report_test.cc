#include "examples/words/words_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nlohmann/json.hpp"

namespace hotbed {
namespace words_report_test {

using testing::HasSubstr;
using testing::Not;

WordRun Run(double auc, double families) {
  WordRun run;
  run.training.total.seconds = 2;
  run.training.total.words = 1000;
  run.training.epoch_loss = {3, 2.5};
  run.scores.context_auc = auc;
  run.scores.contexts = 10000;
  run.scores.family_hits = families;
  run.scores.families = 400;
  return run;
}

WordsResult Result() {
  WordsResult result;
  result.vocabulary = 5000;
  result.trainers = 2;
  result.cluster = Run(0.70, 0.25);
  result.local = {Run(0.701, 0.26), Run(0.703, 0.20)};
  result.neighbours = {{"king", 2000, {{"queen", 0.75f}}}};
  result.missing_words = {"dragon"};
  return result;
}

TEST(WordsReportTest, NoiseIsTheLargerOfRunsAndQuestions) {
  const ScoreComparison c = CompareScores(0.7, {0.701, 0.703}, 10000);
  EXPECT_NEAR(c.local_mean, 0.702, 1e-12);
  EXPECT_NEAR(c.local_deviation, 0.001 * std::sqrt(2.0), 1e-12);
  EXPECT_NEAR(c.standard_error, std::sqrt(0.701 * 0.299 / 10000), 1e-12);
  EXPECT_TRUE(c.agrees);
  EXPECT_TRUE(CompareScores(0.702 - 0.0136, {0.701, 0.703}, 10000).agrees);
  EXPECT_FALSE(CompareScores(0.702 - 0.0141, {0.701, 0.703}, 10000).agrees);
  EXPECT_FALSE(CompareScores(0.5, {0.7, 0.701}, 10000).agrees);
  EXPECT_TRUE(CompareScores(0.02, {0.0}, 100).agrees);  // two hits of a hundred, and none
  EXPECT_EQ(CompareScores(0.5, {0.7}, 100).local_deviation, 0);
}

TEST(WordsReportTest, TheTextHasRunsVerdictsAndNeighbours) {
  const std::string text = WordsText(Result());
  EXPECT_THAT(text, HasSubstr("cluster, 2 trainers"));
  EXPECT_THAT(text, HasSubstr("local, other draws"));
  EXPECT_THAT(text, HasSubstr("is within the noise"));
  EXPECT_THAT(text, HasSubstr("queen 0.75"));
  EXPECT_THAT(text, HasSubstr("not in the vocabulary: dragon"));
  WordsResult far = Result();
  far.cluster.scores.context_auc = 0.6;
  EXPECT_THAT(WordsText(far), HasSubstr("is beyond the noise"));
  far.local.clear();
  EXPECT_THAT(WordsText(far), Not(HasSubstr("noise")));
}

TEST(WordsReportTest, TheJsonHasTheSame) {
  const auto json = nlohmann::json::parse(WordsJson(Result()));
  EXPECT_EQ(json["cluster"]["context_auc"], 0.70);
  EXPECT_EQ(json["cluster"]["words_per_second"], 500);
  EXPECT_EQ(json["local"].size(), 2u);
  EXPECT_EQ(json["comparison"]["contexts"]["agrees"], true);
  EXPECT_EQ(json["neighbours"]["king"][0]["word"], "queen");
  EXPECT_EQ(json["missing_words"][0], "dragon");
}

}  // namespace words_report_test
}  // namespace hotbed
