#include "examples/words/skip_gram.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace skip_gram_test {

// Sentences whose words occur in no other sentence, so that a context identifies its sentence.
Corpus DistinctWords(int sentences, int length) {
  std::string text;
  for (int s = 0; s < sentences; ++s) {
    for (int w = 0; w < length; ++w) {
      absl::StrAppend(&text, " ", std::string(1, static_cast<char>('a' + s)),
                      std::string(1, static_cast<char>('a' + w)));
    }
    text += "\n";
  }
  return *BuildCorpus(text, {1, 0});
}

struct Place {
  int sentence = -1, at = -1;
};

std::vector<Place> Places(const Corpus& corpus) {
  std::vector<Place> places(corpus.words.size());
  for (int s = 0; s < static_cast<int>(corpus.train.size()); ++s) {
    for (int i = 0; i < static_cast<int>(corpus.train[s].size()); ++i) {
      places[corpus.train[s][i]] = {s, i};
    }
  }
  return places;
}

TEST(SkipGramTest, AnEpochIsEveryCentreOnceWithNeighboursInTheWindow) {
  const Corpus corpus = DistinctWords(7, 12);
  const std::vector<Place> places = Places(corpus);
  const WindowSource source(&corpus, {.window = 3, .negatives = 4, .subsample = 0, .seed = 5});
  std::multiset<uint64_t> centres;
  uint64_t words_read = 0;
  std::set<int> reaches;
  for (int part = 0; part < 3; ++part) {
    WindowStream stream(&source, /*epoch=*/0, part, /*parts=*/3);
    SkipGramBatch batch;
    while (stream.Next(5, &batch)) {
      ASSERT_LE(batch.centres.size(), 5u);
      ASSERT_EQ(batch.first.size(), batch.centres.size() + 1);
      words_read += batch.words_read;
      uint64_t pairs = 0;
      for (size_t c = 0; c < batch.centres.size(); ++c) {
        const Place centre = places[batch.centres[c]];
        EXPECT_EQ(centre.sentence % 3, part);
        centres.insert(batch.centres[c]);
        pairs += batch.contexts[c];
        ASSERT_EQ(batch.first[c + 1] - batch.first[c], batch.contexts[c] + 4);
        std::set<int> distances;
        for (size_t o = batch.first[c]; o < batch.first[c] + batch.contexts[c]; ++o) {
          const Place context = places[batch.outputs[o]];
          EXPECT_EQ(context.sentence, centre.sentence);
          distances.insert(context.at - centre.at);
        }
        EXPECT_EQ(distances.size(), batch.contexts[c]);
        EXPECT_EQ(distances.count(0), 0u);
        reaches.insert(std::max(-*distances.begin(), *distances.rbegin()));
      }
      EXPECT_EQ(batch.pairs, pairs);
    }
    EXPECT_TRUE(batch.centres.empty());
  }
  EXPECT_EQ(words_read, corpus.train_words);
  EXPECT_EQ(centres.size(), corpus.words.size());
  EXPECT_EQ(std::set<uint64_t>(centres.begin(), centres.end()).size(), corpus.words.size());
  EXPECT_EQ(reaches, (std::set<int>{1, 2, 3}));
}

TEST(SkipGramTest, AStreamIsAFunctionOfSeedEpochAndPart) {
  const Corpus corpus = DistinctWords(9, 8);
  const auto outputs = [&corpus](uint64_t seed, int epoch, int part) {
    const WindowSource source(&corpus, {.subsample = 0.01, .seed = seed});
    WindowStream stream(&source, epoch, part, 2);
    SkipGramBatch batch;
    stream.Next(20, &batch);
    return batch.outputs;
  };
  EXPECT_EQ(outputs(1, 0, 0), outputs(1, 0, 0));
  EXPECT_NE(outputs(1, 0, 0), outputs(2, 0, 0));
  EXPECT_NE(outputs(1, 0, 0), outputs(1, 1, 0));
  EXPECT_NE(outputs(1, 0, 0), outputs(1, 0, 1));
}

TEST(SkipGramTest, FrequentWordsAreKeptAsOftenAsTheySay) {
  std::string text;
  for (int i = 0; i < 4000; ++i) absl::StrAppend(&text, "the the the word", i % 50, "x\n");
  const Corpus corpus = *BuildCorpus(text, {1, 0});
  const WindowSource source(&corpus, {.subsample = 0.05, .seed = 3});
  ASSERT_LT(source.keep[0], 0.5f);
  WindowStream stream(&source, 0, 0, 1);
  SkipGramBatch batch;
  double kept = 0;
  while (stream.Next(100, &batch)) {
    for (const uint64_t centre : batch.centres) kept += centre == 0;
  }
  // A little less than the share of 12,000, because a sentence with one word left has no centre.
  EXPECT_NEAR(kept / 12000, source.keep[0], 0.03);
}

// The formula of the header, pair by pair, in double.
double TwinLoss(const SkipGramBatch& batch, uint32_t dim, const std::vector<float>& inputs,
                const std::vector<float>& outputs) {
  const auto log_sigmoid = [](double x) { return -std::log(1 + std::exp(-x)); };
  const auto dot = [&](size_t c, size_t o) {
    double sum = 0;
    for (uint32_t d = 0; d < dim; ++d) sum += double{inputs[c * dim + d]} * outputs[o * dim + d];
    return sum;
  };
  double loss = 0;
  for (size_t c = 0; c < batch.centres.size(); ++c) {
    const size_t negatives = batch.first[c] + batch.contexts[c];
    for (size_t j = batch.first[c]; j < negatives; ++j) {
      loss -= log_sigmoid(dot(c, j));
      for (size_t i = negatives; i < batch.first[c + 1]; ++i) loss -= log_sigmoid(-dot(c, i));
    }
  }
  return loss;
}

TEST(SkipGramTest, LossAndGradientAreThoseOfTheFormula) {
  const TestSeed seed(22);
  Random random(seed.value());
  for (const uint32_t dim : {1u, 7u, 8u, 20u}) {
    SkipGramBatch batch;
    batch.centres = {3, 1, 3};
    batch.outputs = {5, 6, 7, 8, 9, 5, 5, 1, 2, 3, 4};
    batch.first = {0, 4, 7, 11};
    batch.contexts = {2, 1, 2};
    std::vector<float> inputs(3 * dim), outputs(11 * dim);
    for (float& x : inputs) x = static_cast<float>(random.Double() * 2 - 1);
    for (float& x : outputs) x = static_cast<float>(random.Double() * 2 - 1);
    std::vector<float> input_gradients(inputs.size(), 9), output_gradients(outputs.size(), 9);
    const double loss = SkipGramGradient(batch, dim, inputs.data(), outputs.data(),
                                         input_gradients.data(), output_gradients.data());
    EXPECT_NEAR(loss, TwinLoss(batch, dim, inputs, outputs), 1e-5);
    constexpr float kStep = 1.0f / 256;
    for (auto [values, gradients] :
         {std::pair(&inputs, &input_gradients), std::pair(&outputs, &output_gradients)}) {
      for (size_t i = 0; i < values->size(); ++i) {
        const float before = (*values)[i];
        (*values)[i] = before + kStep;
        const double above = TwinLoss(batch, dim, inputs, outputs);
        (*values)[i] = before - kStep;
        const double below = TwinLoss(batch, dim, inputs, outputs);
        const double width = double{before + kStep} - double{before - kStep};
        (*values)[i] = before;
        ASSERT_NEAR((*gradients)[i], (above - below) / width, 1e-4);
      }
    }
  }
}

TEST(SkipGramTest, LargeScoresDoNotOverflow) {
  SkipGramBatch batch;
  batch.centres = {0};
  batch.outputs = {0, 1};
  batch.first = {0, 2};
  batch.contexts = {1};
  const std::vector<float> inputs = {1000}, outputs = {-1000, 1000};
  float input_gradient, output_gradients[2];
  EXPECT_NEAR(
      SkipGramGradient(batch, 1, inputs.data(), outputs.data(), &input_gradient, output_gradients),
      2e6, 1);
  EXPECT_EQ(output_gradients[0], -1000);
  EXPECT_EQ(output_gradients[1], 1000);
}

}  // namespace skip_gram_test
}  // namespace hotbed
