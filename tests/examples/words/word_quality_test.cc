#include "examples/words/word_quality.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace hotbed {
namespace word_quality_test {

using testing::ElementsAre;
using testing::Pair;

TEST(WordQualityTest, NeighboursAreByCosineNotLength) {
  const Corpus corpus = *BuildCorpus("a a a a a b b b b c c c d d e", {1, 0});
  ASSERT_THAT(corpus.words, ElementsAre("a", "b", "c", "d", "e"));
  WordVectors vectors;
  vectors.dim = 2;
  vectors.input = {1, 0, 0, 9, 5, 5, -1, 0, 0.1f, 0};
  const auto names = [&](int count, uint64_t min_count) {
    std::vector<std::string> out;
    for (const Neighbour& n : NearestWords(corpus, vectors, 0, count, min_count)) {
      out.push_back(corpus.words[n.word]);
    }
    return out;
  };
  EXPECT_THAT(names(10, 0), ElementsAre("e", "c", "b", "d"));
  EXPECT_THAT(names(2, 0), ElementsAre("e", "c"));
  EXPECT_THAT(names(10, 3), ElementsAre("c", "b"));
  EXPECT_NEAR(NearestWords(corpus, vectors, 0, 2, 0)[1].cosine, 0.70710678, 1e-6);
}

TEST(WordQualityTest, FamiliesAreWordsWithAnEnding) {
  const Corpus corpus =
      *BuildCorpus("king king king kings kings turn turn turned turneth kinged a as", {1, 0});
  std::vector<std::pair<std::string, std::string>> found;
  for (const auto& [word, longer] : FamilyPairs(corpus, 1)) {
    found.emplace_back(corpus.words[word], corpus.words[longer]);
  }
  EXPECT_THAT(found,
              testing::UnorderedElementsAre(Pair("king", "kings"), Pair("king", "kinged"),
                                            Pair("turn", "turneth"), Pair("turn", "turned")));
  EXPECT_EQ(FamilyPairs(corpus, 2).size(), 1u);
}

// Two topics, each with words of its own; every 4th sentence is held out.
Corpus TwoTopics() {
  std::string text;
  for (int s = 0; s < 400; ++s) {
    const char* const topic = s % 8 < 4 ? "x" : "y";
    for (int w = 0; w < 6; ++w) absl::StrAppend(&text, topic, topic, std::string(1, 'a' + w), " ");
    text += "\n";
  }
  return *BuildCorpus(text, {1, 4});
}

TEST(WordQualityTest, KnowingTheTopicIsWorthThreeQuarters) {
  const Corpus corpus = TwoTopics();
  const WindowSource windows(&corpus, {.window = 3, .subsample = 0});
  WordVectors vectors;
  vectors.dim = 1;
  vectors.input.assign(corpus.words.size(), 0);
  vectors.output = vectors.input;
  const WordScores blind = ScoreWords(windows, vectors, 1);
  EXPECT_EQ(blind.context_auc, 0.5);
  EXPECT_EQ(blind.frequency_auc, 0.5);  // all words occur equally often
  // 100 sentences of 6 words: 5 + 4 + 3 pairs each way.
  EXPECT_EQ(blind.contexts, 100u * 24);
  for (size_t w = 0; w < corpus.words.size(); ++w) {
    vectors.input[w] = vectors.output[w] = corpus.words[w][0] == 'x' ? 1.0f : -1.0f;
  }
  // A word of the other topic loses, a word of the same topic ties: 1/2 + 1/2 * 1/2.
  EXPECT_NEAR(ScoreWords(windows, vectors, 1).context_auc, 0.75, 0.02);
  for (float& x : vectors.output) x = -x;
  EXPECT_NEAR(ScoreWords(windows, vectors, 1).context_auc, 0.25, 0.02);
  EXPECT_EQ(ScoreWords(windows, vectors, 1).context_auc,
            ScoreWords(windows, vectors, 1).context_auc);
}

TEST(WordQualityTest, FamiliesThatStandTogetherAreFound) {
  std::string text;
  for (int i = 0; i < 20; ++i) {
    for (char c = 'a'; c < 'a' + 12; ++c) {
      const std::string stem = absl::StrCat("wo", std::string(1, c));
      absl::StrAppend(&text, stem, " ", stem, "s ");
    }
  }
  const Corpus corpus = *BuildCorpus(text, {1, 0});
  const WindowSource windows(&corpus, {.subsample = 0});
  WordVectors vectors;
  vectors.dim = 24;
  vectors.output.assign(24 * 24, 0);
  vectors.input.assign(24 * 24, 0);
  for (uint32_t w = 0; w < 24; ++w) vectors.input[w * 24 + w] = 1;  // none near another
  const double unrelated = ScoreWords(windows, vectors, 1).family_hits;
  EXPECT_LT(unrelated, 0.8);  // ties are won by the more frequent, here the earlier word
  for (uint32_t w = 0; w < 24; ++w) {
    vectors.input[w * 24 + w] = 0;
    vectors.input[w * 24 + static_cast<uint32_t>(corpus.words[w][2] - 'a')] = 1;
  }
  const WordScores scores = ScoreWords(windows, vectors, 1);
  EXPECT_EQ(scores.family_hits, 1);
  EXPECT_EQ(scores.families, 24u);
  EXPECT_NEAR(scores.family_chance, 10.0 / 23, 1e-12);
}

}  // namespace word_quality_test
}  // namespace hotbed
