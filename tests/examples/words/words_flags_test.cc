#include "examples/words/words_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hotbed {
namespace words_flags_test {

using testing::ElementsAre;

bool Load(std::vector<std::string> args, WordsFlags* flags, int* exit_code) {
  std::string program = "hotbed-train-words";
  std::vector<char*> argv = {program.data()};
  for (std::string& arg : args) argv.push_back(arg.data());
  return LoadWordsFlags(static_cast<int>(argv.size()), argv.data(), flags, exit_code);
}

TEST(WordsFlagsTest, FlagsReachTheOptions) {
  WordsFlags flags;
  int exit_code = -1;
  ASSERT_TRUE(Load({"--dim=24", "--trainers=3", "--seconds=1.5", "--optimizer=sgd", "--window=2",
                    "--in-flight=1", "-o", "json", "--table-prefix=w"},
                   &flags, &exit_code));
  EXPECT_TRUE(flags.json());
  EXPECT_EQ(ModelOptionsOf(flags, 0).dim, 24u);
  EXPECT_EQ(ModelOptionsOf(flags, 0).optimizer, OptimizerKind::kSgd);
  EXPECT_EQ(ModelOptionsOf(flags, 0).table_prefix, "w");
  EXPECT_EQ(TrainingOptionsOf(flags).trainers, 3);
  EXPECT_EQ(TrainingOptionsOf(flags).in_flight, 1);
  EXPECT_EQ(TrainingOptionsOf(flags).seconds_max, 1.5);
  EXPECT_EQ(WindowOptionsOf(flags, 0).window, 2);
}

TEST(WordsFlagsTest, RunsDifferInTheirDrawsOnly) {
  const WordsFlags flags;
  EXPECT_NE(WindowOptionsOf(flags, 0).seed, WindowOptionsOf(flags, 1).seed);
  EXPECT_NE(ModelOptionsOf(flags, 0).seed, ModelOptionsOf(flags, 1).seed);
  EXPECT_EQ(WindowOptionsOf(flags, 0).negatives, WindowOptionsOf(flags, 1).negatives);
}

TEST(WordsFlagsTest, WhatIsOutOfRangeStopsTheProgram) {
  for (const char* bad :
       {"--dim=0", "--epochs=0", "--seconds=-1", "--optimizer=adam", "--nothing"}) {
    WordsFlags flags;
    int exit_code = -1;
    EXPECT_FALSE(Load({bad}, &flags, &exit_code)) << bad;
    EXPECT_EQ(exit_code, 2) << bad;
  }
}

TEST(WordsFlagsTest, WordsOutsideTheVocabularyAreNamed) {
  const Corpus corpus = *BuildCorpus("god god god king king", {1, 0});
  WordsFlags flags;
  flags.words = "King, dragon,god,";
  std::vector<std::string> missing;
  EXPECT_THAT(ShownWords(flags, corpus, &missing), ElementsAre(1, 0));
  EXPECT_THAT(missing, ElementsAre("dragon"));
}

}  // namespace words_flags_test
}  // namespace hotbed
