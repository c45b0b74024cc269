// The result of hotbed-train-words, for people and for programs.
#ifndef HOTBED_EXAMPLES_WORDS_WORDS_REPORT_H_
#define HOTBED_EXAMPLES_WORDS_WORDS_REPORT_H_

#include <string>
#include <vector>

#include "examples/words/word_quality.h"
#include "examples/words/word_training.h"

namespace hotbed {

struct WordRun {
  WordTrainingReport training;
  WordScores scores;
};

struct NeighbourLine {
  std::string word;
  uint64_t count = 0;
  std::vector<std::pair<std::string, float>> neighbours;  // with cosines
};

struct WordsResult {
  uint64_t vocabulary = 0, train_words = 0, train_sentences = 0, held_out_sentences = 0;
  int trainers = 0;
  int servers = 0;  // of a cluster started for this run; 0: a running cluster was used
  WordRun cluster;
  std::vector<WordRun> local;  // the first has the draws of the cluster's training
  std::vector<NeighbourLine> neighbours;
  std::vector<std::string> missing_words;
};

// One score of the cluster's run and of the local runs, and whether they agree.
struct ScoreComparison {
  double cluster = 0;
  double local_mean = 0;
  double local_deviation = 0;  // between runs; 0 (unknown) with fewer than two runs
  double standard_error = 0;   // of the score itself, from the number of questions
  bool agrees = false;         // the difference is at most three times the larger of the two
};

ScoreComparison CompareScores(double cluster, const std::vector<double>& local, uint64_t questions);

std::string WordsText(const WordsResult& result);
std::string WordsJson(const WordsResult& result);

}  // namespace hotbed

#endif  // HOTBED_EXAMPLES_WORDS_WORDS_REPORT_H_
