#include "examples/words/word_training.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "absl/strings/str_cat.h"
#include "examples/words/local_row_source.h"
#include "examples/words/word_quality.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace word_training_test {

constexpr int kTopics = 4;

// Sentences of eight words, all of one topic.
Corpus Topics(uint64_t seed) {
  Random random(seed);
  std::string text;
  for (int s = 0; s < 1500; ++s) {
    const char topic = static_cast<char>('a' + random.Uniform(kTopics));
    for (int w = 0; w < 8; ++w) {
      absl::StrAppend(&text, std::string(3, topic),
                      std::string(1, static_cast<char>('a' + random.Uniform(12))), " ");
    }
    text += "\n";
  }
  return *BuildCorpus(text, {5, 20});
}

struct Training {
  explicit Training(uint64_t seed) : corpus(Topics(seed)), windows(&corpus, {.subsample = 0}) {
    model.dim = options.dim = 16;
    options.epochs = 4;
    options.batch_centres = 64;
    options.learning_rate = 0.3f;
    options.in_flight = 1;
    options.trainers = 1;
  }
  absl::StatusOr<WordTrainingReport> Run(const std::function<bool(const WordProgress&)>& progress =
                                             [](const WordProgress&) { return true; }) {
    tables = std::make_unique<LocalTables>(WordTables(model, corpus.words.size()));
    return TrainWords(
        options, windows,
        [this](int) -> absl::StatusOr<std::unique_ptr<RowSource>> {
          return std::make_unique<LocalRowSource>(tables.get());
        },
        progress);
  }
  WordVectors Vectors() {
    WordVectors vectors;
    vectors.dim = model.dim;
    std::vector<uint64_t> ids(corpus.words.size());
    std::iota(ids.begin(), ids.end(), 0);
    vectors.input.resize(ids.size() * model.dim);
    vectors.output.resize(vectors.input.size());
    tables->Pull({{kInputTable, ids, vectors.input.data(), nullptr},
                  {kOutputTable, ids, vectors.output.data(), nullptr}});
    return vectors;
  }

  Corpus corpus;
  WindowSource windows;
  WordModelOptions model;
  WordTrainingOptions options;
  std::unique_ptr<LocalTables> tables;
};

TEST(WordTrainingTest, TablesAreARowAWord) {
  WordModelOptions options;
  options.dim = 50;
  options.table_prefix = "w";
  const std::vector<TableSpec> specs = WordTables(options, 123);
  EXPECT_EQ(specs[kInputTable].name, "w_input");
  EXPECT_EQ(specs[kOutputTable].name, "w_output");
  for (const TableSpec& spec : specs) {
    EXPECT_TRUE(ValidateTableSpec(spec).ok()) << ValidateTableSpec(spec);
    EXPECT_EQ(spec.rows, 123u);
    EXPECT_EQ(spec.dim, 50u);
  }
  EXPECT_EQ(specs[kInputTable].initializer.b, 0.01f);
  EXPECT_EQ(specs[kOutputTable].initializer.kind, InitializerKind::kZero);
  EXPECT_NE(specs[0].seed, specs[1].seed);
}

TEST(WordTrainingTest, WordsOfATopicComeTogether) {
  const TestSeed seed(31);
  for (const int trainers : {1, 3}) {
    for (const OptimizerKind kind : {OptimizerKind::kRowwiseAdagrad, OptimizerKind::kSgd}) {
      Training training(seed.value());
      training.options.trainers = trainers;
      training.options.in_flight = trainers;
      training.model.optimizer = kind;
      // A batch contains a word tens of times, and SGD applies the sum of its gradients.
      if (kind == OptimizerKind::kSgd) training.options.learning_rate = 0.01f;
      const auto report = training.Run();
      ASSERT_TRUE(report.ok()) << report.status();
      ASSERT_EQ(report->epoch_loss.size(), 4u);
      EXPECT_LT(report->epoch_loss[3], 0.95 * report->epoch_loss[0]);
      EXPECT_EQ(report->total.words, 4 * training.corpus.train_words);
      const WordVectors vectors = training.Vectors();
      int same = 0, all = 0;
      for (uint32_t w = 0; w < training.corpus.words.size(); ++w) {
        for (const Neighbour& near : NearestWords(training.corpus, vectors, w, 5, 0)) {
          same += training.corpus.words[near.word][0] == training.corpus.words[w][0];
          ++all;
        }
      }
      EXPECT_GT(same, 0.95 * all);
      // The best possible: 3 of 4 drawn words are of another topic, the rest are coin tosses.
      EXPECT_GT(ScoreWords(training.windows, vectors, 1).context_auc, 0.83);
    }
  }
}

TEST(WordTrainingTest, OneTrainerWithOneBatchInFlightIsDeterministic) {
  const TestSeed seed(32);
  Training a(seed.value()), b(seed.value());
  b.model.seed = a.model.seed;
  const auto first = a.Run(), second = b.Run();
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->epoch_loss, second->epoch_loss);
  EXPECT_EQ(a.Vectors().input, b.Vectors().input);
  Training other(seed.value());
  other.model.seed = 9;
  ASSERT_TRUE(other.Run().ok());
  EXPECT_NE(a.Vectors().input, other.Vectors().input);
}

// Fails its pushes from the third on.
class FailingSource : public LocalRowSource {
 public:
  using LocalRowSource::LocalRowSource;
  Future<PushResult> Push(uint64_t step, const std::vector<RowColumn>& columns,
                          float learning_rate) override {
    if (step < 3) return LocalRowSource::Push(step, columns, learning_rate);
    PushResult result;
    result.status = absl::UnavailableError("no such server");
    return Future<PushResult>::Ready(result);
  }
};

TEST(WordTrainingTest, AFailedPushEndsTheRunWithItsError) {
  Training training(1);
  training.options.trainers = 2;
  training.options.in_flight = 2;
  LocalTables tables(WordTables(training.model, training.corpus.words.size()));
  const auto report = TrainWords(
      training.options, training.windows,
      [&tables](int) -> absl::StatusOr<std::unique_ptr<RowSource>> {
        return std::make_unique<FailingSource>(&tables);
      },
      [](const WordProgress&) { return true; });
  EXPECT_EQ(report.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(report.status().message()), testing::HasSubstr("no such server"));
}

TEST(WordTrainingTest, SecondsAndInterruptsEndTheRun) {
  Training timed(1);
  timed.options.epochs = 100000;
  timed.options.seconds_max = 0.3;
  const auto report = timed.Run();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_GT(report->total.words, 0u);
  EXPECT_LT(report->total.words, report->total.words_total);
  Training interrupted(1);
  interrupted.options.epochs = 100000;
  const auto stopped = interrupted.Run([](const WordProgress& p) { return p.steps == 0; });
  EXPECT_EQ(stopped.status().code(), absl::StatusCode::kCancelled);
}

}  // namespace word_training_test
}  // namespace hotbed
