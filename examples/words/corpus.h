// A text as word numbers: what skip-gram reads.
//
// Thread rule: Corpus and NoiseSampler do not change once made.
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
  uint64_t min_count = 5;        // rarer words are left out, as if they were not in the text
  uint64_t held_out_every = 20;  // each n-th sentence is kept from training; 0: none
};

struct Corpus {
  // By falling count, equal counts by spelling: a word's number is its row in the tables.
  std::vector<std::string> words;
  std::vector<uint64_t> counts;  // in the sentences that are trained on
  absl::flat_hash_map<std::string, uint32_t> number_of;
  std::vector<std::vector<uint32_t>> train, held_out;  // sentences
  uint64_t train_words = 0;
};

// Lower-case words of a line: letters, and apostrophes and hyphens between letters; a possessive 's
// is dropped. What is before the first blank is dropped where it is a verse number ("Ge1:1").
std::vector<std::string> WordsOfLine(absl::string_view line);

// One sentence a line. InvalidArgument where fewer than two words are left.
absl::StatusOr<Corpus> BuildCorpus(absl::string_view text, const CorpusOptions& options);

// Mikolov et al. 2013, section 2.3, as their program has it: a word of frequency f is kept with
// probability (sqrt(f / t) + 1) * t / f, at most 1. `threshold` 0 keeps all.
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
