#include "examples/words/corpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace corpus_test {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(CorpusTest, WordsAreLowerCaseWithoutNumbersAndPossessives) {
  EXPECT_THAT(WordsOfLine("Ge1:5 And God called the light Day, and the darkness"),
              ElementsAre("and", "god", "called", "the", "light", "day", "and", "the", "darkness"));
  EXPECT_THAT(WordsOfLine("1Sm10:2 the king's men; o'er Beth-el (yea)."),
              ElementsAre("the", "king", "men", "o'er", "beth-el", "yea"));
  EXPECT_THAT(WordsOfLine("Note: not a verse"), ElementsAre("note", "not", "a", "verse"));
  EXPECT_THAT(WordsOfLine("'quoted' the sons' -- 12 wells-"),
              ElementsAre("quoted", "the", "sons", "wells"));
  EXPECT_TRUE(WordsOfLine("").empty());
}

TEST(CorpusTest, RowsAreByFallingCountAndRareWordsAreLeftOut) {
  const auto corpus = BuildCorpus("b a c\n a b rare\n\n a c b a\n", {2, 0});
  ASSERT_TRUE(corpus.ok()) << corpus.status();
  EXPECT_THAT(corpus->words, ElementsAre("a", "b", "c"));
  EXPECT_THAT(corpus->counts, ElementsAre(4, 3, 2));
  EXPECT_EQ(corpus->train_words, 9u);
  EXPECT_THAT(corpus->train,
              ElementsAre(ElementsAre(1, 0, 2), ElementsAre(0, 1), ElementsAre(0, 2, 1, 0)));
  EXPECT_TRUE(corpus->held_out.empty());
}

TEST(CorpusTest, EveryNthSentenceIsHeldOutAndNotCounted) {
  const auto corpus = BuildCorpus("a b\nb a\na a b\na a a b b\n", {1, 2});
  ASSERT_TRUE(corpus.ok());
  EXPECT_THAT(corpus->counts, ElementsAre(3, 2));
  EXPECT_EQ(corpus->train.size(), 2u);
  EXPECT_THAT(corpus->held_out, ElementsAre(ElementsAre(1, 0), ElementsAre(0, 0, 0, 1, 1)));
}

TEST(CorpusTest, ATextWithoutWordsIsRefusedByName) {
  const auto corpus = BuildCorpus("a b c", {5, 0});
  ASSERT_FALSE(corpus.ok());
  EXPECT_EQ(corpus.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(corpus.status().message()), HasSubstr("--min-count"));
}

TEST(CorpusTest, FrequentWordsAreThinnedOutByTheFormula) {
  const auto corpus = BuildCorpus("a a a a a a a a b b", {1, 0});
  ASSERT_TRUE(corpus.ok());
  EXPECT_THAT(KeepProbabilities(*corpus, 0), ElementsAre(1.0f, 1.0f));
  const std::vector<float> keep = KeepProbabilities(*corpus, 0.1);
  EXPECT_NEAR(keep[0], (std::sqrt(8.0) + 1) / 8, 1e-6);  // frequency 0.8, ratio 8
  EXPECT_NEAR(keep[1], 1, 1e-6);                         // (sqrt 2 + 1) / 2 is above 1
}

TEST(CorpusTest, NoiseIsDrawnByCountToThePower) {
  const TestSeed seed(21);
  Random random(seed.value());
  const std::vector<uint64_t> counts = {1000, 100, 10, 1};
  const NoiseSampler noise(counts, 0.75);
  double sum = 0;
  for (const uint64_t count : counts) sum += std::pow(static_cast<double>(count), 0.75);
  constexpr int kDraws = 200000;
  std::vector<int> drawn(counts.size());
  for (int i = 0; i < kDraws; ++i) ++drawn[noise.Draw(&random)];
  for (size_t w = 0; w < counts.size(); ++w) {
    const double p = std::pow(static_cast<double>(counts[w]), 0.75) / sum;
    EXPECT_NEAR(drawn[w], kDraws * p, 5 * std::sqrt(kDraws * p * (1 - p))) << w;
  }
}

}  // namespace corpus_test
}  // namespace hotbed
