// A text as numbers of words, the input of skip-gram.
//
// Thread rule: Corpus and NoiseSampler are immutable once made.
#ifndef HOTBED_EXAMPLES_WORDS_CORPUS_H_
#define HOTBED_EXAMPLES_WORDS_CORPUS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/random.h"

namespace hotbed {

struct CorpusOptions {
  uint64_t min_count = 5;        // rarer words are removed from the text
  uint64_t held_out_every = 20;  // every n-th sentence is held out of training; 0: none
};

struct Corpus {
  // By decreasing count, then by spelling. The number of a word is its row in the tables.
  std::vector<std::string> words;
  std::vector<uint64_t> counts;  // in the training sentences
  absl::flat_hash_map<std::string, uint32_t> number_of;
  std::vector<std::vector<uint32_t>> train, held_out;  // sentences
  uint64_t train_words = 0;
};

// The lower-case words of a line: letters, and apostrophes and hyphens between letters. A
// possessive 's is dropped, and so is a verse number ("Ge1:1") before the first blank.
std::vector<std::string> WordsOfLine(absl::string_view line);

// `text` has one sentence per line. InvalidArgument where fewer than two words are left.
absl::StatusOr<Corpus> BuildCorpus(absl::string_view text, const CorpusOptions& options);

// Mikolov et al. 2013, section 2.3, as in their program: a word of frequency f is kept with
// probability (sqrt(f / t) + 1) * t / f, at most 1, where t is `threshold`; 0 keeps all words.
std::vector<float> KeepProbabilities(const Corpus& corpus, double threshold);

// Draws words with probability proportional to count^power (0.75 in the paper, section 2.2).
class NoiseSampler {
 public:
  NoiseSampler(const std::vector<uint64_t>& counts, double power);
  uint32_t Draw(Random* random) const;

 private:
  std::vector<double> cumulative_;
};

}  // namespace hotbed

#endif  // HOTBED_EXAMPLES_WORDS_CORPUS_H_
