// The options of hotbed-train-words, checked.
#ifndef HOTBED_EXAMPLES_WORDS_WORDS_FLAGS_H_
#define HOTBED_EXAMPLES_WORDS_WORDS_FLAGS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "examples/words/word_training.h"

namespace hotbed {

struct WordsFlags {
  std::string text;
  std::string coordinator;
  int64_t servers = 2;
  int64_t trainers = 2;
  int64_t epochs = 8;
  double seconds = 0;
  int64_t dim = 64;
  int64_t window = 5;
  int64_t negatives = 5;
  double subsample = 3e-4;
  int64_t min_count = 5;
  int64_t batch_centres = 512;
  int64_t in_flight = 2;
  double learning_rate = 0.3;
  std::string optimizer = "rowwise-adagrad";
  std::string wire = "fp32";
  int64_t seed = 1;
  int64_t local_runs = 2;
  std::string table_prefix = "words";
  std::string words = "god,king,son,mother,bread,sword,sea,gold,priest,jerusalem";
  int64_t neighbours = 6;
  std::string output = "table";

  bool json() const { return output == "json"; }
};

// Reads the command line, environment and file. False: the program ends with *exit_code.
bool LoadWordsFlags(int argc, char** argv, WordsFlags* flags, int* exit_code);

// Run 0 is the cluster's run and the first local run; other runs draw differently.
WindowOptions WindowOptionsOf(const WordsFlags& flags, int run);
WordModelOptions ModelOptionsOf(const WordsFlags& flags, int run);
WordTrainingOptions TrainingOptionsOf(const WordsFlags& flags);

// The words of --words that are in the vocabulary, as numbers of words. Appends the others to
// *missing.
std::vector<uint32_t> ShownWords(const WordsFlags& flags, const Corpus& corpus,
                                 std::vector<std::string>* missing);

}  // namespace hotbed

#endif  // HOTBED_EXAMPLES_WORDS_WORDS_FLAGS_H_
